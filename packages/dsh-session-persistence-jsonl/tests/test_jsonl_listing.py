"""Listings: fast because of an index, and true whatever has become of it."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsh.session import Session, SessionEvent, SessionHeader, UnknownData
from dsh.session.testing import write_turn
from dsh.session_persistence import SessionSnapshot
from dsh.session_persistence.backend import SummaryFold, summarize
from dsh.session_persistence_jsonl import JsonlBackend

Events = tuple[SessionEvent, ...]
FULL = SessionHeader(
    id="s", created_at=5, cwd="/w", parent_session="p", seed_length=3, origin="subagent",
    delegation_depth=1, agent_preset="x",
)  # fmt: skip


def shown(disk: Any, archived: bool = False) -> dict[str, SessionSnapshot]:
    """List in a process of its own."""
    backend = JsonlBackend(disk.root)
    try:
        return {item.header.id: item for item in backend.list(archived)}
    finally:
        backend.close()


def true_of(disk: Any, listed: dict[str, SessionSnapshot]) -> None:
    """Check each line of a listing against its log."""
    for session_id, item in listed.items():
        stored = disk.read(session_id)
        path = Path(str(JsonlBackend(disk.root).locate(stored.header)))
        assert item.header == stored.header
        assert item.summary == summarize(stored.events)
        assert item.revision == stored.revision
        if path.exists():
            assert item.size == path.stat().st_size


@pytest.fixture
def filled(disk: Any, turn: Events, two_turns: Events, open_turn: Events) -> Any:
    disk.fill("one", turn)
    disk.fill("two", two_turns, cwd=None)
    disk.fill("open", open_turn, compressed=True)
    disk.close()
    return disk


def test_a_listing_tells_what_the_logs_come_to(filled: Any) -> None:
    listed = shown(filled)
    assert set(listed) == {"one", "two", "open"}
    assert [listed[name].summary.turns for name in ("one", "two", "open")] == [1, 2, 2]
    assert listed["open"].summary.ended is None
    true_of(filled, listed)


def test_every_field_of_a_header_is_kept(disk: Any, turn: Events) -> None:
    backend = disk.open()
    backend.write(FULL, turn, summarize(turn))
    backend.close()
    for _ in range(2):
        assert shown(disk)["s"].header == FULL


def test_the_index_is_used(filled: Any) -> None:
    # case: JL-17
    expected = shown(filled)
    for path in filled.root.rglob("session.jsonl*"):
        known = path.stat()
        path.write_bytes(bytes(known.st_size))
        os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert shown(filled) == expected


@pytest.mark.parametrize(
    "harm", ["missing", "empty", "garbage", "cut", "flipped", "locked", "old", "odd"]
)
def test_a_harmed_index_changes_nothing(filled: Any, harm: str) -> None:
    path = filled.root / "index.sqlite"
    expected = shown(filled)
    db: sqlite3.Connection | None = None
    if harm == "missing":
        path.unlink()
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "garbage":
        path.write_bytes(b"no database at all" * 500)
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif harm == "flipped":
        data = path.read_bytes()
        path.write_bytes(data.replace(b"completed", b"compleXed"))
    else:
        db = sqlite3.connect(path, isolation_level=None)
        if harm == "locked":
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("BEGIN EXCLUSIVE")
        elif harm == "old":
            db.execute("DROP TABLE logs")
            db.execute("CREATE TABLE logs (path TEXT)")
        else:
            db.execute("DELETE FROM logs")
            db.execute("PRAGMA user_version = 99")
    assert shown(filled) == expected
    if db is not None:
        db.close()
    assert shown(filled) == expected
    assert shown(filled) == expected
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM logs").fetchone() == (3,)
    db.close()


def test_a_folder_in_the_place_of_the_index_changes_nothing(disk: Any, turn: Events) -> None:
    (disk.root / "index.sqlite").mkdir(parents=True)
    disk.fill("s", turn)
    true_of(disk, shown(disk))


def test_what_others_wrote_is_seen(filled: Any, turn: Events) -> None:
    watcher = filled.open()
    assert {item.summary.turns for item in watcher.list(False)} == {1, 2}
    session = Session("one", turn)
    for _ in range(3):
        write_turn(session)
    other = JsonlBackend(filled.root)
    header = other.read("one").header
    fold = SummaryFold()
    fold.add(session.events)
    other.write(header, session.events[len(turn) :], fold.summary)
    listed = {item.header.id: item for item in watcher.list(False)}
    assert listed["one"].summary.turns == 4
    other.close()
    true_of(filled, {item.header.id: item for item in watcher.list(False)})


def test_an_open_turn_reaches_the_index_when_the_store_lets_go(disk: Any, turn: Events) -> None:
    backend = disk.open()
    header = SessionHeader(id="s", created_at=1)
    backend.write(header, turn[:4], summarize(turn[:4]))
    assert shown(disk)["s"].summary.events == 4
    backend.write(header, turn[4:6], summarize(turn[:6]))
    backend.release("s")
    db = sqlite3.connect(disk.root / "index.sqlite")
    assert db.execute("SELECT events FROM logs").fetchall() == [(6,)]
    db.close()


def test_what_is_gone_leaves_the_index(filled: Any) -> None:
    path = next(filled.root.glob("--w--/one"))
    for item in path.iterdir():
        item.unlink()
    path.rmdir()
    backend = filled.open()
    more = SessionEvent(0, 1, UnknownData("a/b", {}))
    backend.write(SessionHeader(id="new", created_at=1), (more,), summarize((more,)))
    backend.close()
    (filled.root / "_no-cwd" / "new" / "session.jsonl").touch()
    assert set(shown(filled)) == {"two", "open", "new"}
    db = sqlite3.connect(filled.root / "index.sqlite")
    assert db.execute("SELECT count(*) FROM logs WHERE id = 'one'").fetchone() == (0,)
    db.close()


def test_archived_sessions_are_listed_apart(filled: Any) -> None:
    backend = filled.open()
    backend.acquire("one")
    backend.set_archived("one", True)
    backend.close()
    assert set(shown(filled)) == {"two", "open"}
    listed = shown(filled, archived=True)
    assert listed["one"].archived
    assert listed["one"].summary.turns == 1
    assert set(shown(filled)) == {"two", "open"}


def test_what_is_no_session_is_left_out(filled: Any) -> None:
    # case: JL-12
    (filled.root / "stray").mkdir()
    (filled.root / "--file--").write_bytes(b"")
    for name, content in (("a", b""), ("b", b'{"type":"turn/start"}\n'), ("c", None)):
        folder = filled.root / "--w--" / name
        folder.mkdir()
        if content is not None:
            (folder / "session.jsonl").write_bytes(content)
    (filled.root / "--w--" / "d").mkdir()
    (filled.root / "--w--" / "d" / "session.jsonl").mkdir()
    (filled.root / "--w--" / "loose.jsonl").write_bytes(b"")
    backend = filled.open()
    for _ in range(2):
        assert {item.header.id for item in backend.list(False)} == {"one", "two", "open"}


def test_a_damaged_session_is_listed_with_what_can_be_read(filled: Any) -> None:
    path = next(filled.root.glob("--w--/one/session.jsonl"))
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    listed = shown(filled)
    assert listed["one"].summary.turns == 1
    assert listed["one"].summary.ended is None


def test_times_and_sizes_decide(filled: Any, turn: Events) -> None:
    path = next(filled.root.glob("--w--/one/session.jsonl"))
    before = shown(filled)["one"]
    os.utime(path, ns=(1, 1))
    after = shown(filled)["one"]
    assert after.revision != before.revision
    assert replace(after, revision=before.revision) == before
