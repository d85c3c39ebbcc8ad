"""Everything that every session store does, on files."""

from __future__ import annotations

from pathlib import Path

from dsh.session_persistence_jsonl import JsonlPersistence
from dsh.testkit.persistence_contract import PersistenceContract


class TestPlain(PersistenceContract):
    provider = JsonlPersistence

    def config(self, folder: Path) -> object:
        return {"folder": str(folder / "sessions")}


class TestCompressed(PersistenceContract):
    provider = JsonlPersistence

    def config(self, folder: Path) -> object:
        return {"folder": str(folder / "sessions"), "compression": "zstd"}


class TestUnpacked(PersistenceContract):
    provider = JsonlPersistence

    def config(self, folder: Path) -> object:
        return {"folder": str(folder / "sessions"), "pack_chunks": False}
