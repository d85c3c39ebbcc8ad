"""The spine's event types: everything a turn writes into the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from dsh.llm import ContentBlock, LlmCallConfig, Message, ReplayState, StreamChunk, TokenUsage
from dsh.session._message_sources import MessageSource
from dsh.session._open_union import Flag, Whole
from dsh.session._request_header import RequestHeader, SystemDelta, ToolsDelta
from dsh.session._session_data import SessionData
from dsh.session._turn_end_reasons import TurnEndReason
from dsh.session._turn_triggers import TurnTrigger

__all__ = [
    "SYNTHETIC_RESULT_CODES",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "AssistantChunk",
    "AssistantMessage",
    "ContextMessage",
    "ErrorInfo",
    "PromptBlocked",
    "RequestHeaderDelta",
    "RequestHeaderReason",
    "RequestHeaderSnapshot",
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
"""Why a whole header was written."""
TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
"""How far a line of the task list is."""


@dataclass(frozen=True, slots=True)
class TurnStart(SessionData, type="turn/start"):
    """A turn opens; every other event lies between this and its `turn/end`."""

    turn: Whole
    """Counted from 1, without gaps."""
    trigger: TurnTrigger
    """What opened it."""


@dataclass(frozen=True, slots=True)
class TurnEnd(SessionData, type="turn/end"):
    """The open turn closes; the only durable record of a failure inside it."""

    turn: Whole
    """The turn that closes."""
    reason: TurnEndReason
    """How it ended."""


@dataclass(frozen=True, slots=True)
class StepStart(SessionData, type="step/start"):
    """One model call with its tools opens.

    The request's messages are the history derived from everything strictly before this event.
    """

    turn: Whole
    """The open turn."""
    step: Whole
    """Counted from 1 within the turn, without gaps."""


@dataclass(frozen=True, slots=True)
class StepEnd(SessionData, type="step/end"):
    """The open step closes."""

    turn: Whole
    """The open turn."""
    step: Whole
    """The step that closes."""


@dataclass(frozen=True, slots=True)
class UserMessage(SessionData, type="user/message", surface=True):
    """A prompt as admitted, after any rewrite."""

    content: tuple[ContentBlock, ...]
    """The prompt, as the model reads it."""
    source: MessageSource
    """Who sent it."""


@dataclass(frozen=True, slots=True)
class PromptBlocked(SessionData, type="prompt/blocked"):
    """A vetoed prompt, in the place where its `user/message` would have been."""

    content: tuple[ContentBlock, ...]
    """The prompt as sent."""
    source: MessageSource
    """Who sent it."""
    reason: str
    """Why it was vetoed."""


@dataclass(frozen=True, slots=True)
class ContextMessage(SessionData, type="context/message", surface=True):
    """Context that is no prompt; the model sees it in a `<context>` envelope."""

    content: tuple[ContentBlock, ...]
    """The context, without the envelope."""
    source: MessageSource
    """Who gave it."""


@dataclass(frozen=True, slots=True)
class SteeringMessage(SessionData, type="steering/message", surface=True):
    """A message given while the turn ran; the model sees it in a `<steering>` envelope."""

    turn: Whole
    """The open turn."""
    content: tuple[ContentBlock, ...]
    """The message, without the envelope."""
    source: MessageSource
    """Who sent it."""


@dataclass(frozen=True, slots=True)
class AssistantChunk(SessionData, type="assistant/chunk"):
    """One chunk of the model's stream, as it came."""

    turn: Whole
    """The open turn."""
    step: Whole
    """The open step."""
    chunk: StreamChunk
    """The chunk."""


@dataclass(frozen=True, slots=True)
class AssistantMessage(SessionData, type="assistant/message", surface=True):
    """The assembled answer of a step; empty content only carries `usage`."""

    turn: Whole
    """The open turn."""
    step: Whole
    """The open step."""
    content: tuple[ContentBlock, ...]
    """The blocks of the answer, in order."""
    usage: TokenUsage | None = None
    """What the call cost, where the provider said so."""
    interrupted: Flag = False
    """Whether the stream was cut off and this is its visible prefix."""
    replay: ReplayState | None = None
    """Provider-private material for the next request to the same adapter."""


@dataclass(frozen=True, slots=True)
class ToolCall(SessionData, type="tool/call"):
    """A tool call is about to run."""

    turn: Whole
    """The open turn."""
    step: Whole
    """The open step."""
    call_id: str
    """Id of the call, that of its tool-call block."""
    name: str
    """Name of the tool, as the model wrote it."""
    arguments: str
    """The JSON text as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Machine-readable error of a tool result."""

    name: str
    """Name of the error, that of its class usually."""
    code: str
    """Its stable code."""


@dataclass(frozen=True, slots=True)
class ToolResult(SessionData, type="tool/result", surface=True):
    """What a tool call came to, as the model reads it."""

    turn: Whole
    """The open turn."""
    step: Whole
    """The open step."""
    call_id: str
    """Id of the call this answers."""
    content: tuple[ContentBlock, ...]
    """What the model reads."""
    is_error: Flag = False
    """Whether the call failed; the content then says how."""
    error: ErrorInfo | None = None
    """Name and code of the failure, where there is one."""
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
    """What is to be done."""
    status: TodoStatus
    """How far it is."""


@dataclass(frozen=True, slots=True)
class TodoWrite(SessionData, type="todo/write"):
    """The whole task list; the last one in the log holds."""

    todos: tuple[TodoItem, ...]
    """Every line, in order."""


@dataclass(frozen=True, slots=True)
class RequestHeaderSnapshot(SessionData, type="request/header"):
    """Everything in a request that is not derived history, complete."""

    header: RequestHeader
    """The whole header."""
    reason: RequestHeaderReason
    """`initial`: the log's first; `resume`: a new loop instance; `fallback`: no delta fits."""


@dataclass(frozen=True, slots=True)
class RequestHeaderDelta(SessionData, type="request/header-delta"):
    """Amendment to the header in force; at least one field is set."""

    system: SystemDelta | None = None
    """What changed in the system prompt."""
    tools: ToolsDelta | None = None
    """What changed in the tools."""
    config: LlmCallConfig | None = None
    """The whole new configuration."""
    message_prefix: tuple[Message, ...] | None = None
    """The whole new prefix; empty means that there is none any more."""

    def __post_init__(self) -> None:
        parts = (self.system, self.tools, self.config, self.message_prefix)
        if all(part is None for part in parts):
            raise ValueError("a request/header-delta changes at least one field")
