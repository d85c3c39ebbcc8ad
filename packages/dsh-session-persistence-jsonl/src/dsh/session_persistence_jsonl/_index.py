"""What listings tell, kept between them. It is a cache: each row says which file it is true of.

A row is used only while the log has the size and the time it had, so a lost or damaged index
costs time and nothing else.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from dsh.session import SessionHeader
from dsh.session_persistence import SessionSummary

__all__ = ["Entry", "Index"]


class Entry(NamedTuple):
    """What is known about one log."""

    size: int
    """Bytes of the file."""
    mtime: int
    """When it was changed, in nanoseconds."""
    header: SessionHeader
    summary: SessionSummary


_VERSION: Final = 2
_CREATE: Final = """
CREATE TABLE IF NOT EXISTS logs (
    path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL,
    version INTEGER NOT NULL, id TEXT NOT NULL, created_at INTEGER NOT NULL, cwd TEXT,
    parent_session TEXT, seed_length INTEGER, origin TEXT, delegation_depth INTEGER,
    agent_preset TEXT, title TEXT, turns INTEGER NOT NULL, events INTEGER NOT NULL,
    updated_at INTEGER, ended TEXT, damaged INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID, STRICT
"""
_PUT: Final = f"INSERT OR REPLACE INTO logs VALUES ({', '.join('?' * 19)})"


_PASSING: Final = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
    "SQLITE_IOERR",
    "SQLITE_FULL",
    "SQLITE_PERM",
    "SQLITE_PROTOCOL",
)
"""Failures that say nothing against the index itself."""


class Index:
    """The cache beside the logs; anything that fails in it makes it do less, and nobody else.

    Args:
        path: Its file, in a folder that exists.
        wait_s: How long to wait for another process that writes it.
    """

    __slots__ = ("_db", "_path", "_wait_s")

    def __init__(self, path: Path, wait_s: float = 2.0) -> None:
        self._path = path
        self._wait_s = wait_s
        self._db: sqlite3.Connection | None = None

    def load(self) -> dict[str, Entry]:
        """Return all rows by the path of the log."""
        try:
            rows = self._open().execute("SELECT * FROM logs").fetchall()
            if any(_crc(row[:-1]) != row[-1] for row in rows):
                # SQLite makes what it can of a damaged file
                raise sqlite3.DatabaseError("a row is damaged")
            return {row[0]: _entry(row) for row in rows}
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            self._failed(error)
            return {}

    def put(self, entries: Iterable[tuple[str, Entry]]) -> None:
        """Store rows."""
        rows = [_row(path, entry) for path, entry in entries]
        if not rows:
            return
        try:
            db = self._open()
            with _transaction(db):
                db.executemany(_PUT, rows)
        except (sqlite3.Error, OSError, ValueError) as error:
            self._failed(error)

    def drop(self, paths: Iterable[str]) -> None:
        """Forget logs that are no longer there."""
        gone = [(path,) for path in paths]
        if not gone:
            return
        try:
            db = self._open()
            with _transaction(db):
                db.executemany("DELETE FROM logs WHERE path = ?", gone)
        except (sqlite3.Error, OSError) as error:
            self._failed(error)

    def close(self) -> None:
        """Let go of the file."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _open(self) -> sqlite3.Connection:
        if self._db is not None:
            return self._db
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        os.close(os.open(self._path, flags, 0o600))
        db = sqlite3.connect(
            self._path, timeout=self._wait_s, isolation_level=None, check_same_thread=False
        )
        try:
            # a commit waits for no disk: what a power cut loses is made again
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            with _transaction(db):
                if db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                    db.execute("DROP TABLE IF EXISTS logs")
                    db.execute(_CREATE)
                    db.execute(f"PRAGMA user_version = {_VERSION}")
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _failed(self, error: Exception) -> None:
        """Start over with an empty index if this one is damaged."""
        self.close()
        if isinstance(error, OSError):
            return
        name: str = getattr(error, "sqlite_errorname", "")
        if name.startswith(_PASSING):
            return
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{self._path}{suffix}")


@contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _row(path: str, entry: Entry) -> tuple[object, ...]:
    header, summary = entry.header, entry.summary
    row = (
        path,
        entry.size,
        entry.mtime,
        header.version,
        header.id,
        header.created_at,
        header.cwd,
        header.parent_session,
        header.seed_length,
        header.origin,
        header.delegation_depth,
        header.agent_preset,
        summary.title,
        summary.turns,
        summary.events,
        summary.updated_at,
        summary.ended,
        int(summary.damaged),
    )
    return (*row, _crc(row))


def _crc(row: tuple[object, ...]) -> int:
    return crc32(repr(row).encode("utf-8", "surrogatepass"))


def _entry(row: Sequence[Any]) -> Entry:
    header = SessionHeader(
        version=row[3],
        id=row[4],
        created_at=row[5],
        cwd=row[6],
        parent_session=row[7],
        seed_length=row[8],
        origin=row[9],
        delegation_depth=row[10],
        agent_preset=row[11],
    )
    title, turns, events, updated_at, ended, damaged = row[12:18]
    summary = SessionSummary(title, turns, events, updated_at, ended, bool(damaged))
    return Entry(row[1], row[2], header, summary)
