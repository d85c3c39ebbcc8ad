"""The database: how it is opened and made, what is refused, and what failing disks come to."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dsh.core import App
from dsh.session import LiveSessions
from dsh.session.testing import worked_turn, write_turn
from dsh.session_persistence import FormatUnsupported, PersistenceError, SessionPersistence
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_sqlite import SqliteBackend, SqlitePersistence
from dsh.session_persistence_sqlite._database import check_version, set_up
from dsh.session_persistence_sqlite._schema import APPLICATION_ID, SCHEMA_VERSION
from dsh.testkit import needs_program

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="giving files away needs root"
)


# --- opening ------------------------------------------------------------------------------


async def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    # case: SQ-01
    file = tmp_path / "deep" / "sessions.sqlite"
    async with App() as app:
        await app.mount(LiveSessions).settled()
        mount = app.mount(SqlitePersistence, {"file": str(file)})
        await mount.settled()
        assert app[SessionPersistence].locate(app[LiveSessions].prepare("s").header) == str(file)
        await mount.dispose()
        assert not file.parent.exists()
        await app.mount(SqlitePersistence, {"file": str(file)}).settled()
        session = app[LiveSessions].create(app.ctx, "s")
        write_turn(session)
        await app[LiveSessions].flush(session)
        assert file.exists()


async def test_the_database_is_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(SqlitePersistence).settled()
        assert await app[SessionPersistence].list() == ()
    assert (tmp_path / "home" / "sessions.sqlite").is_file()


def test_the_connection_is_safe_and_durable(bench: Any) -> None:
    # case: SQ-02
    connection = bench.backend()._database.connection
    wanted = {
        "journal_mode": b"wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "trusted_schema": 0,
        "mmap_size": 0,
        "secure_delete": 1,
        "application_id": APPLICATION_ID,
        "user_version": SCHEMA_VERSION,
    }
    found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}
    assert found == wanted
    tables = connection.execute("PRAGMA table_list").fetchall()
    ours = [row for row in tables if not row[1].startswith(b"sqlite_")]
    assert len(ours) == 4
    assert all(row[5] == 1 for row in ours), "a table is not STRICT"


def test_a_database_that_keeps_no_write_ahead_log_is_refused() -> None:
    # case: SQ-02
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.text_factory = bytes
        with pytest.raises(PersistenceError, match="in mode memory") as caught:
            set_up(connection, Path("/somewhere/sessions.sqlite"))
    assert caught.value.location == "/somewhere/sessions.sqlite"


def test_a_sqlite_without_strict_tables_is_refused() -> None:
    check_version((3, 37, 0))
    with pytest.raises(PersistenceError, match=r"Python has 3\.36\.9"):
        check_version((3, 36, 9))


def test_two_that_open_a_new_database_at_once_make_one(tmp_path: Path, bench: Any) -> None:
    ready = threading.Barrier(6)
    stores: list[str] = []
    failures: list[Exception] = []

    def open_one() -> None:
        ready.wait()
        try:
            stores.append(bench.backend()._database.store_id)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(stores) == 6
    assert len(set(stores)) == 1


def test_only_the_owner_may_read(bench: Any, log: Any, make_header: Any) -> None:
    # case: SQ-08
    backend = bench.backend()
    backend.write(make_header("s"), log, summarize(log))
    files = [path for path in bench.file.parent.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {
        "sessions.sqlite",
        "sessions.sqlite-wal",
        "sessions.sqlite-shm",
        "id-s.lock",
    }
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in files} == {
        path.name: 0o600 for path in files
    }
    assert stat.S_IMODE((bench.file.parent / "sessions.sqlite.locks").stat().st_mode) == 0o700


def test_folders_that_are_made_are_private(tmp_path: Path) -> None:
    # case: SQ-08
    backend = SqliteBackend(tmp_path / "a" / "b" / "sessions.sqlite", 5)
    backend.open()
    backend.close()
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_database_of_ours_that_others_may_read_is_taken_back(bench: Any) -> None:
    bench.filled()
    bench.file.chmod(0o644)
    bench.backend()
    assert stat.S_IMODE(bench.file.stat().st_mode) == 0o600


# --- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "folder", "socket", "log-link"])
def test_what_is_no_file_is_refused(bench: Any, tmp_path: Path, kind: str) -> None:
    # case: SQ-08
    target = tmp_path / "elsewhere"
    target.touch()
    place = bench.file
    if kind == "link":
        place.symlink_to(target)
    elif kind == "folder":
        place.mkdir()
    elif kind == "socket":
        with closing(socket.socket(socket.AF_UNIX)) as made:
            made.bind(str(place))
    else:
        place = tmp_path / "sessions.sqlite-wal"
        place.symlink_to(target)
    with pytest.raises(PersistenceError) as caught:
        bench.backend()
    assert caught.value.location == str(place)
    assert caught.value.hint
    assert target.read_bytes() == b""


@needs_root
def test_another_persons_database_is_refused(bench: Any) -> None:
    # case: SQ-08
    bench.filled()
    os.chown(bench.file, 12345, -1)
    before = bench.bytes()
    with pytest.raises(PersistenceError, match="belongs to user 12345"):
        bench.backend()
    assert bench.bytes() == before


ALTERED = {
    "foreign": "PRAGMA application_id = 1234",
    "unversioned": "PRAGMA application_id = 0; PRAGMA user_version = 0",
    "older": "PRAGMA user_version = 0",
    "newer": "PRAGMA user_version = 99",
    "column": "ALTER TABLE events ADD COLUMN more TEXT",
    "renamed": "ALTER TABLE events RENAME COLUMN data TO payload",
    "table": "DROP TABLE cut_events",
    "loose": "DROP TABLE cut_events; CREATE TABLE cut_events (session_id TEXT)",
    "index": "CREATE INDEX mine ON events (type)",
    "trigger": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
}


@pytest.mark.parametrize("change", ALTERED)
def test_what_is_not_ours_is_refused_and_left_alone(bench: Any, change: str) -> None:
    # case: SQ-03
    bench.filled()
    with bench.sql() as connection:
        connection.executescript(ALTERED[change])
    before = bench.bytes()
    with pytest.raises(FormatUnsupported) as caught:
        bench.backend()
    assert caught.value.location == str(bench.file)
    assert caught.value.hint
    assert bench.bytes() == before


def test_nothing_is_left_beside_a_foreign_database(bench: Any) -> None:
    # case: SQ-03
    with bench.sql() as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(FormatUnsupported, match="something else"):
        bench.backend()
    assert list(bench.file.parent.iterdir()) == [bench.file]


def test_a_foreign_database_with_a_log_of_its_own_is_left_alone(bench: Any) -> None:
    # case: SQ-03
    script = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.executescript('PRAGMA journal_mode=WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)')\n"
        "os._exit(0)\n"  # a crash, so that the log stays
    )
    subprocess.run([sys.executable, "-c", script, str(bench.file)], check=True)
    before = bench.bytes()
    assert before["sessions.sqlite-wal"]
    with pytest.raises(FormatUnsupported, match="something else"):
        bench.backend()
    assert bench.bytes() == before


def test_a_file_that_is_no_database_is_refused(bench: Any) -> None:
    # case: SQ-03
    bench.file.write_text("these are my notes, which must not be lost\n" * 40)
    before = bench.bytes()
    with pytest.raises(PersistenceError, match="not a database") as caught:
        bench.backend()
    assert caught.value.location == str(bench.file)
    assert bench.bytes() == before


def test_tables_altered_while_we_run_are_noticed(bench: Any, log: Any, make_header: Any) -> None:
    # case: SQ-03
    backend = bench.backend()
    backend.write(make_header("s"), log, summarize(log))
    bench.run("ALTER TABLE events ADD COLUMN more TEXT")
    with pytest.raises(FormatUnsupported, match="altered: events"):
        backend.write(make_header("t"), log, summarize(log))
    assert bench.run("SELECT id FROM sessions") == [("s",)]


def test_a_database_replaced_while_we_run_is_noticed(
    bench: Any, log: Any, make_header: Any
) -> None:
    backend = bench.backend()
    backend.write(make_header("s"), log[:5], summarize(log[:5]))
    aside = bench.file.with_name("aside")
    bench.file.rename(aside)
    with pytest.raises(PersistenceError, match="removed or replaced"):
        backend.write(make_header("s"), log[5:], summarize(log))
    aside.rename(bench.file)
    backend.write(make_header("s"), log[5:], summarize(log))
    assert backend.read("s").events == log


# --- waiting and failing ------------------------------------------------------------------


def test_a_transaction_of_another_program_is_waited_for(
    bench: Any, log: Any, make_header: Any
) -> None:
    # case: SQ-04
    backend = bench.backend(busy_s=20)
    begun = threading.Event()
    with bench.sql() as other:
        other.execute("BEGIN IMMEDIATE")

        def write() -> None:
            begun.set()
            backend.write(make_header("s"), log, summarize(log))

        thread = threading.Thread(target=write)
        thread.start()
        begun.wait()
        assert bench.run("SELECT COUNT(*) FROM sessions") == [(0,)]
        other.execute("COMMIT")
        thread.join()
    assert backend.read("s").events == log


def test_a_transaction_that_takes_too_long_is_told(bench: Any, log: Any, make_header: Any) -> None:
    # case: SQ-04
    backend = bench.backend(busy_s=0.05)
    with bench.sql() as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PersistenceError, match="locked for too long") as caught:
            backend.write(make_header("s"), log, summarize(log))
        other.execute("COMMIT")
    assert caught.value.location == str(bench.file)
    assert backend.revision("s") is None
    backend.write(make_header("s"), log, summarize(log))


def test_a_full_disk_loses_nothing(small_disk: Path, bench: Any, make_header: Any) -> None:
    bench.file = small_disk / "sessions.sqlite"
    backend = bench.backend()
    small = worked_turn()
    backend.write(make_header("s"), small, summarize(small))
    big = worked_turn("x" * 2_000_000)
    with pytest.raises(PersistenceError, match="the disk is full") as caught:
        backend.write(make_header("t"), big, summarize(big))
    assert caught.value.location == str(bench.file)
    assert caught.value.hint
    assert backend.read("s").events == small
    assert backend.revision("t") is None
    assert backend.verify("s").sound
    backend.write(make_header("t"), small, summarize(small))
    assert backend.read("t").events == small


async def test_a_live_session_outlasts_a_full_disk(small_disk: Path) -> None:
    filler = small_disk / "filler"
    async with App() as app:
        await app.mount(LiveSessions).settled()
        config = {"file": str(small_disk / "sessions.sqlite"), "write_after_ms": 3_600_000}
        await app.mount(SqlitePersistence, config).settled()
        session = app[LiveSessions].create(app.ctx, "s")
        write_turn(session)
        await app[LiveSessions].flush(session)
        filler.write_bytes(b"x" * shutil.disk_usage(small_disk).free)
        before = session.events[:]
        write_turn(session, "y" * 100_000)
        with pytest.raises(ExceptionGroup) as caught:
            await app[LiveSessions].flush(session)
        (reason,) = caught.value.exceptions
        assert isinstance(reason, PersistenceError)
        assert "session 's' could not be written: the disk is full" in reason.message
        assert await app[SessionPersistence].read_from("s", 0) == before
        filler.unlink()
        write_turn(session)
        await app[LiveSessions].flush(session)
        assert await app[SessionPersistence].read_from("s", 0) == session.events[:]


def test_a_disk_that_fills_up_at_the_start_is_told(small_disk: Path, bench: Any) -> None:
    (small_disk / "filler").write_bytes(b"x" * (1024 * 1024 - 12 * 1024))
    bench.file = small_disk / "sessions.sqlite"
    with pytest.raises(PersistenceError, match="could not be opened"):
        bench.backend()
    (small_disk / "filler").unlink()
    assert list(bench.backend().list(False)) == []


def test_a_disk_that_cannot_be_written_is_told(
    small_disk: Path, bench: Any, log: Any, make_header: Any
) -> None:
    bench.file = small_disk / "sessions.sqlite"
    bench.filled()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(PersistenceError) as caught:
        bench.backend()
    assert str(small_disk) in str(caught.value.location)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    backend = bench.backend()
    backend.acquire("s")
    assert backend.read("s").events == log


WRITER = """\
import os
import sys
from pathlib import Path
from dsh.session import SessionHeader
from dsh.session.testing import worked_turn
from dsh.session_persistence import PersistenceError
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_sqlite import SqliteBackend
log = worked_turn()
backend = SqliteBackend(Path(sys.argv[1]), 5)
backend.open()
for number in range(6):
    try:
        backend.write(SessionHeader(id=f"s{number}", created_at=1), log, summarize(log))
    except PersistenceError as error:
        print("failed", number, error.location, flush=True)
    else:
        print("stored", number, flush=True)
