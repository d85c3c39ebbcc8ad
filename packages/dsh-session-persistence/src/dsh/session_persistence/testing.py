"""A store in memory, for tests that resume, fork, fail to write or die."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import anyio.lowlevel
from pydantic import ConfigDict, Field

from dsh.core import PluginConfig, inject, on, settings
from dsh.session import Session, SessionEvent, SessionHeader, SessionStore
from dsh.session.events import SessionCreated, SessionDisposed, SessionFlush
from dsh.session_persistence._checks import check_batch, check_from_seq, check_header, repaired
from dsh.session_persistence._service import SessionPersistence
from dsh.session_persistence._types import SessionSnapshot, StoredSession
from dsh.session_persistence.errors import (
    PersistenceError,
    SessionInUse,
    StoredSessionExists,
    StoredSessionNotFound,
)

__all__ = ["MemoryDisk", "MemoryPersistence"]


@dataclass(slots=True)
class _File:
    header: SessionHeader
    events: list[SessionEvent]
    archived: bool = False
    revision: int = 0


@dataclass(slots=True, eq=False)
class MemoryDisk:
    """What outlives an app: give the same disk to the next one and it finds the sessions."""

    files: dict[str, _File] = field(default_factory=dict[str, _File])
    """The stored sessions by id."""
    reserved: dict[str, SessionHeader] = field(default_factory=dict[str, SessionHeader])
    """Headers of created sessions without events."""
    failures: list[Exception] = field(default_factory=list[Exception])
    """What the next writes raise, one each, before they touch anything."""
    writes: int = 0
    """How many batches were written."""

    def events(self, session_id: str) -> tuple[SessionEvent, ...]:
        """Return what is stored of a session, without repair; nothing if it is unknown."""
        stored = self.files.get(session_id)
        return () if stored is None else tuple(stored.events)


class MemoryPersistence(SessionPersistence):
    """Keeps sessions on a `MemoryDisk`; every rule of the interface holds."""

    name: ClassVar[str] = "memory-persistence"

    class Config(PluginConfig):
        """Configuration."""

        model_config = ConfigDict(arbitrary_types_allowed=True)
        disk: MemoryDisk = Field(default_factory=MemoryDisk)
        """Where the sessions are kept."""

    config = settings(Config)
    sessions = inject(SessionStore)

    async def start(self) -> None:
        """Take up the sessions that are live already."""
        self._written: dict[Session, int] = {}
        for session in self.sessions.list():
            self._bind(session)
        self.ctx.defer(self._write_all, "write live sessions")

    def _write_all(self) -> None:
        """Write what is buffered; sessions may outlive their store."""
        for session in tuple(self._written):
            self._write_live(session)

    @property
    def disk(self) -> MemoryDisk:
        """Where the sessions are kept."""
        return self.config.disk

    # --- live sessions --------------------------------------------------------------------

    @on(SessionCreated)
    def _on_created(self, event: SessionCreated) -> None:
        self._bind(event.session)

    @on(SessionFlush)
    async def _on_flush(self, event: SessionFlush) -> None:
        await anyio.lowlevel.checkpoint()
        self._write_live(event.session)

    @on(SessionDisposed)
    def _on_disposed(self, event: SessionDisposed) -> None:
        if event.session in self._written:
            self._write_live(event.session)
            del self._written[event.session]

    def _bind(self, session: Session) -> None:
        stored = self.disk.files.get(session.id)
        if stored is None:
            self._written[session] = 0
            return
        prefix = tuple(stored.events)
        same_place = stored.header.cwd == session.header.cwd
        if not same_place or session.events[: len(prefix)] != prefix:
            raise StoredSessionExists(session.id)
        self._written[session] = len(prefix)

    def _write_live(self, session: Session) -> None:
        cursor = self._written.get(session)
        if cursor is None or cursor == session.seq:
            return
        self._write(session.id, session.header, session.events[cursor:])
        self._written[session] = session.seq

    def _owner(self, session_id: str) -> Session | None:
        return next((item for item in self._written if item.id == session_id), None)

    # --- the interface --------------------------------------------------------------------

    async def create(self, header: SessionHeader) -> None:
        """See `SessionPersistence.create`."""
        check_header(header)
        if header.id in self.disk.files or header.id in self.disk.reserved:
            raise StoredSessionExists(header.id)
        self.disk.reserved[header.id] = header

    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """See `SessionPersistence.append`."""
        stored = self.disk.files.get(session_id)
        header = stored.header if stored is not None else self.disk.reserved.get(session_id)
        if header is None:
            raise StoredSessionNotFound(session_id)
        batch = tuple(events)
        await anyio.lowlevel.checkpoint()
        self._write(session_id, header, batch)

    async def load(self, session_id: str) -> StoredSession:
        """See `SessionPersistence.load`."""
        await anyio.lowlevel.checkpoint()
        live = self._owner(session_id)
        if live is not None and live.turn_open is not None:
            raise SessionInUse(
                f"session {session_id!r} is live with turn {live.turn_open} open",
                hint="wait until its agent is idle",
            )
        if live is not None:
            self._write_live(live)
        stored = self._file(session_id)
        whole = repaired(stored.events)
        self._write(session_id, stored.header, whole[len(stored.events) :])
        return StoredSession(stored.header, whole)

    async def inspect(self, session_id: str) -> StoredSession:
        """See `SessionPersistence.inspect`."""
        await anyio.lowlevel.checkpoint()
        stored = self._file(session_id)
        return StoredSession(stored.header, repaired(stored.events))

    async def read_from(self, session_id: str, from_seq: int) -> tuple[SessionEvent, ...]:
        """See `SessionPersistence.read_from`."""
        start = check_from_seq(from_seq)
        await anyio.lowlevel.checkpoint()
        return tuple(self._file(session_id).events[start:])

    async def list(self, *, archived: bool = False) -> tuple[SessionHeader, ...]:
        """See `SessionPersistence.list`."""
        return tuple(item.header for item in await self.list_snapshots(archived=archived))

    async def list_snapshots(self, *, archived: bool = False) -> tuple[SessionSnapshot, ...]:
        """See `SessionPersistence.list_snapshots`."""
        await anyio.lowlevel.checkpoint()
        return tuple(
            SessionSnapshot(stored.header, str(stored.revision), stored.archived)
            for stored in self.disk.files.values()
            if stored.archived is archived
        )

    async def archive(self, session_id: str) -> None:
        """See `SessionPersistence.archive`."""
        await anyio.lowlevel.checkpoint()
        self._file(session_id)
        self._refuse_live(session_id, "archived")
        self._file(session_id).archived = True

    async def unarchive(self, session_id: str) -> None:
        """See `SessionPersistence.unarchive`."""
        await anyio.lowlevel.checkpoint()
        self._file(session_id).archived = False

    async def remove(self, session_id: str) -> None:
        """See `SessionPersistence.remove`."""
        await anyio.lowlevel.checkpoint()
        self._file(session_id)
        self._refuse_live(session_id, "removed")
        del self.disk.files[session_id]

    # --- inside ---------------------------------------------------------------------------

    def _file(self, session_id: str) -> _File:
        stored = self.disk.files.get(session_id)
        if stored is None:
            raise StoredSessionNotFound(session_id)
        return stored

    def _refuse_live(self, session_id: str, deed: str) -> None:
        if self._owner(session_id) is not None:
            raise SessionInUse(
                f"session {session_id!r} is live and cannot be {deed}", hint="close it first"
            )

    def _write(
        self, session_id: str, header: SessionHeader, events: Sequence[SessionEvent]
    ) -> None:
        if not events:
            return
        stored = self.disk.files.get(session_id)
        batch = check_batch(session_id, events, 0 if stored is None else len(stored.events))
        if self.disk.failures:
            error = self.disk.failures.pop(0)
            raise PersistenceError(f"session {session_id!r} could not be written") from error
        if stored is None:
            self.disk.reserved.pop(session_id, None)
            stored = self.disk.files[session_id] = _File(header, [])
        stored.events.extend(batch)
        stored.revision += 1
        self.disk.writes += 1
