"""What the tests of this wheel share."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsh.session import (
    MessageTrigger,
    Session,
    SessionEvent,
    SessionHeader,
    StepStart,
    TurnStart,
    UserSource,
)
from dsh.session.testing import worked_turn
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_sqlite import SqliteBackend

LOG = worked_turn()


class Bench:
    """One database, and ways to look at it from outside."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "sessions.sqlite"
        self._open: list[SqliteBackend] = []

    def backend(self, *, busy_s: float = 5.0) -> SqliteBackend:
        """Open the store, as a process of its own would."""
        backend = SqliteBackend(self.file, busy_s)
        backend.open()
        self._open.append(backend)
        return backend

    def close(self) -> None:
        """Close every store that was opened."""
        for backend in self._open:
            backend.close()
        self._open.clear()

    def filled(self, events: tuple[SessionEvent, ...] = LOG, session_id: str = "s") -> None:
        """Store a session, and close the store again."""
        backend = self.backend()
        backend.write(header(session_id), events, summarize(events))
        self.close()

    @contextmanager
    def sql(self) -> Generator[sqlite3.Connection]:
        """Open the database with nothing but SQLite."""
        connection = sqlite3.connect(self.file, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()

    def run(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run one statement from outside."""
        with self.sql() as connection:
            return connection.execute(statement, values).fetchall()

    def damage(self, seq: int, change: str = "data = data || ' '") -> None:
        """Change a row of the session `s` from outside."""
        self.run(f"UPDATE events SET {change} WHERE session_id = 's' AND seq = {seq}")

    def bytes(self) -> dict[str, bytes]:
        """Return every file of the folder; SQLite's shared index left out."""
        return {
            path.name: path.read_bytes()
            for path in sorted(self.file.parent.iterdir())
            if path.is_file() and not path.name.endswith("-shm")
        }


def header(session_id: str = "s") -> SessionHeader:
    return SessionHeader(id=session_id, created_at=1_700_000_000_000, cwd="/w")


@pytest.fixture
def bench(tmp_path: Path) -> Generator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def make_header() -> Callable[[str], SessionHeader]:
    return header


@pytest.fixture
def log() -> tuple[SessionEvent, ...]:
    """A log of one complete turn."""
    return LOG


@pytest.fixture
def open_turn() -> tuple[SessionEvent, ...]:
    """The log, and a second turn that breaks off two events behind it."""
    session = Session("open", LOG)
    session.append(TurnStart(2, MessageTrigger(UserSource())))
    session.append(StepStart(2, 1))
    return session.events[:]


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A disk of one megabyte."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting a small disk needs root, on Linux")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