os._exit(0)  # without the calls that closing makes
"""


@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_failing_disk_is_told_and_nothing_is_lost(tmp_path: Path, call: str) -> None:
    strace = needs_program("strace")
    script = tmp_path / "writer.py"
    script.write_text(WRITER, encoding="utf-8")
    file = tmp_path / "sessions.sqlite"
    first = _calls(strace, call, script, file.with_name("first.sqlite"))
    when = first - 1  # so near the end it is part of the writes, not of the start
    done = _traced(strace, call, script, file, f"inject={call}:error=EIO:when={when}")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 6, done.stderr
    failed = [words for words in lines if words[0] == "failed"]
    assert [words[2] for words in failed] == [str(file)]
    with closing(sqlite3.connect(file)) as connection:
        ids = {row[0] for row in connection.execute("SELECT id FROM sessions")}
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    assert ids >= {f"s{words[1]}" for words in lines if words[0] == "stored"}


def _calls(strace: str, call: str, script: Path, file: Path) -> int:
    done = _traced(strace, call, script, file, f"inject={call}:delay_enter=0")
    return sum(1 for line in done.stderr.splitlines() if f"{call}(" in line)


def _traced(
    strace: str, call: str, script: Path, file: Path, inject: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [strace, "-qq", "-e", f"trace={call}", "-e", inject, sys.executable, script, file],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "PTRACE" in done.stderr:
        pytest.skip("tracing is not permitted here")
    return done
