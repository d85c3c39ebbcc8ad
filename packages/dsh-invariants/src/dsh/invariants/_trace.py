"""The grammar of a session log, checked event by event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from dsh.core import DshError
from dsh.invariants._service import Reporter
from dsh.session import (
    AssistantChunk,
    Enclosure,
    Replace,
    Session,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from dsh.session.errors import EnclosureError, SurfaceError

__all__ = ["SessionTrace", "check_log"]

Shadowed: TypeAlias = Callable[[Replace], tuple[int, ...]]
_NAME = "dsh-session"


class SessionTrace:
    """What the log says so far, as far as the next event must fit it.

    `check` looks at an event without taking it in; `advance` takes in one that was committed.
    """

    __slots__ = ("_pending", "_turns", "next_seq")

    def __init__(self) -> None:
        self._turns = Enclosure()
        self._pending: set[str] = set()
        self.next_seq = 0

    def check(
        self, event: SessionEvent, shadowed: Shadowed, report: Reporter, *, thorough: bool = True
    ) -> None:
        """Raise unless `event` may come next.

        Args:
            event: The event that is about to be committed.
            shadowed: Says which nodes a replace would take off the surface.
            report: Where a broken rule is reported.
            thorough: Also look at each cited event, of which an answer has one per chunk.

        Raises:
            InvariantError: It may not.
        """
        report.check(
            event.seq >= self.next_seq,
            f"seq {event.seq} of {event.type} does not come after {self.next_seq - 1}",
        )
        try:
            self._turns.check(event.data, event.surface_op)
        except EnclosureError as error:
            report.fail(error.message)
        self._check_surface(event, shadowed, report)
        if thorough:
            _check_sources(event, report)
        if isinstance(event.data, ToolResult):
            self._check_result(event.data, event, report)

    def check_chunk(self, event: SessionEvent, chunk: AssistantChunk, report: Reporter) -> None:
        """Raise unless a chunk may come next."""
        try:
            self._turns.check_chunk(chunk)
        except EnclosureError as error:
            report.fail(error.message)

    def advance(self, event: SessionEvent) -> None:
        """Take in an event that is in the log, whether or not it fits."""
        self.next_seq = event.seq + 1
        data = event.data
        self._turns.advance(data)
        match data:
            case ToolCall(call_id=call_id):
                self._pending.add(call_id)
            case ToolResult(call_id=call_id) if not isinstance(event.surface_op, Replace):
                self._pending.discard(call_id)
            case StepStart() | StepEnd() | TurnEnd():
                self._pending.clear()
            case _:
                pass

    def _check_surface(self, event: SessionEvent, shadowed: Shadowed, report: Reporter) -> None:
        op = event.surface_op
        if event.data.surface_eligible:
            report.check(op is not None, f"{event.type} at seq {event.seq} lacks its surfaceOp")
        else:
            report.check(
                op is None and event.source_event_seqs is None,
                f"{event.type} at seq {event.seq} is log-only and carries surface metadata",
            )
        if not isinstance(op, Replace):
            return
        try:
            nodes = shadowed(op)
        except SurfaceError as error:
            report.fail(f"{event.type} at seq {event.seq}: {error.message}")
        missing = set(nodes) - set(event.source_event_seqs or ())
        report.check(
            not missing,
            f"the replace at seq {event.seq} does not cite the nodes it shadows: {sorted(missing)}",
        )

    def _check_result(self, data: ToolResult, event: SessionEvent, report: Reporter) -> None:
        if data.synthetic or isinstance(event.surface_op, Replace):
            return
        report.check(
            data.call_id in self._pending,
            f"tool/result at seq {event.seq} answers {data.call_id!r}, which no tool/call of "
            "this step has open",
        )


def check_log(events: Iterable[SessionEvent], report: Reporter | None = None) -> SessionTrace:
    """Check a whole log against the grammar, and return what it says.

    Args:
        events: The log, from seq 0 on.
        report: Where a broken rule is reported; just raised if None.

    Raises:
        InvariantError: An event does not fit; the message names it.
    """
    report = report or Reporter(_NAME, "full", deque(maxlen=1))
    trace = SessionTrace()
    replay = Session("replay", enclosed=False)
    for event in events:
        if isinstance(event.data, AssistantChunk):
            trace.check_chunk(event, event.data, report)
        trace.check(event, replay.surface.shadowed, report)
        try:
            replay.append(event.data, event.surface_op, event.source_event_seqs)
        except DshError as error:
            report.fail(f"{event.type} at seq {event.seq}: {error.message}")
        trace.advance(event)
    return trace


def _check_sources(event: SessionEvent, report: Reporter) -> None:
    seqs = event.source_event_seqs
    if seqs is None:
        return
    where = f"sourceEventSeqs of {event.type} at seq {event.seq}"
    report.check(len(seqs) > 0, f"{where} is empty")
    report.check(len(set(seqs)) == len(seqs), f"{where} names an event twice")
    report.check(
        min(seqs) >= 0 and max(seqs) < event.seq, f"{where} names an event that is not before it"
    )
