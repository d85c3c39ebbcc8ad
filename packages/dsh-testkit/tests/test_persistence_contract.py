"""The persistence contract, on the store in memory."""

from __future__ import annotations

from pathlib import Path

from dsh.testkit import MemoryDisk, MemoryPersistence
from dsh.testkit.persistence_contract import PersistenceContract


class TestMemory(PersistenceContract):
    provider = MemoryPersistence

    def config(self, folder: Path) -> dict[str, MemoryDisk]:
        return {"disk": MemoryDisk()}
