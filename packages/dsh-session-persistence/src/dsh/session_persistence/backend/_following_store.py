"""The orchestration that every store shares: a store is this and a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread
from pydantic import PositiveInt

from dsh.core import InvalidPluginError, NextStream, PluginConfig, inject, on, settings
from dsh.llm import StreamChunk
from dsh.llm.events import LlmStream
from dsh.session import AssistantChunk, LiveSessions, Session, SessionEvent, SessionHeader
from dsh.session.events import (
    SessionCreated,
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
)
from dsh.session_persistence._integrity import IntegrityReport
from dsh.session_persistence._service import SessionPersistence
from dsh.session_persistence._types import (
    RawArtifact,
    SessionSnapshot,
    StoredSession,
    UnreadableSession,
)
from dsh.session_persistence.backend._acceptance import salvaged, verified
from dsh.session_persistence.backend._backend import Backend, as_persistence_error
from dsh.session_persistence.backend._checks import (
    check_from_seq,
    check_header,
    detached,
    repaired,
)
from dsh.session_persistence.backend._live_log import LiveLog
from dsh.session_persistence.backend._ownership import Ownership, failure_text
from dsh.session_persistence.backend._write_behind import WriteBehind
from dsh.session_persistence.errors import SessionInUse, StoredSessionNotFound

__all__ = ["BackedPersistence"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_RETRY_S: Final = 5.0
"""Seconds until a session that is gone is tried again, whose last events could not be written."""


class BackedPersistence(SessionPersistence, ABC):
    """A store made of a `Backend`: derive, return the backend, done.

    It follows the live sessions, decides who owns an id, writes behind, repairs what was
    interrupted, and runs the backend in worker threads, one call at a time.

    **Writing behind.** The first event that waits opens a window of `write_after_ms`; at its end
    everything that waits is written as one batch. Chunks of a stream alone may wait longer, for
    `write_chunks_after_ms`: a store keeps many of them in less room than a few, and whatever is
    worth keeping of an answer is followed by an event that is no chunk. `session/flush` does not
    wait for a window, and returns when nothing waits any more, what was added meanwhile included.
    A write that fails in the background is reported once; the events stay, and the next event or
    flush tries again. What a session leaves behind is written at once; where that fails, it is
    tried again every few seconds and when the store is unloaded.

    **Back-pressure.** A session with `max_unwritten` events waiting holds its model stream up
    until they are written; a write that fails there fails the stream.

    **Session creation is synchronous**, and a stored id has to be refused there. So a session
    that is created while a backend call runs waits for it, and the event loop waits too.

    **Sessions that live already** when the store is loaded are taken up by it. One that cannot
    be (its id is stored with another log, another process has it) is reported, and each of its
    flushes tries again and raises.
    """

    class Config(PluginConfig):
        """What every store made of a backend honours."""

        write_after_ms: PositiveInt = 200
        """Milliseconds from the first waiting event to the write, if nobody flushes before."""
        write_chunks_after_ms: PositiveInt = 10_000
        """The same where only chunks of a model's stream wait: a process that dies loses at most
        this much of an unfinished answer."""
        max_unwritten: PositiveInt = 10_000
        """How many events of one session may wait before its model stream is held up."""

    config = settings(Config)
    sessions = inject(LiveSessions)

    @abstractmethod
    def make_backend(self) -> Backend:
        """Return the backend; it is opened when it is first needed."""

    # --- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up the sessions that are live already."""
        self._owners: dict[str, LiveLog] = {}
        self._closing = True  # in case there is no backend
        if not isinstance(self.config, BackedPersistence.Config):  # pyright: ignore[reportUnnecessaryIsInstance]
            name = type(self).__name__
            raise InvalidPluginError(
                f"{name}.Config lacks the settings that all stores share",
                hint=f"derive it: class Config(BackedPersistence.Config), and say "
                f"config = settings(Config) in {name}",
            )
        self._window = self.config.write_after_ms / 1000
        self._chunk_window = self.config.write_chunks_after_ms / 1000
        self._backend = self.make_backend()
        self._ownership = Ownership(self._backend, self._is_live, self._owners)
        self._limiter = anyio.CapacityLimiter(1)
        self._behind = WriteBehind(self._write_behind)
        self._closing = False
        self.ctx.defer(self._close, "close the store")
        self.ctx.spawn(self._behind.run, label="write behind")
        for session in self.sessions.list():
            if session.id not in self._owners:
                try:
                    await self._adopt(session)
                except Exception as error:  # noqa: BLE001 - the others are stored all the same
                    self.ctx.report(error, f"taking up session {session.id!r}")

    async def _close(self) -> None:
        """Write what waits, then let go of the storage."""
        self._closing = True
        errors: list[Exception] = []
        with anyio.CancelScope(shield=True):  # what has the storage must also let go of it
            errors = await anyio.to_thread.run_sync(self._ownership.close, limiter=self._limiter)
        if errors:
            raise ExceptionGroup("the store did not close cleanly", errors)

    # --- live sessions --------------------------------------------------------------------

    @on(SessionCreated)
    def _on_created(self, event: SessionCreated) -> None:
        session = event.session
        if self._closing:
            return
        # the event loop waits, since nobody may see the session before its id is known to be free
        claim = partial(self._ownership.claim, session)
        self._arm(self._ownership.run(claim, failure_text(session.id, "read")))

    @on(SessionEventAppended)
    def _on_event(self, event: SessionEventAppended) -> None:
        live = self._followed(event.session)
        if live is None:
            return
        if live.behind == self.config.max_unwritten // 2:
            self._behind.schedule(live, 0)
        elif type(event.event.data) is not AssistantChunk:
            self._behind.schedule_within(live, self._window)
        elif live.due is None:
            self._behind.schedule(live, self._chunk_window)

    @on(SessionFlush)
    async def _on_flush(self, event: SessionFlush) -> None:
        session = event.session
        live = self._followed(session)
        if live is None:
            if self._closing or not self._is_live(session):
                return
            live = await self._adopt(session)
        await self._write(live)

    @on(SessionDisposed)
    def _on_disposed(self, event: SessionDisposed) -> None:
        live = self._followed(event.session)
        if live is not None:
            self._leave(live)

    @on(LlmStream)
    async def _hold_up(
        self, event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        session_id = event.request.session_id
        async with aclosing(next()) as chunks:
            async for chunk in chunks:
                yield chunk
                live = None if session_id is None else self._owners.get(session_id)
                if live is not None and live.behind >= self.config.max_unwritten:
                    await self._write(live)

    def _is_live(self, session: Session) -> bool:
        return self.sessions.get(session.id) is session

    def _followed(self, session: Session) -> LiveLog | None:
        """Return how far a session is stored; None if it is not live or not followed."""
        live = self._owners.get(session.id)
        return None if live is None or live.gone or live.session is not session else live

    def _arm(self, live: LiveLog) -> None:
        if live.behind:
            self._behind.schedule_within(live, self._window)

    async def _adopt(self, session: Session) -> LiveLog:
        """Follow a session that was live before the store."""
        live = await self._call("read", session.id, self._ownership.claim, session)
        if self._is_live(session):
            self._arm(live)
        elif not live.gone:
            self._leave(live)
        return live

    def _leave(self, live: LiveLog) -> None:
        """Note that a session is gone, and have it written to its end."""
        live.leave()
        self._behind.schedule(live, 0)

    # --- writing --------------------------------------------------------------------------

    async def _write(self, live: LiveLog) -> None:
        """Write everything that waits, what is added meanwhile included."""
        while live.behind:
            try:
                await self._store(live)
            except Exception:
                if live.behind or not self._closing:
                    raise
                # the store is closed, and wrote it then
        if not live.gone:
            self._behind.cancel(live)

    async def _store(self, live: LiveLog) -> None:
        write = self._ownership.finish if live.gone else self._ownership.store
        await self._call("written", live.session.id, write, live)
        live.write_failed = False

    async def _write_behind(self, live: LiveLog) -> None:
        if self._owners.get(live.session.id) is not live:
            return
        try:
            await self._store(live)
        except Exception as error:  # noqa: BLE001 - there is nobody to raise to
            if not live.write_failed:
                live.write_failed = True
                self.ctx.report(error, f"writing session {live.session.id!r} in the background")
            if live.gone and live.due is None:
                self._behind.schedule(live, _RETRY_S)

    # --- the interface --------------------------------------------------------------------

    async def create(self, header: SessionHeader) -> None:
        """See `SessionPersistence.create`."""
        check_header(header)
        await self._call("created", header.id, self._ownership.create, header)

    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """See `SessionPersistence.append`."""
        # the one thing that cannot wait for the thread: the caller may go on and change them
        batch = detached(session_id, events)
        await self._call("written", session_id, self._ownership.append, session_id, batch)

    async def load(self, session_id: str) -> StoredSession:
        """See `SessionPersistence.load`."""
        while True:
            live = self._owners.get(session_id)
            if live is None or live.gone:
                stored = await self._call("read", session_id, self._ownership.load, session_id)
                if stored is not None:
                    return stored
                # it has become live meanwhile
                continue
            self._refuse_open_turn(live)
            await anyio.lowlevel.checkpoint()
            await self._write(live)
            if live.gone:
                continue
            self._refuse_open_turn(live)
            if not live.stored:
                raise StoredSessionNotFound(session_id)
            return StoredSession(live.header, live.session.events[:])

    def _refuse_open_turn(self, live: LiveLog) -> None:
        if live.session.turn_open is not None:
            raise SessionInUse(
                f"session {live.session.id!r} is live with turn {live.session.turn_open} open",
                hint="wait until its agent is idle",
            )

    async def inspect(self, session_id: str) -> StoredSession:
        """See `SessionPersistence.inspect`."""

        def read() -> StoredSession:
            log = self._backend.read(session_id)
            events = repaired(log.events, more_was_lost=log.lost)
            return StoredSession(log.header, events, log.lost)

        return await self._call("read", session_id, read)

    async def read_from(self, session_id: str, from_seq: int) -> tuple[SessionEvent, ...]:
        """See `SessionPersistence.read_from`."""
        start = check_from_seq(from_seq)

        def read() -> tuple[SessionEvent, ...]:
            return tuple(self._backend.read_from(session_id, start))

        return await self._call("read", session_id, read)

    async def list(self, *, archived: bool = False) -> tuple[SessionHeader, ...]:
        """See `SessionPersistence.list`."""
        return tuple(item.header for item in await self.list_snapshots(archived=archived))

    async def list_snapshots(self, *, archived: bool = False) -> tuple[SessionSnapshot, ...]:
        """See `SessionPersistence.list_snapshots`."""

        def read() -> tuple[SessionSnapshot, ...]:
            return tuple(self._backend.list(archived))

        return await self._call("listed", None, read)

    async def unreadable(self) -> tuple[UnreadableSession, ...]:
        """See `SessionPersistence.unreadable`."""

        def read() -> tuple[UnreadableSession, ...]:
            return tuple(self._backend.unreadable())

        return await self._call("listed", None, read)

    async def archive(self, session_id: str) -> None:
        """See `SessionPersistence.archive`."""
        act = partial(self._backend.set_archived, session_id, True)
        await self._change("archived", session_id, act)

    async def unarchive(self, session_id: str) -> None:
        """See `SessionPersistence.unarchive`."""
        await self._call("taken back", session_id, self._ownership.unarchive, session_id)

    async def remove(self, session_id: str) -> None:
        """See `SessionPersistence.remove`."""
        await self._call("removed", session_id, self._ownership.remove, session_id)

    async def verify(self, session_id: str) -> IntegrityReport:
        """See `SessionPersistence.verify`."""
        return await self._call("verified", session_id, verified, self._backend, session_id)

    async def salvage(self, session_id: str) -> IntegrityReport:
        """See `SessionPersistence.salvage`."""
        act = partial(salvaged, self._backend, session_id)
        return await self._change("salvaged", session_id, act)

    def locate(self, header: SessionHeader) -> str | None:
        """See `SessionPersistence.locate`."""
        return self._backend.locate(header)

    @property
    def place(self) -> str | None:
        """See `SessionPersistence.place`."""
        return self._backend.place

    @property
    def supports_raw(self) -> bool:
        """See `SessionPersistence.supports_raw`."""
        return self._backend.supports_raw

    async def read_raw(self, session_id: str) -> RawArtifact | None:
        """See `SessionPersistence.read_raw`."""
        if not self.supports_raw:
            return await super().read_raw(session_id)
        return await self._call("read", session_id, self._backend.read_raw, session_id)

    # --- inside ---------------------------------------------------------------------------

    async def _change(self, attempted: str, session_id: str, act: Callable[[], T]) -> T:
        """Do something to a stored session that nobody uses."""
        change = partial(self._ownership.change, session_id, attempted, act)
        return await self._call(attempted, session_id, change)

    async def _call(
        self,
        attempted: str,
        session_id: str | None,
        fn: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> T:
        """Call `fn(*args)` in a worker thread; a call that has begun is not cancelled."""
        step, failure = partial(fn, *args), failure_text(session_id, attempted)
        return await anyio.to_thread.run_sync(self._in_thread, step, failure, limiter=self._limiter)

    def _in_thread(self, step: Callable[[], T], failure: str) -> T:
        try:
            return self._ownership.run(step, failure)
        except Exception:
            raise
        except BaseException as error:
            # nobody interrupts a worker thread, so the backend did it; it must not end the app
            raise as_persistence_error(error, failure) from error
