"""A disk that is full, cannot be written, is not ours, or fails in the middle of a step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from dsh.session import SessionEvent, SessionHeader, UnknownData
from dsh.session_persistence import PersistenceError, SessionSummary
from dsh.session_persistence_jsonl import JsonlBackend
from dsh.testkit import needs_program, unprivileged

Events = tuple[SessionEvent, ...]
Driver = Callable[..., list[str]]
HEADER = SessionHeader(id="s", created_at=1_700_000_000_000, cwd="/w")

linux = pytest.mark.skipif(sys.platform != "linux", reason="mounts and system calls of Linux")


def run(command: list[str]) -> list[list[str]]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def names(folder: Path) -> set[str]:
    return {str(item.relative_to(folder)) for item in folder.rglob("*")}


@pytest.fixture
def small(tmp_path: Path) -> Generator[Path, None, None]:
    """A disk of 128 KiB."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("needs to mount a disk")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a disk: {done.stderr}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def stuff(folder: Path) -> Path:
    """Fill a disk to the last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return ballast


def big(start: int, size: int) -> Events:
    return (SessionEvent(start, 1, UnknownData("a/b", {"x": "x" * size})),)


@linux
@pytest.mark.parametrize("compressed", [False, True])
def test_a_full_disk_takes_no_part_of_a_batch(
    small: Path, disk: Any, turn: Events, compressed: bool
) -> None:
    # case: JL-09
    disk.root = small / "sessions"
    backend = disk.open(compressed=compressed)
    backend.write(HEADER, turn, SessionSummary())
    path = Path(str(backend.locate(HEADER)))
    before = path.read_bytes()
    noise = os.urandom(150_000).hex()
    batch = (SessionEvent(len(turn), 1, UnknownData("a/b", {"x": noise})),)
    for _ in range(2):
        with pytest.raises(PersistenceError, match="disk is full") as caught:
            backend.write(HEADER, batch, SessionSummary())
        assert str(path) in str(caught.value)
        assert path.read_bytes() == before
    assert disk.read().events == turn
    fine = big(len(turn), 100)
    backend.write(HEADER, fine, SessionSummary())
    assert disk.read().events == (*turn, *fine)


@linux
def test_a_full_disk_takes_no_part_of_a_new_session(small: Path, disk: Any, turn: Events) -> None:
    disk.root = small / "sessions"
    disk.root.mkdir()
    ballast = stuff(small)
    before = names(small)
    backend = disk.open()
    with pytest.raises(PersistenceError, match="make room"):
        backend.write(HEADER, turn, SessionSummary())
    assert not [name for name in names(small) - before if name.count("/") > 1]
    assert backend.revision("s") is None
    ballast.unlink()
    backend.write(HEADER, turn, SessionSummary())
    assert disk.read().events == turn


@linux
def test_a_full_disk_can_be_listed_and_cleared(small: Path, disk: Any, turn: Events) -> None:
    disk.root = small / "sessions"
    disk.fill("s", turn)
    disk.fill("t", turn)
    disk.close()
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (disk.root / name).unlink(missing_ok=True)
    stuff(small)
    backend = disk.open()
    assert {item.header.id for item in backend.list(False)} == {"s", "t"}
    backend.acquire("s")
    backend.set_archived("s", True)
    backend.remove("s")
    assert {item.header.id for item in backend.list(False)} == {"t"}


@linux
def test_a_disk_that_can_only_be_read_is_read(small: Path, disk: Any, turn: Events) -> None:
    disk.root = small / "sessions"
    path = disk.fill("s", turn)
    disk.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    backend = disk.open()
    assert backend.read("s").events == turn
    assert [item.summary.turns for item in backend.list(False)] == [1]
    assert backend.verify("s").sound
    assert backend.read_raw("s") is not None
    other = SessionHeader(id="t", created_at=1)
    calls: list[Callable[[], object]] = [
        lambda: backend.acquire("s"),
        lambda: backend.write(HEADER, big(len(turn), 1), SessionSummary()),
        lambda: backend.write(other, turn, SessionSummary()),
        lambda: backend.remove("s"),
        lambda: backend.set_archived("s", True),
    ]
    for call in calls:
        with pytest.raises(PersistenceError, match="can only be read") as caught:
            call()
        assert str(small) in str(caught.value)
    assert path.exists()


def test_what_may_not_be_read_or_written_is_told(
    disk: Any, driver: Driver, turn: Events, tmp_path: Path
) -> None:
    path = disk.fill("s", turn)
    disk.close()
    path.chmod(0)
    command = unprivileged(driver(disk.root, "read:1"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    path.chmod(0o600)
    assert "give yourself access" in done.stderr
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    for root in (locked, locked / "sessions"):
        ((deed, code, message),) = run(unprivileged(driver(root, "write:3")))
        assert (deed, code) == ("write:3", "STORAGE_FAILED")
        assert "give yourself access" in message
        assert str(locked) in message
    assert list(locked.iterdir()) == []


def test_a_path_that_is_too_long_is_told(tmp_path: Path, turn: Events) -> None:
    backend = JsonlBackend(tmp_path.joinpath(*["x" * 250] * 20))
    calls: list[Callable[[], object]] = [
        lambda: backend.write(HEADER, turn, SessionSummary()),
        lambda: backend.read("s"),
        lambda: backend.list(False),
    ]
    for call in calls:
        with pytest.raises(PersistenceError, match="shorter path"):
            call()


# --- one system call fails ----------------------------------------------------------------

DEEDS = ("write:5", "write:9", "write:0", "archive", "acquire", "list:0")
SWEEP = [
    ("fsync", "EIO", 12),
    ("link,linkat", "EIO", 1),
    ("link,linkat", "EPERM", 1),
    ("rename,renameat,renameat2", "EIO", 1),
    ("write", "ENOSPC", 8),
    ("mkdir,mkdirat", "EDQUOT", 3),
    ("flock", "EIO", 1),
]


@linux
@pytest.mark.parametrize(
    ("call", "error", "when"),
    [(call, error, when) for call, error, count in SWEEP for when in range(1, count + 1)],
)
def test_a_call_that_fails_loses_nothing_and_may_be_made_again(
    tmp_path: Path, driver: Driver, call: str, error: str, when: int
) -> None:
    # case: JL-09
    strace = needs_program("strace")
    root = tmp_path / "sessions"
    inject = f"inject={call}:error={error}:when={when}"
    command = [strace, "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    told = run([*command, *driver(root, *DEEDS, tries=2)])
    assert [deed for deed, code, _ in told if code == "ok"] == list(DEEDS)
    failed = [message for _, code, message in told if code != "ok"]
    assert len(failed) <= 1
    for message in failed:
        assert str(root) in message
    assert [name for name in names(root) if name.endswith(".tmp")] == []


@linux
@pytest.mark.parametrize("when", [6, 7])
def test_a_write_that_cannot_be_taken_back_says_both(
    tmp_path: Path, driver: Driver, when: int
) -> None:
    # case: JL-10
    strace = needs_program("strace")
    inject = [f"inject=fsync:error=EIO:when={when}", "inject=ftruncate:error=ENOSPC:when=1"]
    command = [strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,ftruncate"]
    for each in inject:
        command += ["-e", each]
    root = tmp_path / "sessions"
    told = run([*command, *driver(root, "write:5", "write:9", "write:0", "list:1", tries=2)])
    failed = [message for _, code, message in told if code != "ok"]
    assert len(failed) == 1
    assert "could not be taken back" in failed[0]
    assert "Input/output error" in failed[0]
    assert "No space left" in failed[0]
    assert str(root) in failed[0]
    assert [deed for deed, code, _ in told if code == "ok"] == [
        "write:5",
        "write:9",
        "write:0",
        "list:1",
    ]
