"""A store in memory, for tests that resume, fork, fail to write or die."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict, Field

from dsh.core import settings
from dsh.session import SessionEvent, SessionHeader, interrupted_turn_closers
from dsh.session_persistence._integrity import IntegrityReport
from dsh.session_persistence._types import SessionSnapshot, SessionSummary
from dsh.session_persistence.backend import BackedPersistence, Backend, StoredLog
from dsh.session_persistence.errors import (
    AppendRefused,
    SessionInUse,
    StoredSessionExists,
    StoredSessionNotFound,
)

__all__ = ["MemoryBackend", "MemoryDisk", "MemoryPersistence"]


@dataclass(slots=True)
class _File:
    header: SessionHeader
    events: list[SessionEvent]
    summary: SessionSummary
    archived: bool = False
    revision: int = 0


@dataclass(slots=True, eq=False)
class MemoryDisk:
    """What outlives an app: give the same disk to the next one and it finds the sessions.

    Two apps on one disk are to each other as two processes are.
    """

    files: dict[str, _File] = field(default_factory=dict[str, _File])
    """The stored sessions by id."""
    owners: dict[str, object] = field(default_factory=dict[str, object])
    """Which backend writes which session, as locks would say it."""
    failures: list[Exception] = field(default_factory=list[Exception])
    """What the next writes raise, one each, before they touch anything."""
    writes: int = 0
    """How many batches were written."""
    on_call: Callable[[str, str], None] | None = None
    """Told the name of every backend call and its session id before the call touches anything.

    What it raises fails the call; while it blocks, the call takes its time."""

    def called(self, name: str, session_id: str) -> None:
        """Tell `on_call` of a call."""
        if self.on_call is not None:
            self.on_call(name, session_id)

    def events(self, session_id: str) -> tuple[SessionEvent, ...]:
        """Return what is stored of a session, without repair; nothing if it is unknown."""
        stored = self.files.get(session_id)
        return () if stored is None else tuple(stored.events)


class MemoryBackend(Backend):
    """Keeps logs on a `MemoryDisk`.

    Args:
        disk: Where they are kept.
    """

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def open(self) -> None:
        """See `Backend.open`."""
        self._disk.called("open", "*")

    def close(self) -> None:
        """Let go of every session."""
        self._disk.called("close", "*")
        for session_id, owner in tuple(self._disk.owners.items()):
            if owner is self:
                del self._disk.owners[session_id]

    def acquire(self, session_id: str) -> None:
        """See `Backend.acquire`."""
        self._disk.called("acquire", session_id)
        self._own(session_id)

    def release(self, session_id: str) -> None:
        """See `Backend.release`."""
        self._disk.called("release", session_id)
        if self._disk.owners.get(session_id) is self:
            del self._disk.owners[session_id]

    def revision(self, session_id: str) -> str | None:
        """See `Backend.revision`."""
        self._disk.called("revision", session_id)
        stored = self._disk.files.get(session_id)
        return None if stored is None else str(stored.revision)

    def read(self, session_id: str) -> StoredLog:
        """See `Backend.read`."""
        self._disk.called("read", session_id)
        stored = self._file(session_id)
        return StoredLog(stored.header, tuple(stored.events), str(stored.revision))

    def list(self, archived: bool) -> Iterable[SessionSnapshot]:
        """See `Backend.list`."""
        self._disk.called("list", "*")
        return [
            SessionSnapshot(stored.header, str(stored.revision), archived, stored.summary)
            for stored in self._disk.files.values()
            if stored.archived is archived
        ]

    def write(
        self, header: SessionHeader, events: Sequence[SessionEvent], summary: SessionSummary
    ) -> None:
        """See `Backend.write`."""
        self._disk.called("write", header.id)
        stored = self._disk.files.get(header.id)
        start = events[0].seq
        if stored is not None and start == 0:
            raise StoredSessionExists(header.id)
        if start != (0 if stored is None else len(stored.events)):
            raise AppendRefused(f"session {header.id!r} does not continue at seq {start}")
        if self._disk.failures:
            raise self._disk.failures.pop(0)
        self._own(header.id)
        if stored is None:
            stored = self._disk.files[header.id] = _File(header, [], summary)
        stored.events.extend(events)
        stored.summary = summary
        self._disk.writes += 1
        stored.revision = self._disk.writes  # not even a new session with an old id has an old one

    def cut(self, log: StoredLog) -> None:
        """See `Backend.cut`; nothing here is ever written in part."""
        self._disk.called("cut", log.header.id)

    def set_archived(self, session_id: str, archived: bool) -> None:
        """See `Backend.set_archived`."""
        self._disk.called("set_archived", session_id)
        self._file(session_id).archived = archived

    def remove(self, session_id: str) -> None:
        """See `Backend.remove`."""
        self._disk.called("remove", session_id)
        self._file(session_id)
        del self._disk.files[session_id]

    def verify(self, session_id: str) -> IntegrityReport:
        """See `Backend.verify`; what is in memory is sound."""
        self._disk.called("verify", session_id)
        events = self._file(session_id).events
        open_turn = bool(interrupted_turn_closers(events))
        return IntegrityReport(session_id, None, len(events), interrupted=open_turn)

    def salvage(self, session_id: str) -> IntegrityReport:
        """See `Backend.salvage`."""
        return self.verify(session_id)

    def _own(self, session_id: str) -> None:
        if self._disk.owners.setdefault(session_id, self) is not self:
            raise SessionInUse(f"session {session_id!r} is being written by another store")

    def _file(self, session_id: str) -> _File:
        stored = self._disk.files.get(session_id)
        if stored is None:
            raise StoredSessionNotFound(session_id)
        return stored


class MemoryPersistence(BackedPersistence):
    """Keeps sessions on a `MemoryDisk`; every rule of the interface holds."""

    name: ClassVar[str] = "memory-persistence"

    class Config(BackedPersistence.Config):
        """Configuration."""

        model_config = ConfigDict(arbitrary_types_allowed=True)
        disk: MemoryDisk = Field(default_factory=MemoryDisk)
        """Where the sessions are kept."""

    config = settings(Config)

    def make_backend(self) -> Backend:
        """Return a backend on the configured disk."""
        return MemoryBackend(self.config.disk)

    @property
    def disk(self) -> MemoryDisk:
        """Where the sessions are kept."""
        return self.config.disk
