"""Session logs as JSON lines: one readable, append-only file per session."""

from dsh.session_persistence_jsonl._backend import JsonlBackend
from dsh.session_persistence_jsonl._plugin import JsonlPersistence

__all__ = ["JsonlBackend", "JsonlPersistence"]
