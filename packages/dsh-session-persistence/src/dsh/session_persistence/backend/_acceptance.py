"""Whether a session could start from a stored log: what a resume tries, tried by a look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dsh.session import (
    Enclosure,
    Session,
    SessionEvent,
    SessionHeader,
    interrupted_turn_closers,
)
from dsh.session.errors import EnclosureError, SessionError
from dsh.session_persistence._integrity import Damage, IntegrityReport
from dsh.session_persistence.backend._backend import Backend
from dsh.session_persistence.backend._summary import summarize
from dsh.session_persistence.errors import PersistenceError

__all__ = ["salvaged", "verified"]


def verified(backend: Backend, session_id: str) -> IntegrityReport:
    """Return a backend's report; a sound log that no session accepts is damaged too.

    Raises:
        PersistenceError: As `Backend.verify` and `Backend.read`.
    """
    report = backend.verify(session_id)
    if not report.sound or not report.events:
        return report
    log = backend.read(session_id)
    problem = _refused(log.header, log.events)
    if problem is None:
        return report
    return replace(report, events=problem.seq or 0, damage=(problem,))


def salvaged(backend: Backend, session_id: str) -> IntegrityReport:
    """Salvage a session.

    Raises:
        PersistenceError: As `Backend.salvage`; also where the records are as they were written,
            and make no session.
    """
    report = backend.salvage(session_id)
    if report.damage:
        _close(backend, session_id)
    else:
        problem = next(iter(verified(backend, session_id).damage), None)
        if problem is not None:
            raise PersistenceError(
                f"nothing of session {session_id!r} is damaged in storage, but no session can "
                f"start from it: {problem.what} at seq {problem.seq}",
                hint="nothing was cut; its events can be read with `read_from`",
                location=report.location,
            )
    return report


def _close(backend: Backend, session_id: str) -> None:
    """Close the turn that a salvaged log breaks off in, while it is known that more was there."""
    log = backend.read(session_id)
    closers = interrupted_turn_closers(log.events, more_was_lost=True)
    if closers:
        backend.write(log.header, closers, summarize((*log.events, *closers)))


def _refused(header: SessionHeader, events: Iterable[SessionEvent]) -> Damage | None:
    """Return the first event that does not go on from those before it."""
    turns = Enclosure()
    seq = 0

    def fitting() -> Iterator[SessionEvent]:
        nonlocal seq
        for event in events:
            seq = event.seq
            try:
                turns.check(event.data, event.surface_op)
            except EnclosureError as error:
                # sessions may be made that do not ask for it
                if error.code != EnclosureError.NOT_ENCLOSED:
                    raise
            turns.advance(event.data)
            yield event

    try:
        Session(header.id, fitting(), header)
    except SessionError as error:
        return Damage(f"event {seq}", error.message, seq)
    return None
