"""Databases damaged page by page, and rows that somebody changed with SQL.

Whatever is read is the beginning of what was written, or a refusal that names the file.
`DSH_EXHAUSTIVE=1` tries every place, not a sample.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsh.session import SessionEvent, SessionHeader
from dsh.session.testing import worked_turn
from dsh.session_persistence import (
    FormatUnsupported,
    PersistenceError,
    SessionCorrupt,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_sqlite import SqliteBackend

Events = tuple[SessionEvent, ...]
STRIDE = 1 if os.environ.get("DSH_EXHAUSTIVE") else 7
LOG, OTHER = worked_turn("mine"), worked_turn("theirs")
PAGE = 4096


def header(session_id: str) -> SessionHeader:
    return SessionHeader(id=session_id, created_at=1_700_000_000_000, cwd="/w")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A closed database with two sessions."""
    file = tmp_path / "whole" / "sessions.sqlite"
    file.parent.mkdir()
    backend = SqliteBackend(file, 5.0)
    backend.open()
    for session_id, log in (("s", LOG), ("o", OTHER)):
        for at in range(0, len(log), 6):
            backend.write(header(session_id), log[at : at + 6], summarize(log[: at + 6]))
    backend.close()
    return file


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "tried"
    folder.mkdir()
    return folder / "sessions.sqlite"


def emptied(file: Path) -> None:
    """Remove everything beside a database, and itself."""
    shutil.rmtree(file.parent)
    file.parent.mkdir()


def outcome(file: Path) -> str:
    """Read, salvage, read again; fail if anything of it is not as it should be."""
    backend = SqliteBackend(file, 5.0)
    try:
        backend.open()
    except PersistenceError as error:
        return _named(error, file, "unopened")
    try:
        return _read(backend, file)
    finally:
        backend.close()


def _read(backend: SqliteBackend, file: Path) -> str:
    try:
        read = backend.read("s")
    except StoredSessionNotFound:
        return "nothing"
    except (SessionCorrupt, FormatUnsupported) as error:
        return _salvaged(backend, file, error)
    except PersistenceError as error:
        return _named(error, file, "unreadable")
    assert read.header == header("s")
    assert read.events == LOG[: len(read.events)], "other events than were written"
    if read.rest is None:
        return "whole" if read.events == LOG else "shorter"
    return "cut"


def _salvaged(backend: SqliteBackend, file: Path, error: PersistenceError) -> str:
    if isinstance(error, FormatUnsupported):
        return _named(error, file, "unsupported")
    try:
        assert backend.verify("s").damage
        backend.acquire("s")
        report = backend.salvage("s")
    except PersistenceError as refusal:
        return _named(refusal, file, "refused")
    again = backend.read("s")
    assert (again.events, again.rest) == (LOG[: report.events], None)
    return "salvaged"


def _named(error: PersistenceError, file: Path, told: str) -> str:
    assert str(file.parent) in f"{error} {error.location}" or "'s'" in str(error), error
    return told


def test_pages_of_zeros(stored: Path, place: Path) -> None:
    whole = stored.read_bytes()
    for at in range(0, len(whole), PAGE):
        emptied(place)
        place.write_bytes(whole[:at] + bytes(PAGE) + whole[at + PAGE :])
        assert outcome(place) not in {"shorter", "nothing"} or at == 0, at


@pytest.mark.parametrize("byte", [None, b"\n", b'"', b"\0"])
def test_any_byte_changed(stored: Path, place: Path, byte: bytes | None) -> None:
    whole = stored.read_bytes()
    outcomes: set[str] = set()
    for at in range(0, len(whole), 31 * STRIDE):
        changed = bytes([whole[at] ^ 1 << at % 8]) if byte is None else byte
        emptied(place)
        place.write_bytes(whole[:at] + changed + whole[at + 1 :])
        outcomes.add(outcome(place))
    assert "shorter" not in outcomes
    assert outcomes & {"salvaged", "refused", "unreadable"}


