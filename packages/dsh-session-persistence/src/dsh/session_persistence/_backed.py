"""The orchestration that every store shares: a store is this and a backend."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from pydantic import PositiveInt

from dsh.core import NextStream, PluginConfig, inject, on, settings
from dsh.llm import StreamChunk
from dsh.llm.events import LlmStream
from dsh.session import (
    Session,
    SessionEvent,
    SessionHeader,
    SessionStore,
    interrupted_turn_closers,
)
from dsh.session.events import (
    SessionCreated,
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
)
from dsh.session_persistence._backend import Backend, StoredLog, as_persistence_error
from dsh.session_persistence._checks import check_batch, check_from_seq, check_header, repaired
from dsh.session_persistence._integrity import IntegrityReport
from dsh.session_persistence._live import LiveLog, Slot, WriteBehind
from dsh.session_persistence._service import SessionPersistence
from dsh.session_persistence._summary import SummaryFold
from dsh.session_persistence._types import RawArtifact, SessionSnapshot, StoredSession
from dsh.session_persistence.errors import (
    SessionInUse,
    StoredSessionExists,
    StoredSessionNotFound,
)

__all__ = ["BackedPersistence"]

T = TypeVar("T")

_KEPT: Final = 4
"""So many logs are remembered after a load, for the session that goes on from one."""


class BackedPersistence(SessionPersistence, ABC):
    """A store made of a `Backend`: derive, return the backend, done.

    It follows the live sessions, decides who owns an id, orders the calls about it, writes behind,
    repairs what was interrupted, and runs the backend in worker threads, one call at a time.

    **Writing behind.** The first event that waits opens a window of `write_after_ms`; at its end
    everything that waits is written as one batch. `session/flush` does not wait for the window. A
    write that fails in the background is reported once; the events stay, and the next event or
    flush tries again. A session with more than `max_unwritten` events waiting holds its model
    stream up until they are written; a write that fails there fails the stream.
    """

    class Config(PluginConfig):
        """What every store made of a backend honours."""

        write_after_ms: PositiveInt = 200
        """Milliseconds from the first waiting event to the write, if nobody flushes before."""
        max_unwritten: PositiveInt = 10_000
        """How many events of one session may wait before its model stream is held up."""

    config = settings(Config)
    sessions = inject(SessionStore)

    @abstractmethod
    def make_backend(self) -> Backend:
        """Return the backend; it is opened when it is first needed."""

    # --- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up the sessions that are live already."""
        self._backend = self.make_backend()
        self._opened = False
        self._guard = threading.Lock()
        self._limiter = anyio.CapacityLimiter(1)
        self._slots: WeakValueDictionary[str, Slot] = WeakValueDictionary()
        self._live: dict[Session, LiveLog] = {}
        self._reserved: dict[str, SessionHeader] = {}
        self._loaded: OrderedDict[str, StoredLog] = OrderedDict()
        self._behind = WriteBehind(self.config.write_after_ms / 1000, self._write_behind)
        self.ctx.defer(self._close, "close the store")
        self.ctx.spawn(self._behind.run, label="write behind")
        for session in self.sessions.list():
            if session not in self._live:
                await self._adopt(session)

    async def _close(self) -> None:
        """Write what waits, then let go of the storage."""
        errors: list[Exception] = []
        for live in tuple(self._live.values()):
            try:
                await self._write(live)
            except Exception as error:  # noqa: BLE001 - all are tried, then told together
                errors.append(error)
        self._live.clear()
        if self._opened:
            await anyio.to_thread.run_sync(self._backend.close, limiter=self._limiter)
        if errors:
            raise ExceptionGroup("sessions could not be written to their end", errors)

    # --- live sessions --------------------------------------------------------------------

    @on(SessionCreated)
    def _on_created(self, event: SessionCreated) -> None:
        self._bind(event.session)

    @on(SessionEventAppended)
    def _on_event(self, event: SessionEventAppended) -> None:
        live = self._live.get(event.session)
        if live is None:
            return
        if not live.armed:
            self._behind.arm(live)
        elif live.behind == self.config.max_unwritten // 2:
            self._behind.hurry(live)

    @on(SessionFlush)
    async def _on_flush(self, event: SessionFlush) -> None:
        live = self._live.get(event.session)
        if live is not None:
            await self._write(live)

    @on(SessionDisposed)
    def _on_disposed(self, event: SessionDisposed) -> None:
        live = self._live.get(event.session)
        if live is None:
            return
        live.gone = True
        if live.behind:
            self._behind.hurry(live)
        else:
            self._retire(live)

    @on(LlmStream)
    async def _hold_up(
        self, event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        session_id = event.request.session_id
        session = None if session_id is None else self.sessions.get(session_id)
        live = None if session is None else self._live.get(session)
        async with aclosing(next()) as chunks:
            async for chunk in chunks:
                yield chunk
                if live is not None and live.behind >= self.config.max_unwritten:
                    await self._write(live)

    def _bind(self, session: Session) -> None:
        """Follow a session that has just become live, if its id is free or it comes from there."""
        slot = self._slot(session.id)
        if slot.loading:
            raise SessionInUse(
                f"session {session.id!r} is being loaded", hint="wait until it has been"
            )
        if slot.live is not None:
            self._end_predecessor(slot.live)
        log = self._at_once(lambda: self._claim(session), session.id, "read")
        self._follow(session, slot, log)

    def _end_predecessor(self, live: LiveLog) -> None:
        """Write the session that had the id before to its end, so that its log can be judged."""
        if not live.gone:
            raise StoredSessionExists(live.session.id)
        if live.behind:
            self._at_once(lambda: self._store(live), live.session.id, "written")
        self._retire(live)

    def _claim(self, session: Session) -> StoredLog | None:
        """Acquire the stored log that a live session goes on from; None if nothing is stored."""
        backend, session_id = self._backend, session.id
        if backend.revision(session_id) is None:
            return None
        backend.acquire(session_id)
        try:
            log = self._loaded.get(session_id)
            if log is None or log.revision != backend.revision(session_id):
                log = backend.read(session_id)
            count = len(log.events)
            if log.header.cwd != session.header.cwd or session.events[:count] != log.events:
                raise StoredSessionExists(session_id, backend.locate(log.header))
            if log.rest is not None:
                # the turn is live, so only what was never written completely goes
                backend.cut(log)
        except BaseException:
            backend.release(session_id)
            raise
        return log

    async def _adopt(self, session: Session) -> None:
        """Follow a session that was live before the store."""
        slot = self._slot(session.id)
        async with slot.lock:
            log = await self._run(lambda: self._claim(session), session.id, "read")
            if session not in self._live and self.sessions.get(session.id) is session:
                self._follow(session, slot, log)

    def _follow(self, session: Session, slot: Slot, log: StoredLog | None) -> None:
        fold = SummaryFold()
        stored = 0
        if log is not None:
            fold.add(log.events)
            stored = len(log.events)
        self._reserved.pop(session.id, None)
        self._loaded.pop(session.id, None)
        live = LiveLog(session, slot, stored, fold)
        slot.live = self._live[session] = live
        if live.behind:
            self._behind.arm(live)

    def _retire(self, live: LiveLog) -> None:
        """Let go of a session that is gone and written."""
        self._live.pop(live.session, None)
        if live.slot.live is live:
            live.slot.live = None
        if live.stored:
            self._at_once(
                lambda: self._backend.release(live.session.id), live.session.id, "released"
            )

    # --- writing --------------------------------------------------------------------------

    async def _write(self, live: LiveLog) -> None:
        """Write everything that waits, what is added meanwhile included."""
        async with live.slot.lock:
            await self._drain(live)

    async def _drain(self, live: LiveLog) -> None:
        while live.behind:
            await self._run(lambda: self._store(live), live.session.id, "written")
            live.failing = False

    async def _write_behind(self, live: LiveLog) -> None:
        try:
            await self._write(live)
        except Exception as error:  # noqa: BLE001 - there is nobody to raise to
            if not live.failing:
                live.failing = True
                self.ctx.report(error, f"write session {live.session.id!r}")
            return
        if live.gone:
            self._retire(live)

    def _store(self, live: LiveLog) -> None:
        """Write one batch and note it in the same breath, so that no cancellation parts them."""
        events = live.session.events[live.stored :]
        fold = SummaryFold(live.fold.summary)
        fold.add(events)
        self._backend.write(live.session.header, events, fold.summary)
        live.stored += len(events)
        live.fold = fold

    # --- the interface --------------------------------------------------------------------

    async def create(self, header: SessionHeader) -> None:
        """See `SessionPersistence.create`."""
        check_header(header)
        slot = self._slot(header.id)
        async with slot.lock:
            stored = await self._run(lambda: self._backend.revision(header.id), header.id, "read")
            if stored is not None or header.id in self._reserved or slot.live is not None:
                raise StoredSessionExists(header.id, self._backend.locate(header))
            self._reserved[header.id] = header

    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """See `SessionPersistence.append`."""
        batch = tuple(events)
        slot = self._slot(session_id)
        async with slot.lock:
            self._refuse_live(slot, session_id, "appended to from outside")
            await self._run(lambda: self._append(session_id, batch), session_id, "written")
            self._loaded.pop(session_id, None)

    def _append(self, session_id: str, batch: tuple[SessionEvent, ...]) -> None:
        backend = self._backend
        header = self._reserved.get(session_id)
        if header is not None and backend.revision(session_id) is None:
            self._write_batch(header, batch, ())
            if batch:
                del self._reserved[session_id]
                backend.release(session_id)
            return
        if backend.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        backend.acquire(session_id)
        try:
            log = backend.read(session_id)
            if batch and log.rest is not None:
                backend.cut(log)
            self._write_batch(log.header, batch, log.events)
        finally:
            backend.release(session_id)

    def _write_batch(
        self,
        header: SessionHeader,
        batch: tuple[SessionEvent, ...],
        before: tuple[SessionEvent, ...],
    ) -> None:
        check_batch(header.id, batch, len(before))
        if batch:
            fold = SummaryFold()
            fold.add(before)
            fold.add(batch)
            self._backend.write(header, batch, fold.summary)

    async def load(self, session_id: str) -> StoredSession:
        """See `SessionPersistence.load`."""
        slot = self._slot(session_id)
        async with slot.lock:
            live = slot.live
            if live is not None:
                self._refuse_open_turn(live)
                await self._drain(live)
                if not live.gone:
                    self._refuse_open_turn(live)
                    if not live.stored:
                        raise StoredSessionNotFound(session_id)
                    return StoredSession(live.session.header, live.session.events[:])
                self._retire(live)
            slot.loading = True
            try:
                log = await self._run(lambda: self._load(session_id), session_id, "read")
            finally:
                slot.loading = False
            self._loaded[session_id] = log
            while len(self._loaded) > _KEPT:
                self._loaded.popitem(last=False)
            return StoredSession(log.header, log.events)

    def _load(self, session_id: str) -> StoredLog:
        """Read a log and store its repair."""
        backend = self._backend
        if backend.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        backend.acquire(session_id)
        try:
            log = backend.read(session_id)
            if log.rest is not None:
                backend.cut(log)
            closers = interrupted_turn_closers(log.events)
            if closers:
                self._write_batch(log.header, closers, log.events)
            elif log.rest is None:
                return log
            revision = backend.revision(session_id) or log.revision
            return StoredLog(log.header, (*log.events, *closers), revision)
        finally:
            backend.release(session_id)

    async def inspect(self, session_id: str) -> StoredSession:
        """See `SessionPersistence.inspect`."""
        log = await self._run(lambda: self._backend.read(session_id), session_id, "read")
        return StoredSession(log.header, repaired(log.events))

    async def read_from(self, session_id: str, from_seq: int) -> tuple[SessionEvent, ...]:
        """See `SessionPersistence.read_from`."""
        start = check_from_seq(from_seq)
        return await self._run(
            lambda: self._backend.read_from(session_id, start), session_id, "read"
        )

    async def list(self, *, archived: bool = False) -> tuple[SessionHeader, ...]:
        """See `SessionPersistence.list`."""
        return tuple(item.header for item in await self.list_snapshots(archived=archived))

    async def list_snapshots(self, *, archived: bool = False) -> tuple[SessionSnapshot, ...]:
        """See `SessionPersistence.list_snapshots`."""
        return await self._run(lambda: tuple(self._backend.list(archived)), "*", "listed")

    async def archive(self, session_id: str) -> None:
        """See `SessionPersistence.archive`."""
        await self._change(
            session_id, "archived", lambda: self._backend.set_archived(session_id, True)
        )

    async def unarchive(self, session_id: str) -> None:
        """See `SessionPersistence.unarchive`."""

        def act() -> None:
            self._backend.set_archived(session_id, False)

        slot = self._slot(session_id)
        if slot.live is not None:  # a session may go on while it is put away
            await self._run(act, session_id, "taken back")
        else:
            await self._change(session_id, "taken back", act)

    async def remove(self, session_id: str) -> None:
        """See `SessionPersistence.remove`."""
        await self._change(session_id, "removed", lambda: self._backend.remove(session_id))

    async def verify(self, session_id: str) -> IntegrityReport:
        """See `SessionPersistence.verify`."""
        return await self._run(lambda: self._backend.verify(session_id), session_id, "read")

    async def salvage(self, session_id: str) -> IntegrityReport:
        """See `SessionPersistence.salvage`."""
        return await self._change(session_id, "salvaged", lambda: self._backend.salvage(session_id))

    def locate(self, header: SessionHeader) -> str | None:
        """See `SessionPersistence.locate`."""
        return self._backend.locate(header)

    @property
    def supports_raw(self) -> bool:
        """See `SessionPersistence.supports_raw`."""
        return self._backend.supports_raw

    async def read_raw(self, session_id: str) -> RawArtifact | None:
        """See `SessionPersistence.read_raw`."""
        return await self._run(lambda: self._backend.read_raw(session_id), session_id, "read")

    # --- inside ---------------------------------------------------------------------------

    def _slot(self, session_id: str) -> Slot:
        slot = self._slots.get(session_id)
        if slot is None:
            slot = self._slots[session_id] = Slot()
        return slot

    def _refuse_live(self, slot: Slot, session_id: str, deed: str) -> None:
        if slot.live is not None and not slot.live.gone:
            raise SessionInUse(
                f"session {session_id!r} is live and cannot be {deed}", hint="close it first"
            )

    def _refuse_open_turn(self, live: LiveLog) -> None:
        if not live.gone and live.session.turn_open is not None:
            raise SessionInUse(
                f"session {live.session.id!r} is live with turn {live.session.turn_open} open",
                hint="wait until its agent is idle",
            )

    async def _change(self, session_id: str, deed: str, act: Callable[[], T]) -> T:
        """Do something to a stored session that nobody uses."""
        slot = self._slot(session_id)
        async with slot.lock:
            self._refuse_live(slot, session_id, deed)
            if slot.live is not None:
                await self._drain(slot.live)
                self._retire(slot.live)
            self._loaded.pop(session_id, None)
            return await self._run(lambda: self._owned(session_id, act), session_id, deed)

    def _owned(self, session_id: str, act: Callable[[], T]) -> T:
        if self._backend.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        self._backend.acquire(session_id)
        try:
            return act()
        finally:
            self._backend.release(session_id)

    async def _run(self, act: Callable[[], T], session_id: str, deed: str) -> T:
        """Call the backend in a worker thread; a call that has begun is not cancelled."""
        return await anyio.to_thread.run_sync(
            lambda: self._at_once(act, session_id, deed), limiter=self._limiter
        )

    def _at_once(self, act: Callable[[], T], session_id: str, deed: str) -> T:
        with self._guard:
            try:
                if not self._opened:
                    self._backend.open()
                    self._opened = True
                return act()
            except Exception as error:
                told = as_persistence_error(error, session_id, deed)
                if told is error:
                    raise
                raise told from error
