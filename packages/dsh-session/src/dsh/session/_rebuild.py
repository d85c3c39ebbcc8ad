"""Requests made again from the log that led to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dsh.llm import LlmRequest, Message
from dsh.session._event import SessionEvent
from dsh.session._event_types import AssistantChunk, StepEnd, StepStart, TurnEnd
from dsh.session._request_header import RequestHeader
from dsh.session._request_header_fold import fold_request_header
from dsh.session._surface import Surface
from dsh.session._turn_end_reasons import Failed
from dsh.session.errors import RebuildError

__all__ = ["rebuild_request", "request_steps"]


def rebuild_request(events: Sequence[SessionEvent], turn: int, step: int) -> LlmRequest:
    """Return the request that a step made, from the log alone.

    Its messages are the history before the `step/start`, behind the prefix; the rest is the
    header in force when the first chunk came. `signal` and `session_id`, which are in no log, are
    None; everything else equals what the loop had sent. `LlmService.render` gives the bytes.

    The last step of a log may be open: the request is then the one under way. A step that was
    cancelled, or whose process died, before the first chunk may have been sent or not, which the
    log cannot tell; it has a request here.

    Args:
        events: A log from its first event on, or that much of it.
        turn: Number of the turn.
        step: Number of the step in it.

    Returns:
        The request, marked `loop`.

    Raises:
        RebuildError: Code `STEP_NOT_FOUND`: the log has no such step. `NO_REQUEST`: the step
            failed before its request was made.
        HeaderFoldError: The log's request headers are corrupt.
        SurfaceError: Its surface operations are.
    """
    found = _find(events, turn, step)
    header = fold_request_header(events[seq] for seq in range(found.made))
    if header is None or found.failed:
        raise RebuildError(
            f"step {step} of turn {turn} made no request"
            + ("" if found.failure is None else f": {found.failure}"),
            code=RebuildError.NO_REQUEST,
            hint=_made(events),
        )
    return _request(header, history_at(events, found.start))


def request_steps(events: Iterable[SessionEvent]) -> tuple[tuple[int, int], ...]:
    """Return turn and step of every request that `rebuild_request` can make of a log, in order."""
    walk = _Walk()
    for event in events:
        walk.see(event)
    return walk.ended()


def history_at(events: Sequence[SessionEvent], end: int) -> tuple[Message, ...]:
    """Derive the history of the first `end` events, without any use of what was derived before.

    Raises:
        SurfaceError: A surface operation does not fit.
    """
    surface = Surface(events)
    for seq in range(end):
        if events[seq].surface_op is not None:
            surface.fold(events[seq])
    return surface.messages()


@dataclass(frozen=True, slots=True)
class _Found:
    """A step of a log."""

    start: int
    """Where its `step/start` is."""
    made: int
    """How many events count for its header: all before the first chunk."""
    failed: bool
    """Whether it failed before its request."""
    failure: str | None = None
    """What the turn's end says about that."""


def _find(events: Sequence[SessionEvent], turn: int, step: int) -> _Found:
    for seq, event in enumerate(events):
        data = event.data
        if isinstance(data, StepStart) and data.turn == turn and data.step == step:
            return _around(events, seq, step)
    turns = [event.data.turn for event in events if isinstance(event.data, StepStart)]
    steps = turns.count(turn)
    if steps:
        problem = f"turn {turn} has {_counted(steps, 'step')}, so no step {step}"
    else:
        problem = f"the log has no turn {turn} with a step"
    raise RebuildError(problem, code=RebuildError.STEP_NOT_FOUND, hint=_made(events))


def _around(events: Sequence[SessionEvent], start: int, step: int) -> _Found:
    for seq in range(start + 1, len(events)):
        data = events[seq].data
        if isinstance(data, AssistantChunk):
            return _Found(start, seq, False)
        if isinstance(data, StepEnd):
            reason = _end_after(events, seq, step)
            return _Found(start, seq, reason is not None, reason)
    return _Found(start, len(events), False)


def _end_after(events: Sequence[SessionEvent], seq: int, step: int) -> str | None:
    """Return why the turn failed in a step that ended at `seq`, or None if it did not."""
    for later in range(seq + 1, len(events)):
        data = events[later].data
        if isinstance(data, StepStart):
            return None
        if isinstance(data, TurnEnd):
            failed = isinstance(data.reason, Failed) and data.reason.step == step
            return data.reason.message if isinstance(data.reason, Failed) and failed else None
    return None


class _Walk:
    """The steps of a log that have a request, in one pass."""

    __slots__ = ("_asked", "_header", "_last", "_steps")

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = []
        self._last: tuple[int, int] | None = None
        self._asked = False
        self._header = False

    def see(self, event: SessionEvent) -> None:
        """Take in the next event."""
        data = event.data
        if isinstance(data, AssistantChunk):
            self._asked = True
        elif isinstance(data, StepStart):
            self._settle(failed=False)
            self._last, self._asked = (data.turn, data.step), False
        elif isinstance(data, TurnEnd):
            reason = data.reason
            last = self._last
            failed = isinstance(reason, Failed) and last is not None and reason.step == last[1]
            self._settle(failed=failed)
        elif event.type in _HEADERS:
            self._header = True

    def ended(self) -> tuple[tuple[int, int], ...]:
        """Return what was found, at the end of the log."""
        self._settle(failed=False)
        return tuple(self._steps)

    def _settle(self, *, failed: bool) -> None:
        last, self._last = self._last, None
        if last is not None and self._header and (self._asked or not failed):
            self._steps.append(last)


_HEADERS: Final = frozenset({"request/header", "request/header-delta"})


def _request(header: RequestHeader, history: tuple[Message, ...]) -> LlmRequest:
    config = header.config
    return LlmRequest(
        model=config.model,
        messages=(*(header.message_prefix or ()), *history),
        system=header.system,
        tools=header.tools,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        stop=config.stop,
        reasoning_effort=config.reasoning_effort,
        loop=True,
    )


def _made(events: Iterable[SessionEvent]) -> str:
    """Say which steps have a request, for whoever named another."""
    steps = request_steps(events)
    if not steps:
        return "no step of this log made a request"
    named = ", ".join(f"{turn}.{step}" for turn, step in steps[:_NAMED])
    rest = len(steps) - _NAMED
    return f"requests were made in turn.step {named}" + (f" and {rest} more" if rest > 0 else "")


_NAMED: Final = 12


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
