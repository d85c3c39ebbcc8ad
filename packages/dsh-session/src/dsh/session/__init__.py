"""Event-sourced sessions: the append-only log, derived history and the live sessions."""

from dsh.session._codec import (
    EventRow,
    decode_event,
    encode_event,
    event_from_row,
    event_to_row,
)
from dsh.session._derive import derive_event_message
from dsh.session._enclosure import Enclosure
from dsh.session._event import APPEND, Append, Replace, SessionEvent, SurfaceOp
from dsh.session._event_types import (
    SYNTHETIC_RESULT_CODES,
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    AssistantChunk,
    AssistantMessage,
    ContextMessage,
    ErrorInfo,
    PromptBlocked,
    RequestHeaderDelta,
    RequestHeaderReason,
    RequestHeaderSnapshot,
    SteeringMessage,
    StepEnd,
    StepStart,
    TodoItem,
    TodoStatus,
    TodoWrite,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from dsh.session._fork import fork_boundary
from dsh.session._freeze import freeze, mend_text, thaw
from dsh.session._live_sessions import LiveSessions
from dsh.session._log import EventLog
from dsh.session._message_sources import MessageSource, OtherSource, PluginSource, UserSource
from dsh.session._pairing import is_tool_pairing_balanced
from dsh.session._rebuild import rebuild_request, request_steps
from dsh.session._repair import interrupted_turn_closers, synthetic_tool_result
from dsh.session._request_header import RequestHeader, SystemDelta, ToolsDelta, canonical_header
from dsh.session._request_header_fold import apply_header_delta, diff_header, fold_request_header
from dsh.session._request_header_log import HeaderRecord, record_request_header
from dsh.session._session import Session
from dsh.session._session_data import SessionData, UnknownData, event_types, type_name
from dsh.session._session_header import SESSION_FORMAT_VERSION, SessionHeader, SessionMeta
from dsh.session._surface import Surface
from dsh.session._tap import SessionTap, Validator
from dsh.session._turn_end_reasons import (
    Aborted,
    Completed,
    Disposed,
    Failed,
    Interrupted,
    MaxTokens,
    MaxTurnRequests,
    OtherReason,
    Refusal,
    Rejected,
    TurnEndReason,
)
from dsh.session._turn_triggers import (
    InjectionTrigger,
    MessageTrigger,
    OtherTrigger,
    RecordTrigger,
    TurnTrigger,
)
from dsh.session._undeclared import undeclared_kinds
from dsh.session._wire import event_from_wire, event_to_wire, header_from_wire, header_to_wire

__all__ = [
    "APPEND",
    "SESSION_FORMAT_VERSION",
    "SYNTHETIC_RESULT_CODES",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "Aborted",
    "Append",
    "AssistantChunk",
    "AssistantMessage",
    "Completed",
    "ContextMessage",
    "Disposed",
    "Enclosure",
    "ErrorInfo",
    "EventLog",
    "EventRow",
    "Failed",
    "HeaderRecord",
    "InjectionTrigger",
    "Interrupted",
    "LiveSessions",
    "MaxTokens",
    "MaxTurnRequests",
    "MessageSource",
    "MessageTrigger",
    "OtherReason",
    "OtherSource",
    "OtherTrigger",
    "PluginSource",
    "PromptBlocked",
    "RecordTrigger",
    "Refusal",
    "Rejected",
    "Replace",
    "RequestHeader",
    "RequestHeaderDelta",
    "RequestHeaderReason",
    "RequestHeaderSnapshot",
    "Session",
    "SessionData",
    "SessionEvent",
    "SessionHeader",
    "SessionMeta",
    "SessionTap",
    "SteeringMessage",
    "StepEnd",
    "StepStart",
    "Surface",
    "SurfaceOp",
    "SystemDelta",
    "TodoItem",
    "TodoStatus",
    "TodoWrite",
    "ToolCall",
    "ToolResult",
    "ToolsDelta",
    "TurnEnd",
    "TurnEndReason",
    "TurnStart",
    "TurnTrigger",
    "UnknownData",
    "UserMessage",
    "UserSource",
    "Validator",
    "apply_header_delta",
    "canonical_header",
    "decode_event",
    "derive_event_message",
    "diff_header",
    "encode_event",
    "event_from_row",
    "event_from_wire",
    "event_to_row",
    "event_to_wire",
    "event_types",
    "fold_request_header",
    "fork_boundary",
    "freeze",
    "header_from_wire",
    "header_to_wire",
    "interrupted_turn_closers",
    "is_tool_pairing_balanced",
    "mend_text",
    "rebuild_request",
    "record_request_header",
    "request_steps",
    "synthetic_tool_result",
    "thaw",
    "type_name",
    "undeclared_kinds",
]
