"""Looking at every row of a session, and saving what can be saved."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dsh.paths import StateFileError, write_private
from dsh.session import SessionEvent, SessionHeader, interrupted_turn_closers
from dsh.session_persistence import (
    AppendRefused,
    Damage,
    FormatUnsupported,
    IntegrityReport,
    PersistenceError,
)
from dsh.session_persistence_sqlite._changes import cut_after, renew_header
from dsh.session_persistence_sqlite._database import Database
from dsh.session_persistence_sqlite._event_rows import (
    EVENT_COLUMNS,
    EventColumns,
    RowDamaged,
    event_reader,
)
from dsh.session_persistence_sqlite._locks import file_stem
from dsh.session_persistence_sqlite._log_reader import event_rows, session_row
from dsh.session_persistence_sqlite._session_rows import HEADER_DAMAGE, STATE_DAMAGE, SessionRow
from dsh.session_persistence_sqlite._storage_errors import is_damage

__all__ = ["Examiner"]

_NAMES: Final = EVENT_COLUMNS.split(", ")


@dataclass(slots=True)
class _Findings:
    row: SessionRow
    events: list[SessionEvent] = field(default_factory=list[SessionEvent])
    """What can be read before the first thing that is wrong."""
    damage: list[Damage] = field(default_factory=list[Damage])
    """What is wrong with this session's rows."""
    unsupported: FormatUnsupported | None = None
    """Why the first thing that cannot be read is no damage."""


