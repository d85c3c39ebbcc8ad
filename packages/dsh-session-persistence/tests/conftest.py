"""A store on a disk in memory whose calls can be held, and time that only tests move."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from dsh.core import App, Failure, Mount
from dsh.session import (
    LiveSessions,
    MessageTrigger,
    Session,
    SessionEvent,
    SessionHeader,
    SessionMeta,
    TurnStart,
    UserSource,
)
from dsh.session.testing import worked_turn
from dsh.session_persistence import SessionPersistence
from dsh.session_persistence.testing import MemoryDisk, MemoryPersistence

PATIENCE_S: Final = 20.0
"""Seconds after which a thread that is held goes on, so that a failing test ends."""

LOG: Final = worked_turn()


class Gate:
    """Holds the worker thread of a backend call where a test wants it."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.calls: list[tuple[str, str]] = []
        self._loop = threading.get_ident()
        self._held: set[str] = set()
        self._calls_left: int | None = None
        self._reached = threading.Event()
        self._go = threading.Event()
        disk.on_call = self._called

    def hold(self, name: str) -> None:
        """Have the next call of this name wait."""
        self._held.add(name)
        self._reached.clear()
        self._go.clear()

    def hold_call(self, number: int) -> None:
        """Have one of the calls to come wait, 0 is the next."""
        self._calls_left = number
        self._reached.clear()
        self._go.clear()

    def give_up(self) -> None:
        """Let whoever waits for a call go on, and hold none."""
        self._calls_left = None
        self._reached.set()

    async def reached(self) -> None:
        """Wait until a call waits."""
        assert await anyio.to_thread.run_sync(self._reached.wait, PATIENCE_S)

    def let_go(self) -> None:
        """Let the call go on."""
        self._go.set()

    def names(self, session_id: str = "s") -> list[str]:
        """Return the calls about a session so far, except for looking."""
        return [name for name, id in self.calls if id == session_id and name != "revision"]

    def _called(self, name: str, session_id: str) -> None:
        self.calls.append((name, session_id))
        if threading.get_ident() == self._loop:
            return  # which nobody could let go
        if self._calls_left is not None:
            self._calls_left -= 1
        if name in self._held or self._calls_left == -1:
            self._held.discard(name)
            self._calls_left = None
            self._reached.set()
            self._go.wait(PATIENCE_S)


@dataclass(slots=True)
class Bench:
    """A running app with a session store and a store in memory."""

    app: App
    sessions: LiveSessions
    disk: MemoryDisk
    failures: list[Failure] = field(default_factory=list[Failure])
    mount: Mount | None = None

    @property
    def store(self) -> SessionPersistence:
        """The service."""
        return self.app[SessionPersistence]

    async def load_plugin(self, **config: Any) -> Mount:
        """Mount the store."""
        self.mount = self.app.mount(MemoryPersistence, {"disk": self.disk, **config})
        await self.mount.settled()
        return self.mount

    def live(self, id: str = "s", **meta: Any) -> Session:
        """Create a session that lives as long as the app."""
        return self.sessions.create(self.app.ctx, id, meta=SessionMeta(**meta))

    def passing(self, id: str = "s", **options: Any) -> tuple[Session, Callable[[], None]]:
        """Create a session; return what ends it."""
        session = self.sessions.prepare(id, **options)
        entry = self.sessions.enter(self.app.ctx, session)
        try:
            self.sessions.announce(session)
        except BaseException:
            entry.dispose_nowait()
            raise
        return session, entry.dispose_nowait

    def header(self, id: str = "s") -> SessionHeader:
        """Return the header that `fill` stores."""
        return SessionHeader(id=id, created_at=5)

    async def fill(self, id: str = "s") -> None:
        """Store `log` for a session that is not live."""
        await self.store.create(self.header(id))
        await self.store.append(id, LOG)

    async def still(self) -> None:
        """Wait until the background has done what it was woken for."""
        while True:
            await anyio.wait_all_tasks_blocked()
            writes = self.disk.writes
            # calls are made one after the other: the first lets a write begin that waited for it,
            # the second waits for that write
            for _ in range(2):
                await self.store.list()
                await anyio.wait_all_tasks_blocked()
            if writes == self.disk.writes:
                return


@asynccontextmanager
async def opened(
    disk: MemoryDisk | None = None, *, store: bool = True, **config: Any
) -> AsyncGenerator[Bench, None]:
    """Run an app on a disk, as a process would."""
    async with App() as app:
        await app.mount(LiveSessions).settled()
        bench = Bench(app, app[LiveSessions], disk or MemoryDisk())
        app.on_error(app.ctx, bench.failures.append)
        if store:
            await bench.load_plugin(**config)
        yield bench


@pytest.fixture
def open_bench() -> Any:
    """`async with open_bench(disk, **config) as bench`."""
    return opened


@pytest.fixture
def log() -> tuple[SessionEvent, ...]:
    """A complete turn."""
    return LOG


@pytest.fixture
def gate_of() -> type[Gate]:
    """`gate_of(disk)` holds the calls on a disk."""
    return Gate


@pytest.fixture
def open_turn() -> Callable[[Session], None]:
    """Append the beginning of a turn."""

    def append(session: Session) -> None:
        session.append(TurnStart(session.last_turn + 1, MessageTrigger(UserSource())))

    return append
