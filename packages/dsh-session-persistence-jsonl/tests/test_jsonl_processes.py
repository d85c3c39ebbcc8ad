"""Several processes, and several stores of one."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest
from filelock import FileLock, Timeout

from dsh.session import Session, SessionEvent, SessionHeader, UnknownData
from dsh.session.testing import write_turn
from dsh.session_persistence import (
    PersistenceError,
    SessionInUse,
    SessionSummary,
    StoredSessionExists,
)

Events = tuple[SessionEvent, ...]
Driver = Callable[..., list[str]]
HEADER = SessionHeader(id="s", created_at=1, cwd="/w")


def test_another_process_is_kept_out_and_told_who_writes(disk: Any, driver: Driver) -> None:
    # case: PS-35
    command = driver(disk.root, "write:5", "wait", "write:9")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert b"ok" in child.stdout.readline()
        backend = disk.open()
        seen = backend.read("s").events
        assert len(seen) == 5
        with pytest.raises(SessionInUse):
            backend.acquire("s")
        with pytest.raises(SessionInUse) as caught:
            backend.acquire("s")
        assert f"process {child.pid} on {socket.gethostname()}" in caught.value.message
        more = SessionEvent(5, 0, UnknownData("a/b", {}))
        with pytest.raises(SessionInUse):
            backend.write(HEADER, (more,), SessionSummary())
        child.stdin.write(b"\n")
        child.stdin.close()
        assert child.wait(30) == 0
    assert len(disk.read().events) == 9
    backend.acquire("s")


def test_a_process_that_was_killed_holds_nothing(disk: Any, driver: Driver) -> None:
    command = driver(disk.root, "write:5", "wait")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert b"ok" in child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait(30)
    backend = disk.open()
    backend.acquire("s")
    stored = backend.read("s")
    assert len(stored.events) == 5
    assert stored.rest is None


def test_two_stores_of_one_process_are_two(disk: Any, turn: Events) -> None:
    disk.fill("s", turn)
    one, other = disk.open(), disk.open()
    one.acquire("s")
    one.acquire("s")
    with pytest.raises(SessionInUse, match="another store of this process"):
        other.acquire("s")
    one.release("s")
    other.acquire("s")
    with pytest.raises(SessionInUse):
        one.acquire("s")
    other.close()
    one.acquire("s")


def test_a_new_id_goes_to_one_of_two(disk: Any, turn: Events) -> None:
    one, other = disk.open(), disk.open()
    assert one.revision("s") is other.revision("s") is None
    one.write(HEADER, turn, SessionSummary())
    with pytest.raises(StoredSessionExists, match="stored or reserved already"):
        other.write(HEADER, turn, SessionSummary())
    assert disk.read().events == turn


def test_a_reader_sees_whole_batches_of_a_busy_log(disk: Any) -> None:
    # case: JL-13
    session = Session("s")
    for _ in range(60):
        write_turn(session)
    log = session.events[:]
    backend = disk.open(packed=False)
    backend.write(HEADER, log[:23], SessionSummary())

    def write() -> None:
        for start in range(23, len(log), 23):
            backend.write(HEADER, log[start : start + 23], SessionSummary())

    writer = threading.Thread(target=write)
    writer.start()
    sizes: set[int] = set()
    while writer.is_alive():
        stored = disk.read()
        assert stored.events == log[: len(stored.events)]
        sizes.add(len(stored.events) % 23)
    writer.join()
    assert disk.read().events == log
    assert sizes <= {0, len(log) % 23}


def test_fifty_updates_of_the_index_lose_nothing(disk: Any, driver: Driver) -> None:
    # case: F-21
    commands = [driver(disk.root, f"many:{number}", "close") for number in range(10)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    assert [child.wait(60) for child in children] == [0] * 10
    for child in children:
        assert child.stdout is not None
        assert b"STORAGE_FAILED" not in child.stdout.read()
        child.stdout.close()
    with sqlite3.connect(disk.root / "index.sqlite") as db:
        count = db.execute("SELECT count(*), sum(turns) FROM logs").fetchone()
    db.close()
    assert count == (50, 50)
    shown = list(disk.open().list(False))
    assert len({item.header.id for item in shown}) == 50
    assert all(item.summary.turns == 1 for item in shown)


def test_locks_are_not_inherited(disk: Any, turn: Events) -> None:
    backend = disk.open()
    backend.write(HEADER, turn, SessionSummary())
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        try:
            backend.close()
            disk.open().acquire("s")
        finally:
            os.kill(child.pid, signal.SIGKILL)


def test_the_lock_is_the_one_of_filelock(disk: Any, turn: Events) -> None:
    disk.fill("s", turn)
    backend = disk.open()
    backend.acquire("s")
    (path,) = disk.root.rglob("lock")
    other = FileLock(path)
    with pytest.raises(Timeout):
        other.acquire(blocking=False)
    backend.release("s")
    with other:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(SessionInUse):
            backend.acquire("s")
    backend.acquire("s")


def test_a_lock_that_was_deleted_before_it_was_taken_is_none(
    disk: Any, turn: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.fill("s", turn)
    (path,) = disk.root.rglob("lock")
    flock = fcntl.flock
    deleted: list[int] = []

    def after_deleting(file: int, operation: int) -> None:
        if not deleted:
            path.unlink()
            deleted.append(os.fstat(file).st_ino)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", after_deleting)
    one, other = disk.open(), disk.open()
    one.acquire("s")
    assert path.stat().st_nlink == 1
    with pytest.raises(SessionInUse):
        other.acquire("s")


def test_a_link_in_the_place_of_the_lock_is_not_followed(disk: Any, turn: Events) -> None:
    disk.fill("s", turn)
    (path,) = disk.root.rglob("lock")
    path.unlink()
    path.symlink_to(disk.root / "elsewhere")
    with pytest.raises(PersistenceError):
        disk.open().acquire("s")
    assert not (disk.root / "elsewhere").exists()
