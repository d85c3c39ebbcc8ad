"""The spine's event types: everything a turn writes into the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from dsh.llm import ContentBlock, LlmCallConfig, Message, ReplayState, StreamChunk, TokenUsage
from dsh.session._data import SessionData
from dsh.session._header import EpochHeader, SystemDelta, ToolsDelta
from dsh.session._kinds import MessageSource, TurnEndReason, TurnTrigger
from dsh.session._open_union import Flag, Whole

__all__ = [
    "SYNTHETIC_RESULT_CODES",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "AssistantChunk",
    "AssistantMessage",
    "ContextMessage",
    "ErrorInfo",
    "PromptBlocked",
    "RequestHeader",
    "RequestHeaderDelta",
    "RequestHeaderReason",
    "SteeringMessage",
    "StepEnd",
    "StepStart",
    "TodoItem",
    "TodoStatus",
    "TodoWrite",
    "ToolCall",
    "ToolResult",
    "TurnEnd",
    "TurnStart",
    "UserMessage",
]

TOOL_NOT_STARTED: Final = "TOOL_NOT_STARTED"
"""Error code of a synthetic result: the call never ran and may be made again."""

TOOL_OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"
"""Error code of a synthetic result: the call had started and nobody knows how it ended."""

SYNTHETIC_RESULT_CODES: Final = frozenset({TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN})
"""Codes of results written in place of a missing one; they need no earlier `tool/call`."""

RequestHeaderReason: TypeAlias = Literal["initial", "resume", "fallback"]
TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class TurnStart(SessionData, type="turn/start"):
    """A turn opens; every other event lies between this and its `turn/end`."""

    turn: Whole
    """Counted from 1, without gaps."""
    trigger: TurnTrigger


@dataclass(frozen=True, slots=True)
class TurnEnd(SessionData, type="turn/end"):
    """The open turn closes; the only durable record of a failure inside it."""

    turn: Whole
    reason: TurnEndReason


@dataclass(frozen=True, slots=True)
class StepStart(SessionData, type="step/start"):
    """One model call with its tools opens.

    The request's messages are the history derived from everything strictly before this event.
    """

    turn: Whole
    step: Whole
    """Counted from 1 within the turn, without gaps."""


@dataclass(frozen=True, slots=True)
class StepEnd(SessionData, type="step/end"):
    """The open step closes."""

    turn: Whole
    step: Whole


@dataclass(frozen=True, slots=True)
class UserMessage(SessionData, type="user/message", surface=True):
    """A prompt as admitted, after any rewrite."""

    content: tuple[ContentBlock, ...]
    source: MessageSource


@dataclass(frozen=True, slots=True)
class PromptBlocked(SessionData, type="prompt/blocked"):
    """A vetoed prompt, in the place where its `user/message` would have been."""

    content: tuple[ContentBlock, ...]
    """The prompt as sent."""
    source: MessageSource
    reason: str


@dataclass(frozen=True, slots=True)
class ContextMessage(SessionData, type="context/message", surface=True):
    """Context that is no prompt; the model sees it in a `<context>` envelope."""

    content: tuple[ContentBlock, ...]
    source: MessageSource


@dataclass(frozen=True, slots=True)
class SteeringMessage(SessionData, type="steering/message", surface=True):
    """A message given while the turn ran; the model sees it in a `<steering>` envelope."""

    turn: Whole
    content: tuple[ContentBlock, ...]
    source: MessageSource


@dataclass(frozen=True, slots=True)
class AssistantChunk(SessionData, type="assistant/chunk"):
    """One chunk of the model's stream, as it came."""

    turn: Whole
    step: Whole
    chunk: StreamChunk


@dataclass(frozen=True, slots=True)
class AssistantMessage(SessionData, type="assistant/message", surface=True):
    """The assembled answer of a step; empty content only carries `usage`."""

    turn: Whole
    step: Whole
    content: tuple[ContentBlock, ...]
    usage: TokenUsage | None = None
    interrupted: Flag = False
    """Whether the stream was cut off and this is its visible prefix."""
    replay: ReplayState | None = None
    """Provider-private material for the next request to the same adapter."""


@dataclass(frozen=True, slots=True)
class ToolCall(SessionData, type="tool/call"):
    """A tool call is about to run."""

    turn: Whole
    step: Whole
    call_id: str
    name: str
    arguments: str
    """The JSON text as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Machine-readable error of a tool result."""

    name: str
    code: str


@dataclass(frozen=True, slots=True)
class ToolResult(SessionData, type="tool/result", surface=True):
    """What a tool call came to, as the model reads it."""

    turn: Whole
    step: Whole
    call_id: str
    content: tuple[ContentBlock, ...]
    is_error: Flag = False
    error: ErrorInfo | None = None
    meta: Mapping[str, Any] | None = None
    """Presentation payload for user interfaces; never shown to the model."""

    @property
    def synthetic(self) -> bool:
        """Whether this stands in for a result that never came."""
        return self.error is not None and self.error.code in SYNTHETIC_RESULT_CODES


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One line of the agent's task list."""

    content: str
    status: TodoStatus


@dataclass(frozen=True, slots=True)
class TodoWrite(SessionData, type="todo/write"):
    """The whole task list; the last one in the log holds."""

    todos: tuple[TodoItem, ...]


@dataclass(frozen=True, slots=True)
class RequestHeader(SessionData, type="request/header"):
    """Everything in a request that is not derived history, complete."""

    header: EpochHeader
    reason: RequestHeaderReason
    """`initial`: the log's first; `resume`: a new loop instance; `fallback`: no delta fits."""


@dataclass(frozen=True, slots=True)
class RequestHeaderDelta(SessionData, type="request/header-delta"):
    """Amendment to the header in force; at least one field is set."""

    system: SystemDelta | None = None
    tools: ToolsDelta | None = None
    config: LlmCallConfig | None = None
    """The whole new configuration."""
    message_prefix: tuple[Message, ...] | None = None
    """The whole new prefix; empty means that there is none any more."""

    def __post_init__(self) -> None:
        parts = (self.system, self.tools, self.config, self.message_prefix)
        if all(part is None for part in parts):
            raise ValueError("a request/header-delta changes at least one field")
