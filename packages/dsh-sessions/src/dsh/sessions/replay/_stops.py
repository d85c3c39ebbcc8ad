"""Where a recorded turn was interrupted, and where it failed."""

from __future__ import annotations

from collections.abc import Sequence

from dsh.llm import LlmError
from dsh.session import (
    TOOL_NOT_STARTED,
    Aborted,
    AssistantMessage,
    Disposed,
    Failed,
    Interrupted,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolResult,
    TurnEnd,
)
from dsh.sessions.replay._steps import Step, Steps
from dsh.sessions.replay._turns import Place, Turn

__all__ = ["find_stop"]

_UNTOLD = "the log does not tell why"


def find_stop(
    events: Sequence[SessionEvent], turn: Turn, steps: Steps
) -> tuple[int, Aborted | Disposed] | None:
    """Return behind how many events somebody interrupts a turn, and how; None if nobody does.

    What fails of something else than the model's answer is noted in the turn.
    """
    sign = _sign(events, turn, steps)
    match turn.reason:
        case Aborted() | Disposed():
            return sign, turn.reason
        case Failed():
            turn.failure = turn.reason
        case None | Interrupted():
            # the process may have ended while it closed a turn that was stopped or had failed
            if sign < turn.end:
                return sign, Aborted(_UNTOLD)
            turn.failure = Failed(_last_step(events, turn), _UNTOLD)
        case _:
            return None
    turn.fails = _failure(events, turn, turn.failure, steps)
    return None


def _sign(events: Sequence[SessionEvent], turn: Turn, steps: Steps) -> int:
    """Return the first event of a turn that a loop logs because it was interrupted."""
    for seq in range(turn.start, turn.end):
        data = events[seq].data
        if isinstance(data, TurnEnd):
            return seq
        if isinstance(data, AssistantMessage) and data.interrupted:
            return seq
        if isinstance(data, ToolResult) and _not_started(data):
            return seq
        if isinstance(data, StepEnd):
            step = steps.get((data.turn, data.step))
            if step is not None and step.broke_off:
                return seq
    return turn.end


def _failure(
    events: Sequence[SessionEvent],
    turn: Turn,
    reason: Failed,
    steps: Steps,
) -> tuple[int, Place] | None:
    """Return where a turn fails that failed of something else than the model's answer."""
    number, closed, last = 0, turn.start, Step()
    for seq in range(turn.start, turn.end):
        data = events[seq].data
        if isinstance(data, StepStart):
            number, last = data.step, steps[data.turn, data.step]
        elif isinstance(data, ToolResult) and _not_started(data):
            return seq, "call"
        elif isinstance(data, StepEnd):
            closed = seq
            place = _failed_step(last) if reason.step == number else None
            if place is not None and not turn.goes_on(events, seq):
                return seq, place
        elif isinstance(data, TurnEnd):
            if reason.step == 0:
                return seq, "prompt"
            if reason.step > number:
                return seq, "assembly"
            if last.finish is None or not last.finish.failed or last.replied:
                return seq, "policy"
            error = LlmError.from_finish(last.finish)
            same = (error.message, error.code) == (reason.message, reason.code)
            return None if same else (closed, "close")
    return None


def _last_step(events: Sequence[SessionEvent], turn: Turn) -> int:
    steps = [
        event.data.step
        for event in events[turn.start : turn.end]
        if isinstance(event.data, StepStart)
    ]
    return steps[-1] if steps else 0


def _failed_step(step: Step) -> Place | None:
    """Return where a step failed that is about to be closed; None if it went well so far."""
    if step.broke_off:
        return "stream" if step.chunks or step.headed else "config"
    if not step.replied and step.finish is not None and not step.finish.failed:
        return "reply"
    return None


def _not_started(data: ToolResult) -> bool:
    return data.error is not None and data.error.code == TOOL_NOT_STARTED
