"""The model seam: messages, the stream protocol, adapters and the service that routes to them."""

from dsh.llm._adapter import CallDefaults, LlmAdapter, ModelInfo, Problem
from dsh.llm._assembler import BlockAssembler
from dsh.llm._catalog import ResolvedModel
from dsh.llm._chunks import (
    STOP,
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmFailure,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm._classify import is_context_window_exceeded, is_quota_exceeded
from dsh.llm._content import (
    ContentBlock,
    Message,
    ReasoningBlock,
    ReplayState,
    Role,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    alt_text,
)
from dsh.llm._grammar import GrammarRule, GrammarViolation, StreamGrammar
from dsh.llm._normalize import error_chain, normalize_failure
from dsh.llm._prepared import PreparedCall
from dsh.llm._registry import AdapterRegistration
from dsh.llm._request import LlmCallConfig, LlmRequest, ToolSchema
from dsh.llm._retry import RetryPolicy
from dsh.llm._service import GenerateResult, LlmService
from dsh.llm._signal import CancelSignal
from dsh.llm._wire import block_from_wire, chunk_from_wire, from_wire, to_wire
from dsh.llm.errors import LlmError

__all__ = [
    "STOP",
    "AdapterRegistration",
    "BlockAssembler",
    "BlockEnd",
    "BlockStart",
    "CallDefaults",
    "CancelSignal",
    "ContentBlock",
    "Finish",
    "FinishReason",
    "GenerateResult",
    "GrammarRule",
    "GrammarViolation",
    "LlmAdapter",
    "LlmCallConfig",
    "LlmError",
    "LlmFailure",
    "LlmRequest",
    "LlmService",
    "Message",
    "ModelInfo",
    "PreparedCall",
    "Problem",
    "ReasoningBlock",
    "ReasoningDelta",
    "ReplayState",
    "ResolvedModel",
    "RetryPolicy",
    "Role",
    "StreamChunk",
    "StreamGrammar",
    "TextBlock",
    "TextDelta",
    "TokenUsage",
    "ToolCallBlock",
    "ToolCallDelta",
    "ToolResultBlock",
    "ToolSchema",
    "UnknownBlock",
    "UsageChunk",
    "alt_text",
    "block_from_wire",
    "chunk_from_wire",
    "error_chain",
    "from_wire",
    "is_context_window_exceeded",
    "is_quota_exceeded",
    "normalize_failure",
    "to_wire",
]
