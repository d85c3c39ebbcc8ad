"""Checks of every session log as it is written."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from dsh.core import Context
from dsh.invariants._immutable import mutable_part
from dsh.invariants._service import Reporter
from dsh.invariants._trace import SessionTrace, check_log
from dsh.session import AssistantChunk, LiveSessions, Session, SessionEvent
from dsh.session.events import SessionCreated, SessionEventAppended

__all__ = ["install"]


class _Watch:
    """One session's trace, and the event that was looked at last.

    An event that passed here may still be refused by a later validator, so it is taken in only
    once it has been found in the log.
    """

    __slots__ = ("_staged", "_trace")

    def __init__(self, trace: SessionTrace) -> None:
        self._trace = trace
        self._staged: SessionEvent | None = None

    def look(self, session: Session, event: SessionEvent, report: Reporter) -> None:
        self._settle(session)
        data = event.data
        if isinstance(data, AssistantChunk):
            self._trace.check_chunk(event, data, report)
            return
        self._staged = event
        thorough = report.level == "full"
        self._trace.check(event, session.surface.shadowed, report, thorough=thorough)

    def _settle(self, session: Session) -> None:
        staged, self._staged = self._staged, None
        if staged is None or staged.seq >= session.seq or session.events[staged.seq] is not staged:
            return
        self._trace.advance(staged)


class _Sessions:
    """The watches of all live sessions."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._watches: WeakKeyDictionary[Session, _Watch] = WeakKeyDictionary()

    def adopt(self, session: Session) -> _Watch:
        """Follow a session that is on its way: whatever its log says so far holds."""
        trace = SessionTrace()
        for event in session.events:
            trace.advance(event)
        watch = self._watches[session] = _Watch(trace)
        return watch

    def validate(self, session: Session, event: SessionEvent) -> None:
        watch = self._watches.get(session) or self.adopt(session)
        watch.look(session, event, self._report)

    def on_created(self, event: SessionCreated) -> None:
        session = event.session
        self._watches[session] = _Watch(check_log(session.events, self._report))

    def on_appended(self, event: SessionEventAppended) -> None:
        logged = event.event
        report = self._report
        report.check(
            event.session.events[logged.seq] is logged,
            f"session/event tells of seq {logged.seq}, which is not what the log holds",
        )
        part = mutable_part(logged.data, logged.type)
        report.check(part is None, f"the log holds a value that can change: {part}")


def install(ctx: Context, report: Reporter) -> None:
    """Check each event before it is committed, and each seed when its session is announced."""
    store = ctx[LiveSessions]
    sessions = _Sessions(report)
    for session in store.list():
        sessions.adopt(session)
    full = report.level == "full"
    store.validator(ctx, sessions.validate, chunks=full)
    ctx.on(SessionCreated, sessions.on_created, prepend=True)
    if full:
        ctx.on(SessionEventAppended, sessions.on_appended, prepend=True)
