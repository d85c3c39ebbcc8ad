"""Logs in rows: what comes back, what is refused, what a removal leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from dsh.session import (
    APPEND,
    ContextMessage,
    PluginSource,
    Replace,
    Session,
    SessionEvent,
    SessionHeader,
    UnknownData,
)
from dsh.session.testing import worked_turn, write_turn
from dsh.session_persistence import (
    AppendRefused,
    PersistenceError,
    RawUnsupported,
    SessionCorrupt,
    StoredSessionExists,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import summarize

END: Final = len(worked_turn())


# --- writing ------------------------------------------------------------------------------


def test_every_column_comes_back(bench: Any, make_header: Any, log: Any) -> None:
    stored = (
        *log[:2],
        SessionEvent(2, 5, UnknownData("far/away", {"a": "\\u0000\u2028ü"}, ignorable=True)),
        SessionEvent(3, 6, UnknownData("far/away", {"deep": [[], {}]})),
    )
    backend = bench.backend()
    full = SessionHeader(
        id="s",
        created_at=1,
        cwd="/ä",
        parent_session="p",
        seed_length=4,
        origin="subagent",
        delegation_depth=2,
        agent_preset="calm",
    )
    backend.write(full, stored, summarize(stored))
    bench.close()
    read = bench.backend().read("s")
    assert (read.header, read.events, read.rest) == (full, stored, None)
    rows = bench.run("SELECT seq, type, time, ignorable FROM events ORDER BY seq")
    assert rows[2:] == [(2, "far/away", 5, 1), (3, "far/away", 6, None)]


def test_surface_columns_are_readable_text(bench: Any, make_header: Any) -> None:
    session = Session("s", enclosed=False)
    write_turn(session)
    source = PluginSource("p")
    first = session.append(ContextMessage((), source), APPEND)
    second = session.append(ContextMessage((), source), Replace(first.seq, first.seq), [first.seq])
    backend = bench.backend()
    events = session.events[:]
    backend.write(make_header("s"), events, summarize(events))
    assert backend.read("s").events == events
    (row,) = bench.run(f"SELECT surface_op, source_event_seqs FROM events WHERE seq = {second.seq}")
    assert json.loads(row[0]) == {"op": "replace", "start": first.seq, "end": first.seq}
    assert json.loads(row[1]) == [first.seq]


def test_a_stale_batch_is_refused(bench: Any, make_header: Any, log: Any) -> None:
    # case: SQ-05
    one, other = bench.backend(), bench.backend()
    one.write(make_header("s"), log[:5], summarize(log[:5]))
    one.release("s")
    other.acquire("s")
    other.write(make_header("s"), log[5:8], summarize(log[:8]))
    other.release("s")
    one.acquire("s")
    for start in (5, 6, 9):
        with pytest.raises(AppendRefused, match="has 8 events now") as caught:
            one.write(make_header("s"), log[start:], summarize(log))
        assert caught.value.code == AppendRefused.NOT_CONTIGUOUS
    with pytest.raises(StoredSessionExists):
        one.write(make_header("s"), log, summarize(log))
    assert one.read("s").events == log[:8]


def test_a_stale_repair_is_refused(bench: Any, make_header: Any, open_turn: Any) -> None:
    # case: SQ-05
    bench.filled(open_turn)
    bench.damage(END + 1)
    one, other = bench.backend(), bench.backend()
    one.acquire("s")
    stale = one.read("s")
    assert stale.rest is not None
    one.cut(one.read("s"))
    one.write(make_header("s"), open_turn[END + 1 :], summarize(open_turn))
    with pytest.raises(AppendRefused, match="has changed"):
        other.cut(stale)
    assert other.read("s").events == open_turn


def test_rows_in_the_way_are_not_overwritten(bench: Any, make_header: Any, log: Any) -> None:
    # case: SQ-05
    bench.filled(log[:5])
    bench.run(
        "INSERT INTO events SELECT session_id, 6, type, time, data, NULL, NULL, NULL, 0 "
        "FROM events WHERE seq = 0"
    )
    backend = bench.backend()
    backend.acquire("s")
    with pytest.raises(AppendRefused, match="has rows already"):
        backend.write(make_header("s"), log[5:], summarize(log))
    assert bench.run("SELECT MAX(seq), COUNT(*) FROM events") == [(6, 6)]


def test_a_write_that_fails_lets_go_of_a_new_session(
    bench: Any, make_header: Any, log: Any
) -> None:
    one, other = bench.backend(busy_s=0.05), bench.backend()
    with bench.sql() as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(PersistenceError):
            one.write(make_header("s"), log, summarize(log))
        blocker.execute("COMMIT")
    other.write(make_header("s"), log, summarize(log))
    assert other.read("s").events == log


# --- revisions, seeking, removing ---------------------------------------------------------


def test_revisions_tell_stores_and_sessions_apart(
    bench: Any, tmp_path: Path, make_header: Any, log: Any
) -> None:
    # case: SQ-10
    backend = bench.backend()
    backend.write(make_header("s"), log, summarize(log))
    first = backend.revision("s")
    assert backend.revision("absent") is None
    backend.remove("s")
    assert backend.revision("s") is None
    backend.write(make_header("s"), log, summarize(log))
    again = backend.revision("s")
    backend.set_archived("s", True)
    assert backend.revision("s") == again == backend.read("s").revision
    bench.file = tmp_path / "other.sqlite"
    elsewhere = bench.backend()
    elsewhere.write(make_header("s"), log, summarize(log))
    assert len({first, again, elsewhere.revision("s")}) == 3


def test_a_listing_is_one_look_at_the_sessions(bench: Any, make_header: Any) -> None:
    backend = bench.backend()
    logs = [worked_turn(f"prompt {number}") for number in range(5)]
    for number, log in enumerate(logs):
        backend.write(make_header(f"s{number}"), log, summarize(log))
    backend.set_archived("s3", True)
    statements: list[str] = []
    backend._database.connection.set_trace_callback(statements.append)
    shown = list(backend.list(False))
    backend._database.connection.set_trace_callback(None)
    assert len(statements) == 1
    assert [item.summary for item in shown] == [summarize(logs[number]) for number in (0, 1, 2, 4)]
    assert [item.revision for item in shown] == [backend.revision(i.header.id) for i in shown]
    (size,) = {item.size for item in shown}
    assert size is not None
    assert 0 < size < 10_000
    assert [item.header.id for item in backend.list(True)] == ["s3"]


def test_reading_from_a_place_looks_at_nothing_before_it(bench: Any, open_turn: Any) -> None:
    bench.filled(open_turn)
    bench.damage(2)
    backend = bench.backend()
    assert backend.read_from("s", 3) == open_turn[3:]
    assert backend.read_from("s", len(open_turn)) == ()
    assert backend.read_from("s", 10**6) == ()
    with pytest.raises(SessionCorrupt, match="seq 2"):
        backend.read_from("s", 2)
    with pytest.raises(StoredSessionNotFound):
        backend.read_from("absent", 10**6)


def test_removing_takes_every_row_and_the_text(bench: Any, make_header: Any, log: Any) -> None:
    # case: SQ-06
    secret = worked_turn("only-for-me " * 500)
    backend = bench.backend()
    backend.write(make_header("s"), secret, summarize(secret))
    backend.write(make_header("t"), log, summarize(log))
    backend.remove("s")
    assert bench.run("SELECT DISTINCT session_id FROM events") == [("t",)]
    kept = b"".join(bench.bytes().values())
    assert b"only-for-me" not in kept
    size = bench.file.stat().st_size
    assert bench.run("PRAGMA freelist_count") == [(0,)]
    assert size < 60_000
    with pytest.raises(StoredSessionNotFound):
        backend.remove("s")
    bench.close()
    with bench.sql() as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM sessions WHERE id = 't'")
        assert connection.execute("SELECT COUNT(*) FROM events").fetchone() == (0,)


def test_there_is_no_text_to_export(bench: Any) -> None:
    bench.filled()
    backend = bench.backend()
    assert not backend.supports_raw
    with pytest.raises(RawUnsupported):
        backend.read_raw("s")