class Examiner:
    """Verifies and salvages sessions of one database.

    Args:
        database: The database, open when a method is called.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._copies = database.file.with_name(database.file.name + ".salvaged")
        self._checked: tuple[int, int] | None = None
        self._file_damage: tuple[Damage, ...] = ()

    def verify(self, session_id: str) -> IntegrityReport:
        """See `Backend.verify`."""
        with self._database.reading() as connection:
            findings = self._examine(connection, session_id)
            return self._report(connection, findings)

    def salvage(self, session_id: str) -> IntegrityReport:
        """See `Backend.salvage`."""
        with self._database.reading() as connection:
            findings = self._examine(connection, session_id)
            report = self._report(connection, findings)
            row = findings.row
            if not findings.damage:
                return report
            if findings.unsupported is not None:
                raise findings.unsupported  # another version reads it, so nothing is cut
            if not findings.events:
                raise PersistenceError(
                    f"nothing of session {session_id!r} can be saved: not one event before the "
                    "first damage can be read",
                    hint="the rows can be looked at with `sqlite3`; remove the session to be rid "
                    "of it",
                    location=str(self._database.file),
                )
            copy = self._keep_copy(connection, row)
        with self._database.writing() as connection:
            if session_row(connection, session_id) != row:
                raise AppendRefused(
                    f"session {session_id!r} has changed since it was looked at",
                    hint="try again",
                    location=str(self._database.file),
                )
            if not row.header_sound:
                # any column may be the damaged one, so none is taken over; the copy has them
                began = findings.events[0].time
                renew_header(connection, SessionHeader(id=row.id, created_at=began))
            cut_after(connection, row, findings.events)
        return replace(report, copy=str(copy))

    def remove_copies(self, session_id: str) -> None:
        """Delete the copies that were kept of a session."""
        for path in self._copies_of(session_id):
            path.unlink(missing_ok=True)

    def _examine(self, connection: sqlite3.Connection, session_id: str) -> _Findings:
        row = session_row(connection, session_id)
        findings = _Findings(row)
        where = f"row of sessions with id {session_id!r}"
        if row.header_sound:
            row.header()  # what another version wrote is not looked at
        else:
            findings.damage.append(Damage(where, HEADER_DAMAGE))
        if not row.state_sound:
            findings.damage.append(Damage(where, STATE_DAMAGE))
        try:
            self._examine_rows(connection, findings)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            seq = len(findings.events)
            what = f"the rows from here on cannot be read: {error}"
            findings.damage.append(Damage(f"events, seq {seq}", what, seq))
        return findings

    def _examine_rows(self, connection: sqlite3.Connection, findings: _Findings) -> None:
        row = findings.row
        # counters that cannot be relied on protect nothing and demand nothing
        wanted = row.state.events if row.state_sound else None
        read = event_reader(row.id)
        next_seq = 0
        whole = True
        for columns in event_rows(connection, row.id):
            seq = columns[0]
            if not isinstance(seq, int):
                whole = self._wrong(findings, next_seq, "its number is damaged")
                continue
            if seq > next_seq:
                whole = self._wrong(findings, next_seq, _missing(next_seq, seq - 1))
            try:
                event = read(*columns)
            except RowDamaged as error:
                whole = self._wrong(findings, seq, str(error))
            except FormatUnsupported as error:
                if whole:
                    findings.unsupported = error
                whole = self._wrong(findings, seq, error.message)
            else:
                if wanted is not None and seq >= wanted:
                    whole = self._wrong(findings, seq, "nobody wrote the row")
                elif whole:
                    findings.events.append(event)
            next_seq = seq + 1
        if wanted is not None and next_seq < wanted:
            self._wrong(findings, next_seq, _missing(next_seq, wanted - 1))

    def _wrong(self, findings: _Findings, seq: int, what: str) -> bool:
        """Note what is wrong at a place; the log is not whole from there on."""
        findings.damage.append(Damage(f"row of events with seq {seq}", what, seq))
        return False

    def _report(self, connection: sqlite3.Connection, findings: _Findings) -> IntegrityReport:
        return IntegrityReport(
            findings.row.id,
            str(self._database.file),
            len(findings.events),
            (*findings.damage, *self._check_file(connection)),
            interrupted=bool(interrupted_turn_closers(findings.events)),
        )

    def _check_file(self, connection: sqlite3.Connection) -> tuple[Damage, ...]:
        """Have SQLite look at the whole file, once for each state of it."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        state = (version, connection.total_changes)
        if self._checked != state:
            try:
                lines = [line for (line,) in connection.execute("PRAGMA quick_check")]
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                lines = [str(error).encode()]
            self._file_damage = tuple(
                Damage(str(self._database.file), line.decode(errors="replace"))
                for line in lines
                if line != b"ok"
            )
            self._checked = state
        return self._file_damage

    def _keep_copy(self, connection: sqlite3.Connection, row: SessionRow) -> Path:
        """Write every row that can be read to a file of JSON lines."""
        taken = {path.name for path in self._copies_of(row.id)}
        stem = file_stem(row.id)
        number = next(n for n in range(1, len(taken) + 2) if f"{stem}.{n}.jsonl" not in taken)
        path = self._copies / f"{stem}.{number}.jsonl"
        lines = [json.dumps({"session": row.columns})]
        lines.extend(_copied_rows(connection, row.id))
        try:
            write_private(path, "".join(f"{line}\n" for line in lines).encode())
        except StateFileError as error:
            raise PersistenceError(
                f"no copy of session {row.id!r} could be kept, so nothing was changed: "
                f"{error.message}",
                location=str(path),
            ) from error
        return path

    def _copies_of(self, session_id: str) -> list[Path]:
        if not self._copies.is_dir():
            return []
        return list(self._copies.glob(f"{file_stem(session_id)}.*.jsonl"))


def _missing(first: int, last: int) -> str:
    return "the row is missing" if first == last else f"the rows up to seq {last} are missing"


def _copied_rows(connection: sqlite3.Connection, session_id: str) -> Iterator[str]:
    read = event_reader(session_id)
    try:
        for columns in event_rows(connection, session_id):
            line: dict[str, Any] = {
                name: _readable(value) for name, value in zip(_NAMES, columns, strict=True)
            }
            problem = _problem(columns, read)
            if problem is not None:
                line["damage"] = problem
            yield json.dumps(line)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        yield json.dumps({"damage": f"the rows from here on cannot be read: {error}"})


def _problem(columns: EventColumns, read: Callable[..., SessionEvent]) -> str | None:
    try:
        read(*columns)
    except (RowDamaged, FormatUnsupported) as error:
        return str(error)
    return None


def _readable(value: object) -> object:
    """Return a value of a column for JSON; text that is none as its bytes in hexadecimal."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    return value
