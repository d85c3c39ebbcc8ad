"""Sessions in a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from dsh.session import SessionEvent, SessionHeader
from dsh.session_persistence import (
    AppendRefused,
    FormatUnsupported,
    IntegrityReport,
    SessionCorrupt,
    SessionSnapshot,
    SessionSummary,
    StoredSessionExists,
    StoredSessionNotFound,
    UnreadableSession,
)
from dsh.session_persistence.backend import Backend, StoredLog
from dsh.session_persistence_sqlite._changes import (
    cut_after,
    insert_events,
    insert_session,
    set_state,
)
from dsh.session_persistence_sqlite._database import Database
from dsh.session_persistence_sqlite._event_rows import encode_event_rows
from dsh.session_persistence_sqlite._integrity import Examiner
from dsh.session_persistence_sqlite._locks import Locks
from dsh.session_persistence_sqlite._log_reader import (
    Tail,
    find_session,
    find_state,
    read_events,
    session_row,
)
from dsh.session_persistence_sqlite._session_rows import (
    EMPTY,
    SESSION_COLUMNS,
    SessionRow,
    revision_of,
)
from dsh.session_persistence_sqlite._storage_errors import as_storage_errors

__all__ = ["SqliteBackend"]


class SqliteBackend(Backend):
    """Keeps every session in one SQLite database, one row an event.

    Args:
        file: The database; beside it lie its write-ahead log and the folder of the locks.
        busy_timeout_s: How long to wait for a transaction of another process.
    """

    def __init__(self, file: Path, busy_timeout_s: float) -> None:
        self._file = file
        self._locks = Locks(file.with_name(file.name + ".locks"))
        self._database = Database(file, self._locks, busy_timeout_s)
        self._examiner = Examiner(self._database)

    def open(self) -> None:
        """See `Backend.open`."""
        self._database.open()

    def close(self) -> None:
        """See `Backend.close`."""
        try:
            self._database.close()
        finally:
            self._locks.release_all()

    # --- between processes ----------------------------------------------------------------

    def acquire(self, session_id: str) -> None:
        """See `Backend.acquire`."""
        with self._storage_errors(session_id, "locked"):
            self._locks.acquire(session_id)

    def release(self, session_id: str) -> None:
        """See `Backend.release`."""
        self._locks.release(session_id)

    # --- reading --------------------------------------------------------------------------

    def revision(self, session_id: str) -> str | None:
        """See `Backend.revision`."""
        with self._storage_errors(session_id, "read"):
            query = "SELECT incarnation, revision FROM sessions WHERE id = ?"
            found = self._database.connection.execute(query, (session_id,)).fetchone()
        return None if found is None else revision_of(self._database.store_id, *found)

    def read(self, session_id: str) -> StoredLog:
        """See `Backend.read`."""
        with self._storage_errors(session_id, "read"), self._database.reading() as connection:
            row = session_row(connection, session_id)
            header = row.header()
            events, tail = read_events(connection, row)
            revision = row.revision(self._database.store_id)
            return StoredLog(header, events, revision, tail, lost=tail is not None)

    def read_from(self, session_id: str, from_seq: int) -> tuple[SessionEvent, ...]:
        """See `Backend.read_from`; what lies before is not looked at."""
        with self._storage_errors(session_id, "read"), self._database.reading() as connection:
            row = session_row(connection, session_id)
            row.header()
            if from_seq >= row.state.events:
                return ()
            return read_events(connection, row, from_seq)[0]

    def list(self, archived: bool) -> Iterable[SessionSnapshot]:
        """See `Backend.list`."""
        query = f"SELECT {SESSION_COLUMNS} FROM sessions WHERE archived = ?"
        with as_storage_errors(self._file, "sessions could not be listed"):
            rows = self._database.connection.execute(query, (int(archived),)).fetchall()
        found: list[SessionSnapshot] = []
        for row in rows:
            with suppress(SessionCorrupt, FormatUnsupported):
                found.append(SessionRow.read(row).snapshot(self._database.store_id))
        return found

    def unreadable(self) -> Iterable[UnreadableSession]:
        """See `Backend.unreadable`."""
        query = f"SELECT {SESSION_COLUMNS} FROM sessions"
        with as_storage_errors(self._file, "sessions could not be listed"):
            rows = self._database.connection.execute(query).fetchall()
        looks = (SessionRow.read(row).unreadable(self._file) for row in rows)
        return [found for found in looks if found is not None]

    # --- writing --------------------------------------------------------------------------

    def write(
        self, header: SessionHeader, events: Sequence[SessionEvent], summary: SessionSummary
    ) -> None:
        """See `Backend.write`."""
        taken = False
        try:
            with self._storage_errors(header.id, "written"):
                taken = self._locks.acquire(header.id)
                self._write(header, tuple(events), summary)
        except BaseException:
            if taken:
                self._locks.release(header.id)
            raise

    def _write(
        self, header: SessionHeader, events: tuple[SessionEvent, ...], summary: SessionSummary
    ) -> None:
        session_id, start = header.id, events[0].seq
        rows, size = encode_event_rows(session_id, events)
        with self._database.writing() as connection:
            found = find_state(connection, session_id)
            if found is not None and start == 0:
                raise StoredSessionExists(session_id, str(self._file))
            before = EMPTY if found is None else found
            if start != before.events:
                raise AppendRefused(
                    f"session {session_id!r} has {before.events} events now, so a batch that "
                    f"starts at seq {start} does not continue it: another process wrote to it",
                    hint="load the session again",
                    location=str(self._file),
                )
            after = before.grown(events, size, summary)
            if found is None:
                insert_session(connection, header, after)
            else:
                set_state(connection, session_id, after)
            try:
                insert_events(connection, rows)
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
                    raise
                raise AppendRefused(
                    f"session {session_id!r} has rows already where a batch from seq {start} on "
                    "would stand",
                    hint="verify the session",
                    location=str(self._file),
                ) from error

    def cut(self, log: StoredLog) -> None:
        """See `Backend.cut`; the rows are moved to the table `cut_events`."""
        session_id = log.header.id
        with self._storage_errors(session_id, "repaired"), self._database.writing() as connection:
            found = find_session(connection, session_id)
            if found is None or found.revision(self._database.store_id) != log.revision:
                raise AppendRefused(
                    f"session {session_id!r} has changed since it was read",
                    hint="load it again",
                    location=str(self._file),
                )
            if isinstance(log.rest, Tail):
                cut_after(connection, found, log.events)

    def set_archived(self, session_id: str, archived: bool) -> None:
        """See `Backend.set_archived`."""
        with self._storage_errors(session_id, "changed"), self._database.writing() as connection:
            query = "UPDATE sessions SET archived = ? WHERE id = ?"
            if connection.execute(query, (int(archived), session_id)).rowcount == 0:
                raise StoredSessionNotFound(session_id)

    def remove(self, session_id: str) -> None:
        """See `Backend.remove`; its text leaves the file too, and the file shrinks."""
        with self._storage_errors(session_id, "removed"):
            with self._database.writing() as connection:
                query = "DELETE FROM sessions WHERE id = ?"
                if connection.execute(query, (session_id,)).rowcount == 0:
                    raise StoredSessionNotFound(session_id)
            self._examiner.remove_copies(session_id)
            self._locks.forget(session_id)
            with suppress(sqlite3.Error):  # it is gone already; this only gives the space back
                connection.executescript("PRAGMA incremental_vacuum")  # `execute` takes one step
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # --- for people -----------------------------------------------------------------------

    def verify(self, session_id: str) -> IntegrityReport:
        """See `Backend.verify`."""
        with self._storage_errors(session_id, "read"):
            return self._examiner.verify(session_id)

    def salvage(self, session_id: str) -> IntegrityReport:
        """See `Backend.salvage`; the copy is a file of JSON lines."""
        with self._storage_errors(session_id, "salvaged"):
            return self._examiner.salvage(session_id)

    def locate(self, header: SessionHeader) -> str | None:
        """Return the database."""
        return str(self._file)

    @property
    def place(self) -> str | None:
        """See `Backend.place`."""
        return str(self._file)

    def _storage_errors(self, session_id: str, attempted: str) -> AbstractContextManager[None]:
        return as_storage_errors(self._file, f"session {session_id!r} could not be {attempted}")
