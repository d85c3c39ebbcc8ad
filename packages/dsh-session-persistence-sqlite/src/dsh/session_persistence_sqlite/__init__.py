"""Session logs in one SQLite database."""

from dsh.session_persistence_sqlite._backend import SqliteBackend
from dsh.session_persistence_sqlite._plugin import SqlitePersistence

__all__ = ["SqliteBackend", "SqlitePersistence"]
