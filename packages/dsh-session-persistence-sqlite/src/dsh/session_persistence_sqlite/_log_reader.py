"""A session's log as it is read from its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from dsh.session import SessionEvent
from dsh.session_persistence import SessionCorrupt, StoredSessionNotFound
from dsh.session_persistence_sqlite._event_rows import (
    EVENT_COLUMNS,
    EventColumns,
    RowDamaged,
    event_reader,
)
from dsh.session_persistence_sqlite._session_rows import (
    SESSION_COLUMNS,
    STATE_DAMAGE,
    STATE_SELECTION,
    SessionRow,
    State,
    state_of,
)

__all__ = [
    "Tail",
    "event_rows",
    "find_session",
    "find_state",
    "place",
    "read_events",
    "session_row",
]


@dataclass(frozen=True, slots=True)
class Tail:
    """What follows the last event that can be read: the last row, or one that nobody wrote."""

    start: int
    """The first seq of it."""


def find_session(connection: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """Return a session's row, or None if there is none."""
    query = f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?"
    row = connection.execute(query, (session_id,)).fetchone()
    return None if row is None else SessionRow.read(row)


def session_row(connection: sqlite3.Connection, session_id: str) -> SessionRow:
    """Return a session's row.

    Raises:
        StoredSessionNotFound: There is none.
    """
    found = find_session(connection, session_id)
    if found is None:
        raise StoredSessionNotFound(session_id)
    return found


def find_state(connection: sqlite3.Connection, session_id: str) -> State | None:
    """Return what a session's log comes to, or None if there is no session.

    Raises:
        SessionCorrupt: It cannot be relied on.
    """
    query = f"SELECT {STATE_SELECTION} FROM sessions WHERE id = ?"
    row = connection.execute(query, (session_id,)).fetchone()
    if row is None:
        return None
    state = state_of(row)
    if state is None:
        raise _damaged_state(session_id)
    return state


def _damaged_state(session_id: str) -> SessionCorrupt:
    return SessionCorrupt(f"session {session_id!r}: {STATE_DAMAGE} (row of sessions)")


def event_rows(
    connection: sqlite3.Connection, session_id: str, start: int = 0
) -> Iterator[EventColumns]:
    """Return the rows of a log from a seq on, in order."""
    return connection.execute(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE session_id = ? AND seq >= ? ORDER BY seq",
        (session_id, start),
    )


def read_events(
    connection: sqlite3.Connection, row: SessionRow, start: int = 0
) -> tuple[tuple[SessionEvent, ...], Tail | None]:
    """Read a log from a seq on, as far as it can be relied on.

    Returns:
        The events, and what follows them; a tail can be removed.

    Raises:
        SessionCorrupt: Something up to the last `turn/end`, or before the last row, is damaged;
            names the row.
        FormatUnsupported: As `event_reader`.
    """
    if not row.state_sound:
        raise _damaged_state(row.id)
    events: list[SessionEvent] = []
    seq, stored = start, row.state.events
    problem: str | None = None
    read = event_reader(row.id)
    for columns in event_rows(connection, row.id, start):
        if columns[0] != seq or seq == stored:
            problem = "nobody wrote the row" if seq == stored else "the row is missing"
            break
        try:
            events.append(read(*columns))
        except RowDamaged as error:
            problem = str(error)
            break
        seq += 1
    if problem is None and seq < stored:
        problem = "the row is missing"
    if problem is None:
        return tuple(events), None
    if seq == 0 or seq < max(row.state.committed, stored - 1):
        raise SessionCorrupt(f"{place(row.id, seq)}: {problem}")
    return tuple(events), Tail(seq)


def place(session_id: str, seq: int) -> str:
    """Name a row of the log."""
    return f"session {session_id!r}, row of events with seq {seq}"
