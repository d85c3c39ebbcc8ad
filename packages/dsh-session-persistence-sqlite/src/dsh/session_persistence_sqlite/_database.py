"""The connection: opened with care, and transactions that are whole or not there."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from dsh.paths import make_folder
from dsh.session_persistence import PersistenceError
from dsh.session_persistence_sqlite._file import (
    FileId,
    check_file,
    file_id,
    make_file,
    make_private,
)
from dsh.session_persistence_sqlite._locks import Locks
from dsh.session_persistence_sqlite._schema import check_schema, create_schema, is_empty
from dsh.session_persistence_sqlite._storage_errors import as_storage_errors

__all__ = ["Database"]

_OLDEST: Final = (3, 37)
_SETTINGS: Final = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",
    "secure_delete = ON",
    "foreign_keys = ON",
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    "journal_size_limit = 67108864",
)
"""What every connection sets; `fullfsync` means something on macOS alone."""


class Database:
    """One connection to one file.

    It is used from whatever thread calls, never from two at once: the orchestration sees to that,
    so SQLite's own check of the thread is off. A thread of its own would cost every call two
    switches and give nothing.

    Args:
        file: The database.
        locks: Of the sessions in it.
        busy_timeout_s: How long to wait for another process's transaction.
    """

    def __init__(self, file: Path, locks: Locks, busy_timeout_s: float) -> None:
        self.file = file
        self._locks = locks
        self._timeout = busy_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._id: FileId | None = None
        self._schema: int = 0
        self.store_id = ""
        """Names this database, wherever it is moved."""

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection."""
        if self._connection is None:
            raise PersistenceError("the database is closed", location=str(self.file))
        return self._connection

    def open(self) -> None:
        """Connect, and make the database if there is none.

        Raises:
            PersistenceError: It cannot be opened or should not be; it is as it was.
        """
        check_version(sqlite3.sqlite_version_info)
        with as_storage_errors(self.file, "the database could not be opened"):
            check_file(self.file)
            make_folder(self.file.parent)
            lock = self._locks.while_opening(self._timeout)
            try:
                if check_file(self.file):
                    self._probe()
                else:
                    make_file(self.file)
                self._connect()
            except BaseException:
                self.close()
                lock.release()
                self._locks.tidy()
                raise
            lock.release()

    def close(self) -> None:
        """Disconnect; the last one to do so also tidies up the files beside the database."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with as_storage_errors(self.file, "the database could not be closed"):
                connection.close()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """See one state of the database, whatever others write meanwhile."""
        connection = self.connection
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            _roll_back(connection)

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Change the database: all of it is durable afterwards, or nothing has changed.

        Raises:
            PersistenceError: The file is no longer the one that was opened, or its tables are no
                longer ours.
        """
        connection = self.connection
        if file_id(self.file) != self._id:
            raise PersistenceError(
                "the database was removed or replaced while it was open",
                hint="put it back, or start anew; what was not written yet is still in memory",
                location=str(self.file),
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _value(connection, "schema_version") != self._schema:
                self._check_schema(connection)
            yield connection
            connection.execute("COMMIT")
        finally:
            _roll_back(connection)

    def _probe(self) -> None:
        """Look at an existing file through a connection that cannot change it.

        Where there is no write-ahead log, none is made either: whoever has the database open has
        one, and nobody can open it while we hold the lock.
        """
        log = self.file.with_name(self.file.name + "-wal")
        mode = "ro" if log.exists() else "ro&immutable=1"
        with closing(self._new_connection(mode)) as connection:
            if not is_empty(connection):
                check_schema(connection, self.file)

    def _connect(self) -> None:
        connection = self._connection = self._new_connection("rw")
        empty = is_empty(connection)
        if empty:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        set_up(connection, self.file)
        if empty:
            connection.execute("BEGIN IMMEDIATE")
            try:
                create_schema(connection)
                connection.execute("COMMIT")
            finally:
                _roll_back(connection)
        make_private(self.file)
        self._check_schema(connection)
        self._id = file_id(self.file)
        (store_id,) = connection.execute("SELECT store_id FROM persistence_state").fetchone()
        self.store_id = store_id.decode(errors="replace")

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        check_schema(connection, self.file)
        self._schema = _value(connection, "schema_version")

    def _new_connection(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.file))}?mode={mode}",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.text_factory = bytes
        return connection


def check_version(version: tuple[int, ...]) -> None:
    """Refuse a SQLite that is too old.

    Raises:
        PersistenceError: It does not know strict tables.
    """
    if version < _OLDEST:
        raise PersistenceError(
            f"sessions need SQLite 3.37 or newer, and Python has {'.'.join(map(str, version))}",
            hint="use another build of Python, or the store dsh-session-persistence-jsonl",
        )


def set_up(connection: sqlite3.Connection, file: Path) -> None:
    """Make a connection safe and durable, and see that it is.

    Raises:
        PersistenceError: SQLite did not do what it was told.
    """
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}").fetchall()
    mode = _value(connection, "journal_mode = WAL")
    if mode != b"wal":
        raise PersistenceError(
            f"the database keeps its journal in mode {_shown(mode)}, not as a write-ahead log",
            hint="its file system may not be able to share memory: put the database on a local "
            "disk",
            location=str(file),
        )
    connection.execute("PRAGMA synchronous = FULL")
    for name, wanted in (("synchronous", 2), ("foreign_keys", 1), ("trusted_schema", 0)):
        found = _value(connection, name)
        if found != wanted:
            raise PersistenceError(
                f"SQLite left {name} at {_shown(found)} instead of {wanted}",
                hint="this build of SQLite cannot keep sessions safely; use another one",
                location=str(file),
            )


def _value(connection: sqlite3.Connection, pragma: str) -> Any:
    row = connection.execute(f"PRAGMA {pragma}").fetchone()
    return None if row is None else row[0]


def _shown(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # SQLite did it already; the reason is the one worth telling
            connection.execute("ROLLBACK")
