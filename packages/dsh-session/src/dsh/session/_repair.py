"""Closing what a crash left open in a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dsh.llm import TextBlock, ToolCallBlock
from dsh.session._event import APPEND, SessionEvent
from dsh.session._event_types import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    AssistantMessage,
    ErrorInfo,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from dsh.session._session_data import SessionData
from dsh.session._turn_end_reasons import Interrupted

__all__ = ["interrupted_turn_closers", "synthetic_tool_result"]

_NOT_STARTED = (
    "This call did not run: the work was interrupted before it started. It had no effect and can "
    "be made again if it is still wanted."
)
_OUTCOME_UNKNOWN = (
    "This call was interrupted while it ran, and no result was recorded. It may have taken "
    "effect completely, partly or not at all. Repeat it only if it just reads or can safely be "
    "done twice; otherwise check the state first, or ask."
)


@dataclass(slots=True)
class _Pending:
    step: int
    call_seq: int | None = None


def synthetic_tool_result(turn: int, step: int, call_id: str, *, started: bool) -> ToolResult:
    """Return the result that stands in for one that will never come.

    Args:
        turn: The open turn.
        step: The step of the call.
        call_id: The call.
        started: Whether it may have run, its `tool/call` being logged or lost: then the code is
            `TOOL_OUTCOME_UNKNOWN`, otherwise `TOOL_NOT_STARTED`.
    """
    if started:
        error = ErrorInfo("ToolOutcomeUnknownError", TOOL_OUTCOME_UNKNOWN)
    else:
        error = ErrorInfo("ToolNotStartedError", TOOL_NOT_STARTED)
    text = _OUTCOME_UNKNOWN if started else _NOT_STARTED
    return ToolResult(turn, step, call_id, (TextBlock(text),), is_error=True, error=error)


def interrupted_turn_closers(
    events: Iterable[SessionEvent], *, more_was_lost: bool = False
) -> tuple[SessionEvent, ...]:
    """Return the events that close the turn a log breaks off in; none if it is closed.

    For every tool call of the open step without a result comes an error result, then `step/end`
    if a step is open, then `turn/end` with reason `interrupted`. They continue the numbering and
    carry the time of the last event. Calls left without a result in a step that was closed stay
    as they are.

    Args:
        events: The log.
        more_was_lost: Whether it went on and the rest could not be read. A call that was logged
            there may have run, so the outcome of every call is unknown then.
    """
    scan = _Scan()
    last: SessionEvent | None = None
    for event in events:
        scan.see(event)
        last = event
    if scan.turn is None or last is None:
        return ()
    closers: list[SessionEvent] = []
    for call_id, pending in scan.pending.items():
        started = more_was_lost or pending.call_seq is not None
        result = synthetic_tool_result(scan.turn, pending.step, call_id, started=started)
        sources = None if pending.call_seq is None else (pending.call_seq,)
        seq = last.seq + 1 + len(closers)
        closers.append(SessionEvent(seq, last.time, result, APPEND, sources))
    tail: list[SessionData] = []
    if scan.step is not None:
        tail.append(StepEnd(scan.turn, scan.step))
    tail.append(TurnEnd(scan.turn, Interrupted()))
    for data in tail:
        closers.append(SessionEvent(last.seq + 1 + len(closers), last.time, data))
    return tuple(closers)


class _Scan:
    """What is open at the end of a log."""

    __slots__ = ("pending", "step", "turn")

    def __init__(self) -> None:
        self.turn: int | None = None
        self.step: int | None = None
        self.pending: dict[str, _Pending] = {}

    def see(self, event: SessionEvent) -> None:
        match event.data:
            case TurnStart(turn=turn):
                self._move(turn, None)
            case TurnEnd():
                self._move(None, None)
            case StepStart(step=step):
                self.step = step
            case StepEnd():
                self._move(self.turn, None)
            case AssistantMessage(step=step, content=content):
                for block in content:
                    if isinstance(block, ToolCallBlock):
                        self.pending[block.id] = _Pending(step)
            case ToolCall(call_id=call_id):
                if call_id in self.pending:
                    self.pending[call_id].call_seq = event.seq
            case ToolResult(call_id=call_id):
                self.pending.pop(call_id, None)
            case _:
                pass

    def _move(self, turn: int | None, step: int | None) -> None:
        self.turn, self.step = turn, step
        self.pending.clear()
