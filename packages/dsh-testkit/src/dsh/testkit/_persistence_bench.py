"""The bench on which a session store is tried."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from dsh.core import App, DshError, PluginLike
from dsh.llm import ToolCallBlock
from dsh.session import (
    APPEND,
    AssistantMessage,
    LiveSessions,
    MessageTrigger,
    Session,
    SessionEvent,
    SessionHeader,
    SessionMeta,
    StepStart,
    ToolCall,
    TurnStart,
    UserSource,
)
from dsh.session.testing import worked_turn
from dsh.session_persistence import SessionPersistence, SessionSnapshot, StoredSession
from dsh.testkit._case import ContractCase, named

__all__ = [
    "OpenStore",
    "PersistenceCase",
    "StoreBench",
    "cases_of",
    "header",
    "interrupted",
    "refused",
    "turn_start",
]

LIMIT_S: Final = 60.0
"""Seconds one case may take; a case that takes longer hangs."""


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A running app with session store and persistence."""

    app: App
    sessions: LiveSessions
    store: SessionPersistence

    def live(self, session_id: str, **meta: Any) -> Session:
        """Create a live session."""
        return self.sessions.create(self.app.ctx, session_id, meta=SessionMeta(**meta))

    def resume(self, stored: StoredSession) -> Session:
        """Go on from a stored session."""
        meta = SessionMeta.of(stored.header)
        return self.sessions.create(self.app.ctx, stored.header.id, seed=stored.events, meta=meta)

    async def fill(self, session_id: str, events: tuple[SessionEvent, ...], **fields: Any) -> None:
        """Store a session that is not live."""
        await self.store.create(header(session_id, **fields))
        await self.store.append(session_id, events)

    async def revision(self, session_id: str) -> str:
        """Return the revision a listing shows for a session."""
        return (await self.snapshot(session_id)).revision

    async def snapshot(self, session_id: str) -> SessionSnapshot:
        """Return what a listing shows for a session."""
        (found,) = [
            item for item in await self.store.list_snapshots() if item.header.id == session_id
        ]
        return found


class StoreBench:
    """One kind of store; each `open` is another app on the same storage."""

    def __init__(self, plugin: PluginLike, config: object) -> None:
        self.plugin = plugin
        self.config = config

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[OpenStore, None]:
        """Run an app with the store, as a process would."""
        async with App() as app:
            await app.mount(LiveSessions).settled()
            await app.mount(self.plugin, self.config).settled()
            yield OpenStore(app, app[LiveSessions], app[SessionPersistence])


@dataclass(frozen=True, slots=True)
class PersistenceCase(ContractCase[StoreBench]):
    """One thing that every session store has to do; call it with the store's plugin."""

    async def __call__(self, plugin: PluginLike, config: object = None) -> None:
        """Try a store.

        Args:
            plugin: The plugin that provides the store.
            config: Its configuration: storage of its own, empty, that lasts from app to app.

        Raises:
            AssertionError: The store does not do it.
            TimeoutError: It hangs.
        """
        with anyio.fail_after(LIMIT_S):
            await self.check(StoreBench(plugin, config))


def cases_of(*checks: Any) -> tuple[PersistenceCase, ...]:
    """Make cases of functions, named like them."""
    return tuple(PersistenceCase(named(check), check) for check in checks)


def header(session_id: str, **fields: Any) -> SessionHeader:
    """Return a header that can be stored."""
    return replace(SessionHeader(id=session_id, created_at=1_700_000_000_000), **fields)


def turn_start(turn: int) -> TurnStart:
    """Return what opens a turn."""
    return TurnStart(turn, MessageTrigger(UserSource()))


def interrupted(*calls: str, started: tuple[str, ...] = ()) -> tuple[SessionEvent, ...]:
    """Return a log that breaks off in the first step of its second turn.

    Args:
        calls: Ids of the tool calls of the last message; without any there is no message.
        started: Those of them that had begun.
    """
    session = Session("broken-off", worked_turn())
    session.append(turn_start(2))
    session.append(StepStart(2, 1))
    if calls:
        blocks = tuple(ToolCallBlock(call, "echo", "{}") for call in calls)
        session.append(AssistantMessage(2, 1, blocks), APPEND)
    for call in started:
        session.append(ToolCall(2, 1, call, "echo", "{}"))
    return session.events[:]


async def refused(step: Awaitable[object], kind: type[DshError], code: str) -> DshError:
    """Fail unless a call raises this error; return it."""
    caught: DshError | None = None
    try:
        await step
    except kind as error:
        caught = error
    assert caught is not None, f"nothing was refused, expected {kind.__name__} with code {code}"
    assert caught.code == code, f"refused with code {caught.code}, expected {code}: {caught}"
    return caught
