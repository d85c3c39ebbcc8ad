"""Statements that change a session; each is part of its caller's transaction."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from dsh.session import SessionEvent, SessionHeader, TurnEnd
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_sqlite._event_rows import encode_event_rows
from dsh.session_persistence_sqlite._session_rows import (
    HEADER_COLUMNS,
    STATE_COLUMNS,
    SessionRow,
    State,
    header_values,
)

__all__ = ["cut_after", "insert_events", "insert_session", "renew_header", "set_state"]

_COLUMNS: Final = (*HEADER_COLUMNS, *STATE_COLUMNS)
_INSERT_SESSION: Final = (
    f"INSERT INTO sessions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_SET_STATE: Final = (
    f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in STATE_COLUMNS)} WHERE id = ?"
)
_SET_HEADER: Final = (
    f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in HEADER_COLUMNS)} WHERE id = ?"
)
_EVENT: Final = "session_id, type, seq, time, data, surface_op, source_event_seqs, ignorable, crc"
_INSERT_EVENT: Final = f"INSERT INTO events ({_EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP_CUT: Final = f"""\
INSERT INTO cut_events ({_EVENT}, cut)
SELECT {_EVENT}, (SELECT COALESCE(MAX(cut), 0) + 1 FROM cut_events WHERE session_id = ?1)
FROM events WHERE session_id = ?1 AND seq >= ?2"""


def insert_session(connection: sqlite3.Connection, header: SessionHeader, state: State) -> None:
    """Add a session's row."""
    values = (*header_values(header, secrets.token_hex(8)), *state.values())
    connection.execute(_INSERT_SESSION, values)


def renew_header(connection: sqlite3.Connection, header: SessionHeader) -> None:
    """Put another header in the place of one that is damaged."""
    values = header_values(header, secrets.token_hex(8))
    connection.execute(_SET_HEADER, (*values, header.id))


def set_state(connection: sqlite3.Connection, session_id: str, state: State) -> None:
    """Note what a session's log comes to."""
    connection.execute(_SET_STATE, (*state.values(), session_id))


def insert_events(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows of events."""
    connection.executemany(_INSERT_EVENT, rows)


def cut_after(
    connection: sqlite3.Connection, row: SessionRow, events: Sequence[SessionEvent]
) -> None:
    """Move everything behind `events` to the table `cut_events`.

    Args:
        connection: In a transaction.
        row: The session's row.
        events: What stays, from seq 0 on.
    """
    where = (row.id, len(events))
    connection.execute(_KEEP_CUT, where)
    connection.execute("DELETE FROM events WHERE session_id = ? AND seq >= ?", where)
    query = "SELECT COUNT(*) FROM events WHERE session_id = ?"
    if connection.execute(query, (row.id,)).fetchone() != (len(events),):
        # a damaged key left a row among those that stay, where it would be found again
        connection.execute("DELETE FROM events WHERE session_id = ?", (row.id,))
        insert_events(connection, encode_event_rows(row.id, events)[0])
    ends = [event.seq for event in events if isinstance(event.data, TurnEnd)]
    (size,) = connection.execute(
        "SELECT COALESCE(SUM(LENGTH(CAST(data AS BLOB)) + LENGTH(CAST(type AS BLOB))), 0) "
        "FROM events WHERE session_id = ?",
        (row.id,),
    ).fetchone()
    state = State(
        row.state.revision + 1, len(events), ends[-1] + 1 if ends else 0, size, summarize(events)
    )
    set_state(connection, row.id, state)
