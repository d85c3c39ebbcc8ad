"""The models DeepSeek offers. Advisory: any other name is passed on as it is."""

from __future__ import annotations

from typing import Final

from dsh.llm import ModelInfo

EFFORTS: Final = ("off", "low", "high", "max")
"""What `reasoning_effort` may be, weakest first; `off` switches thinking off."""

_WINDOW: Final = 1_000_000
_OUTPUT: Final = 384_000


def _model(id: str, name: str) -> ModelInfo:
    return ModelInfo(id, name, _WINDOW, _OUTPUT, EFFORTS)


MODELS: Final = (
    _model("deepseek-flash", "DeepSeek-V4.1-Flash"),
    _model("deepseek-v4-pro", "DeepSeek-V4-Pro"),
    # Names that still answer; the provider serves them with the current flash model.
    _model("deepseek-v4-flash", "DeepSeek-V4-Flash"),
    _model("deepseek-v4-flash-vision-exp", "DeepSeek-V4-Flash-Vision-Exp"),
)
"""What the adapter lists unless its configuration names other models."""