def test_a_journal_cut_at_any_sector(tmp_path: Path, place: Path) -> None:
    file = tmp_path / "crashed.sqlite"
    backend = SqliteBackend(file, 5.0)
    backend.open()
    acknowledged: list[tuple[int, int]] = []
    journal = file.with_name(file.name + "-wal")
    for at in range(0, len(LOG), 3):
        backend.write(header("s"), LOG[at : at + 3], summarize(LOG[: at + 3]))
        acknowledged.append((journal.stat().st_size, len(LOG[: at + 3])))
    main, whole = file.read_bytes(), journal.read_bytes()
    backend.close()
    outcomes: set[str] = set()
    for size in range(0, len(whole), 512 * STRIDE):
        emptied(place)
        place.write_bytes(main)
        place.with_name(place.name + "-wal").write_bytes(whole[:size])
        least = max((count for end, count in acknowledged if end <= size), default=0)
        told = outcome(place)
        assert told in {"whole", "shorter", "nothing", "unopened", "unsupported"}, (size, told)
        assert told in {"whole", "shorter"} or least == 0, (size, told)
        outcomes.add(told)
    assert "shorter" in outcomes


def _rows_gone() -> Iterator[str]:
    for event in LOG:
        yield f"DELETE FROM events WHERE session_id = 's' AND seq = {event.seq}"
        yield f"DELETE FROM events WHERE session_id = 's' AND seq >= {event.seq}"


def _rows_changed() -> Iterator[str]:
    for event in LOG:
        where = f"WHERE session_id = 's' AND seq = {event.seq}"
        for change in (
            "seq = seq + 1000",
            "seq = -1 - seq",
            "type = 'turn/start'",
            "type = type || ' '",
            "time = time + 1",
            "data = '{}'",
            "data = data || ' '",
            "surface_op = 'append'",
            "source_event_seqs = '[0]'",
            "ignorable = 1",
            "crc = crc + 1",
            "crc = 0",
        ):
            yield f"UPDATE events SET {change} {where}"


def _rows_of_another() -> Iterator[str]:
    columns = "seq, type, time, data, surface_op, source_event_seqs, ignorable, crc"
    for event in LOG:
        yield (
            f"INSERT OR REPLACE INTO events (session_id, {columns}) SELECT 's', {columns} "
            f"FROM events WHERE session_id = 'o' AND seq = {event.seq}"
        )
        yield (
            f"INSERT OR REPLACE INTO events (session_id, {columns}) SELECT 's', {event.seq + 1}, "
            f"{columns[5:]} FROM events WHERE session_id = 's' AND seq = {event.seq}"
        )


def _counters() -> Iterator[str]:
    for column in ("events", "committed", "revision", "size", "turns", "updated_at", "state_crc"):
        yield f"UPDATE sessions SET {column} = {column} - 1 WHERE id = 's'"
    for change in ("created_at = 1", "cwd = '/x'", "version = 0", "origin = 'x'", "header_crc = 0"):
        yield f"UPDATE sessions SET {change} WHERE id = 's'"
    yield "UPDATE sessions SET id = 'x' WHERE id = 's'"


@pytest.mark.parametrize("changes", [_rows_gone, _rows_changed, _rows_of_another, _counters])
def test_rows_that_were_changed_with_sql(
    stored: Path, place: Path, changes: Callable[[], Iterator[str]]
) -> None:
    outcomes: set[str] = set()
    for number, statement in enumerate(changes()):
        if number % STRIDE and changes is _rows_changed:
            continue
        emptied(place)
        shutil.copyfile(stored, place)
        connection = sqlite3.connect(place, isolation_level=None)
        before = list(connection.iterdump())
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
        same = before == list(connection.iterdump())
        connection.close()
        told = outcome(place)
        outcomes.add(told)
        assert told != "shorter", statement
        assert told != "whole" or same, statement
    assert outcomes & {"salvaged", "refused"}
