"""Rows that are damaged, and what can be saved."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from dsh.session import (
    SESSION_FORMAT_VERSION,
    MessageTrigger,
    Session,
    SessionEvent,
    SessionHeader,
    TurnStart,
    UserSource,
)
from dsh.session.testing import worked_turn, write_turn
from dsh.session_persistence import (
    FormatUnsupported,
    PersistenceError,
    SessionCorrupt,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_sqlite._event_rows import event_crc, seed_of

END: Final = len(worked_turn())


# --- damage -------------------------------------------------------------------------------

WHOLE: Final = "SELECT *, hex(data) FROM (SELECT seq, crc, CAST(data AS BLOB) AS data FROM events)"

CHANGES: Final = {
    "data": "data = replace(data, 'e', 'f')",
    "no-json": "data = '{'",
    "no-text": "data = CAST(x'ff' AS TEXT)",
    "type": "type = 'turn/ends'",
    "time": "time = time + 1",
    "operation": "surface_op = '\"append\"'",
    "sources": "source_event_seqs = '[0]'",
    "mark": "ignorable = 1",
    "checksum": "crc = crc + 1",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seq", [2, END - 1])
def test_damage_up_to_the_last_turn_end_is_told_by_its_row(
    bench: Any, change: str, seq: int, open_turn: Any
) -> None:
    # case: SQ-07
    bench.filled(open_turn)
    bench.damage(seq, CHANGES[change])
    before = bench.run(WHOLE)
    backend = bench.backend()
    with pytest.raises(SessionCorrupt, match=f"row of events with seq {seq}") as caught:
        backend.read("s")
    assert caught.value.hint
    assert caught.value.location == str(bench.file)
    report = backend.verify("s")
    assert not report.sound
    assert [item.seq for item in report.damage] == [seq]
    assert report.events == seq
    assert bench.run(WHOLE) == before


def test_damage_that_a_sound_row_follows_refuses_an_open_turn(bench: Any, open_turn: Any) -> None:
    bench.filled(open_turn)
    bench.damage(END)
    with pytest.raises(SessionCorrupt, match=f"row of events with seq {END}"):
        bench.backend().read("s")


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "no-text"])
def test_a_damaged_last_row_is_kept_aside(
    bench: Any, change: str, make_header: Any, open_turn: Any
) -> None:
    # case: SQ-07
    bench.filled(open_turn)
    last, log = len(open_turn) - 1, open_turn[:-1]
    bench.damage(last, CHANGES[change])
    rows = bench.run("SELECT * FROM events WHERE seq >= ?", last)
    backend = bench.backend()
    report = backend.verify("s")
    assert [(item.seq, item.what) for item in report.damage] == [
        (last, "its checksum does not match")
    ]
    assert report.events == last
    backend.acquire("s")
    stored = backend.read("s")
    assert stored.events == log
    assert stored.rest is not None
    assert stored.lost
    backend.cut(stored)
    after = backend.read("s")
    assert (after.events, after.rest) == (log, None)
    assert after.revision != stored.revision
    kept = bench.run("SELECT * FROM cut_events ORDER BY seq")
    assert [(row[0], *row[2:]) for row in kept] == rows
    assert {row[1] for row in kept} == {1}
    (shown,) = backend.list(False)
    assert shown.summary == summarize(log)
    backend.write(make_header("s"), open_turn[last:], summarize(open_turn))
    assert backend.read("s").events == open_turn
    bench.damage(last)
    backend.cut(backend.read("s"))
    assert bench.run("SELECT cut, seq FROM cut_events ORDER BY cut, seq") == [(1, last), (2, last)]
    assert backend.verify("s").sound


@pytest.mark.parametrize("seq", [0, 3, END - 1])
def test_a_committed_row_that_is_missing_is_damage(bench: Any, seq: int, open_turn: Any) -> None:
    # case: SQ-07
    bench.filled(open_turn)
    bench.run("DELETE FROM events WHERE seq >= ? AND seq <= ?", seq, seq + 1)
    backend = bench.backend()
    with pytest.raises(SessionCorrupt, match=f"seq {seq}: the row is missing"):
        backend.read("s")
    assert [item.seq for item in backend.verify("s").damage] == [seq]


def test_all_rows_from_a_committed_one_on_missing_is_damage(bench: Any, open_turn: Any) -> None:
    # case: SQ-07
    bench.filled(open_turn)
    bench.run("DELETE FROM events WHERE seq >= ?", END - 1)
    backend = bench.backend()
    with pytest.raises(SessionCorrupt, match=f"seq {END - 1}: the row is missing"):
        backend.read("s")


def test_missing_rows_of_an_open_turn_are_a_tail(
    bench: Any, make_header: Any, open_turn: Any
) -> None:
    # case: SQ-07
    bench.filled(open_turn)
    bench.run("DELETE FROM events WHERE seq = ?", END + 1)
    backend = bench.backend()
    backend.acquire("s")
    log = backend.read("s")
    assert (log.events, log.rest is None) == (open_turn[: END + 1], False)
    backend.cut(log)
    backend.write(make_header("s"), open_turn[END + 1 :], summarize(open_turn))
    assert backend.read("s").events == open_turn


def test_rows_that_nobody_counted_are_a_tail(bench: Any, log: Any) -> None:
    bench.filled(log)
    bench.run(
        "INSERT INTO events SELECT session_id, ?, type, time, data, NULL, NULL, NULL, crc "
        "FROM events WHERE seq = 0",
        END,
    )
    stored = bench.backend().read("s")
    assert (stored.events, stored.rest is None) == (log, False)


def test_every_flipped_bit_of_a_row_is_noticed(bench: Any, open_turn: Any) -> None:
    bench.filled(open_turn)
    (row,) = bench.run("SELECT CAST(data AS BLOB) FROM events WHERE seq = 1")
    data = row[0]
    assert isinstance(data, bytes)
    backend = bench.backend()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        change = "UPDATE events SET data = CAST(? AS TEXT) WHERE seq = 1"
        bench.run(change, bytes(flipped))
        with pytest.raises(SessionCorrupt, match="seq 1: its checksum does not match"):
            backend.read("s")
    bench.run("UPDATE events SET data = CAST(? AS TEXT) WHERE seq = 1", data)
    assert backend.read("s").events == open_turn


@pytest.mark.parametrize("column", ["cwd", "created_at", "parent_session", "incarnation"])
def test_a_damaged_header_is_told_and_made_anew(bench: Any, column: str, log: Any) -> None:
    bench.filled()
    bench.filled(session_id="sound")
    bench.run(f"UPDATE sessions SET {column} = '7' WHERE id = 's'")
    backend = bench.backend()
    with pytest.raises(SessionCorrupt, match="checksum of its header"):
        backend.read("s")
    assert [item.header.id for item in backend.list(False)] == ["sound"]
    (hidden,) = backend.unreadable()
    assert (hidden.session_id, hidden.error.code) == ("s", SessionCorrupt.code)
    assert str(bench.file) in hidden.where
    report = backend.verify("s")
    assert (report.sound, report.events) == (False, len(log))
    saved = backend.salvage("s")
    (first, *rows) = Path(str(saved.copy)).read_text(encoding="utf-8").splitlines()
    assert str(json.loads(first)["session"][column]) == "7"
    assert len(rows) == len(log)
    stored = backend.read("s")
    assert stored.events == log
    assert stored.header == SessionHeader(id="s", created_at=log[0].time)
    assert backend.verify("s").sound
    assert list(backend.unreadable()) == []
    assert {item.header.id for item in backend.list(False)} == {"s", "sound"}


def test_without_an_event_a_damaged_header_cannot_be_made_anew(bench: Any) -> None:
    bench.filled()
    bench.run("UPDATE sessions SET cwd = '7'")
    bench.damage(0)
    backend = bench.backend()
    with pytest.raises(PersistenceError, match="nothing of session 's' can be saved"):
        backend.salvage("s")
    assert len(list(backend.unreadable())) == 1


def test_counters_that_do_not_match_are_shown_as_damage(bench: Any) -> None:
    bench.filled()
    bench.run("UPDATE sessions SET turns = turns + 1")
    backend = bench.backend()
    (shown,) = backend.list(False)
    assert shown.summary.damaged
    backend.salvage("s")
    (shown,) = backend.list(False)
    assert not shown.summary.damaged


def test_a_header_of_another_version_is_left_alone(bench: Any, make_header: Any, log: Any) -> None:
    # case: SQ-03
    backend = bench.backend()
    newer = replace(make_header("s"), version=SESSION_FORMAT_VERSION + 1)
    backend.write(newer, log, summarize(log))
    bench.damage(2)
    before = bench.run(WHOLE)
    for look in (backend.read, backend.verify, backend.salvage):
        with pytest.raises(FormatUnsupported, match="format"):
            look("s")
    assert list(backend.list(False)) == []
    (hidden,) = backend.unreadable()
    assert hidden.session_id == "s"
    assert isinstance(hidden.error, FormatUnsupported)
    assert hidden.error.hint
    assert bench.run(WHOLE) == before


@pytest.mark.parametrize(
    ("kind", "op"),
    [("far/away", '"append"'), ("turn/start", None), ("assistant/chunk", None)],
)
def test_a_sound_row_of_another_version_is_never_cut(
    bench: Any, kind: str, op: str | None, open_turn: Any
) -> None:
    bench.filled(open_turn)
    encoded = None if op is None else op.encode()
    crc = event_crc(seed_of("s"), END, kind.encode(), 1, b'{"x":1}', encoded, None, None)
    bench.run(
        "UPDATE events SET type = ?, time = 1, data = ?, surface_op = ?, crc = ? WHERE seq = ?",
        kind,
        '{"x":1}',
        op,
        crc,
        END,
    )
    before = bench.run(WHOLE)
    backend = bench.backend()
    for look in (backend.read, backend.salvage):
        with pytest.raises(FormatUnsupported, match=f"seq {END} ") as caught:
            look("s")
        assert caught.value.hint
        assert caught.value.location == str(bench.file)
    assert [item.seq for item in backend.verify("s").damage] == [END]
    bench.run("UPDATE sessions SET title = 'another'")
    with pytest.raises(FormatUnsupported):
        backend.salvage("s")
    assert bench.run(WHOLE) == before


# --- salvaging ----------------------------------------------------------------------------


@pytest.fixture
def two_turns(log: Any) -> tuple[SessionEvent, ...]:
    session = Session("two", log)
    write_turn(session, "again")
    return session.events[:]


def test_salvage_keeps_a_copy_and_cuts_before_the_damage(
    bench: Any, make_header: Any, two_turns: Any
) -> None:
    bench.filled(two_turns)
    bench.damage(END + 3, "data = CAST(x'ff7b' AS TEXT)")
    backend = bench.backend()
    backend.acquire("s")
    report = backend.salvage("s")
    assert not report.sound
    assert [item.seq for item in report.damage] == [END + 3]
    assert report.interrupted
    assert report.copy is not None
    lines = [json.loads(line) for line in Path(report.copy).read_text("utf-8").splitlines()]
    assert lines[0]["session"]["id"] == "s"
    rows = lines[1:]
    assert [row["seq"] for row in rows] == list(range(len(two_turns)))
    assert [row["seq"] for row in rows if "damage" in row] == [END + 3]
    assert rows[END + 3]["data"] == {"hex": "ff7b"}
    assert json.loads(rows[0]["data"])["turn"] == 1
    assert stat.S_IMODE(Path(report.copy).stat().st_mode) == 0o600
    read = backend.read("s")
    assert (read.events, read.rest) == (two_turns[: END + 3], None)
    assert backend.verify("s").sound
    (shown,) = backend.list(False)
    assert shown.summary == summarize(two_turns[: END + 3])
    backend.write(make_header("s"), two_turns[END + 3 :], summarize(two_turns))
    assert backend.read("s").events == two_turns
    bench.damage(4)
    again = backend.salvage("s")
    assert again.copy not in (None, report.copy)
    backend.remove("s")
    assert not Path(report.copy).exists()
    assert bench.run("SELECT COUNT(*) FROM cut_events") == [(0,)]


def test_salvage_mends_counters(bench: Any, make_header: Any, two_turns: Any) -> None:
    more = (SessionEvent(len(two_turns), 1, TurnStart(3, MessageTrigger(UserSource()))),)
    bench.filled(two_turns)
    bench.run("UPDATE sessions SET title = 'another'")
    backend = bench.backend()
    with pytest.raises(SessionCorrupt, match="checksum of its counters"):
        backend.read("s")
    with pytest.raises(SessionCorrupt, match="checksum of its counters"):
        backend.write(make_header("s"), more, summarize((*two_turns, *more)))
    report = backend.salvage("s")
    assert report.events == len(two_turns)
    assert backend.read("s").events == two_turns
    assert [item.summary for item in backend.list(False)] == [summarize(two_turns)]


def test_salvage_without_damage_does_nothing(bench: Any, open_turn: Any) -> None:
    bench.filled(open_turn)
    before = bench.bytes()
    backend = bench.backend()
    report = backend.salvage("s")
    assert (report.sound, report.copy, report.interrupted) == (True, None, True)
    bench.close()
    assert bench.bytes() == before
    with pytest.raises(StoredSessionNotFound):
        bench.backend().salvage("absent")


def test_nothing_to_salvage_changes_nothing(bench: Any, two_turns: Any) -> None:
    bench.filled(two_turns)
    bench.damage(0)
    before = bench.run("SELECT * FROM events")
    with pytest.raises(PersistenceError, match="not one event"):
        bench.backend().salvage("s")
    assert bench.run("SELECT * FROM events") == before


def test_salvage_without_room_for_a_copy_changes_nothing(bench: Any, two_turns: Any) -> None:
    bench.filled(two_turns)
    bench.damage(END + 3)
    before = bench.run("SELECT * FROM events")
    bench.file.with_name("sessions.sqlite.salvaged").write_text("in the way", encoding="utf-8")
    with pytest.raises(PersistenceError, match="no copy of session 's'"):
        bench.backend().salvage("s")
    assert bench.run("SELECT * FROM events") == before


def overwritten(file: Path, change: Callable[[bytearray, int], None]) -> None:
    """Change a page of the file that holds rows of events."""
    data = bytearray(file.read_bytes())
    place = data.rindex(b"turn/end")
    change(data, place - place % 4096)
    file.write_bytes(data)


def test_a_damaged_page_is_found(bench: Any, two_turns: Any) -> None:
    bench.filled(two_turns)

    def blank(data: bytearray, page: int) -> None:
        data[page : page + 4096] = bytes(os.urandom(4096))

    overwritten(bench.file, blank)
    backend = bench.backend()
    with pytest.raises(PersistenceError) as caught:
        backend.read("s")
    assert str(bench.file) in caught.value.message
    report = backend.verify("s")
    assert not report.sound
    assert str(bench.file) in {item.where for item in report.damage}


def test_the_file_is_checked_once_for_each_state_of_it(
    bench: Any, make_header: Any, log: Any, two_turns: Any
) -> None:
    bench.filled(two_turns)
    backend = bench.backend()
    statements: list[str] = []
    backend._database.connection.set_trace_callback(statements.append)

    def checks() -> int:
        return sum("quick_check" in statement for statement in statements)

    backend.verify("s")
    backend.verify("s")
    assert checks() == 1
    backend.write(make_header("t"), log, summarize(log))
    backend.verify("s")
    assert checks() == 2
    with bench.sql() as other:
        other.execute("UPDATE sessions SET archived = 1 WHERE id = 't'")
    backend.verify("s")
    assert checks() == 3
    backend._database.connection.set_trace_callback(None)


def test_cutting_counts_as_nobody_did(bench: Any, open_turn: Any) -> None:
    """The size a listing shows is right after a cut, too."""
    bench.filled(open_turn)
    last = len(open_turn) - 1
    (row,) = bench.run("SELECT SUM(LENGTH(data) + LENGTH(type)) FROM events WHERE seq < ?", last)
    bench.damage(last)
    backend = bench.backend()
    backend.acquire("s")
    backend.cut(backend.read("s"))
    assert [item.size for item in backend.list(False)] == [row[0]]


def test_connections_are_closed(bench: Any) -> None:
    backend = bench.backend()
    bench.close()
    with pytest.raises(PersistenceError, match="closed"):
        backend.read("s")
    assert sorted(path.name for path in bench.file.parent.iterdir()) == [
        "sessions.sqlite",
        "sessions.sqlite.locks",
    ]
