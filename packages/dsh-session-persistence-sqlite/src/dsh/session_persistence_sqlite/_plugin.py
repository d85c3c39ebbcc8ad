"""The plugin."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import PositiveInt

from dsh.core import settings
from dsh.paths import user_folder
from dsh.session_persistence import PersistenceError
from dsh.session_persistence.backend import BackedPersistence, Backend
from dsh.session_persistence_sqlite._backend import SqliteBackend

__all__ = ["FILE_NAME", "SqlitePersistence"]

FILE_NAME = "sessions.sqlite"
"""Name of the database in the user's folder."""


class SqlitePersistence(BackedPersistence):
    """Keeps sessions in one SQLite database.

    The database is opened, and made if there is none, when the first session needs it.
    """

    name: ClassVar[str] = "session-persistence-sqlite"

    class Config(BackedPersistence.Config):
        """Configuration."""

        file: str | None = None
        """The database; `sessions.sqlite` in the user's folder (`DSH_HOME`, or `~/.dsh`) if None.
        Beside it lie its write-ahead log and two folders: locks, and copies of what was salvaged.
        """
        busy_timeout_ms: PositiveInt = 5000
        """Milliseconds to wait for a transaction of another process."""

    config = settings(Config)

    def make_backend(self) -> Backend:
        """Return a backend on the configured database; nothing is opened yet."""
        return SqliteBackend(self._file(), self.config.busy_timeout_ms / 1000)

    def _file(self) -> Path:
        if self.config.file is not None:
            return Path(self.config.file).expanduser().absolute()
        folder = user_folder()
        if folder is None:
            raise PersistenceError(
                "no home folder is known, so there is no place for the sessions",
                hint="set DSH_HOME, or configure `file`",
            )
        return folder / FILE_NAME
