"""DeepSeek and other chat-completions endpoints over HTTP and server-sent events."""

from dsh.llm_deepseek._adapter import DeepSeekAdapter
from dsh.llm_deepseek._catalog import MODELS
from dsh.llm_deepseek._config import DeepSeekConfig, ModelEntry, RetrySettings
from dsh.llm_deepseek._plugin import DeepSeekPlugin

__all__ = [
    "MODELS",
    "DeepSeekAdapter",
    "DeepSeekConfig",
    "DeepSeekPlugin",
    "ModelEntry",
    "RetrySettings",
]
