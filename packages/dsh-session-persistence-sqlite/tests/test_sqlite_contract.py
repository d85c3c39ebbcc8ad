"""The contract of every session store, on the database."""

from __future__ import annotations

from pathlib import Path

from dsh.session_persistence_sqlite import SqlitePersistence
from dsh.testkit.persistence_contract import PersistenceContract


class TestSqlitePersistence(PersistenceContract):
    provider = SqlitePersistence

    def config(self, folder: Path) -> object:
        return {"file": str(folder / "sessions.sqlite")}
