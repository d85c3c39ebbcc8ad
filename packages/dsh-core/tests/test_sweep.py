"""Races, enumerated: something is taken away after every number of scheduler steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from dsh.core import App, Context, Emit, Mount, MountState, Plugin, Service, inject

STEPS = 45


class Tick(Emit, name="test-sweep/tick"):
    """A test event."""


class Ledger:
    """What came up must go down, and nothing may be used after it went."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self.errors: list[str] = []

    def up(self, name: str) -> None:
        self.open[name] += 1

    def down(self, name: str) -> None:
        self.open[name] -= 1
        if self.open[name] < 0:
            self.errors.append(f"{name} went down twice")


LEDGER = Ledger()


async def steps(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


class Store(Service, key="sweep-store"):
    """A provider with slow start and stop."""

    closed = True

    async def start(self) -> None:
        await steps(2)
        self.closed = False
        LEDGER.up("store")

        async def close() -> None:
            await steps(2)
            self.closed = True
            LEDGER.down("store")

        self.ctx.defer(close)
        await steps(1)


class User(Plugin):
    """A consumer that uses its provider to the last moment."""

    store = inject(Store)

    async def start(self) -> None:
        store = self.store
        LEDGER.up("user")

        async def down() -> None:
            await steps(2)
            if store.closed:
                LEDGER.errors.append("the user found its store closed")
            LEDGER.down("user")

        self.ctx.defer(down)
        self.ctx.on(Tick, lambda event: None)
        await steps(2)
        await self.ctx.mount(child).settled()
        self.ctx.spawn(anyio.sleep_forever)


async def child(ctx: Context, config: object) -> AsyncGenerator[None, None]:
    LEDGER.up("child")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        yield
        tasks.cancel_scope.cancel()
    LEDGER.down("child")


async def dispose_store(app: App, store: Mount, user: Mount) -> None:
    await store.dispose()
    app.mount(Store)


async def dispose_user(app: App, store: Mount, user: Mount) -> None:
    await user.dispose()


async def restart_store(app: App, store: Mount, user: Mount) -> None:
    await store.restart()


async def restart_both(app: App, store: Mount, user: Mount) -> None:
    user.request_restart()
    store.request_restart()


async def abandon_wait(app: App, store: Mount, user: Mount) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.dispose()


ACTIONS: list[Callable[[App, Mount, Mount], Awaitable[None]]] = [
    dispose_store,
    dispose_user,
    restart_store,
    restart_both,
    abandon_wait,
]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
async def test_taking_something_away_at_every_step(action: Any) -> None:
    for count in range(STEPS):
        LEDGER.__init__()
        app = App()
        with anyio.fail_after(10):
            async with app:
                user = app.mount(User)
                store = app.mount(Store)
                await steps(count)
                await action(app, store, user)
                await steps(60)
                if user.state is not MountState.DISPOSED and app.get(Store) is not None:
                    assert user.state is MountState.ACTIVE
        assert LEDGER.errors == []
        assert +LEDGER.open == Counter()
        assert app.mounts == ()
        assert app.root.state is MountState.DISPOSED
        assert len(app.channel(Tick)) == 0
        assert app.services.keys() == []


async def test_leaving_the_app_at_every_step() -> None:
    for count in range(STEPS):
        LEDGER.__init__()
        with anyio.fail_after(10):
            async with App() as app:
                app.mount(User)
                app.mount(Store)
                await steps(count)
        assert LEDGER.errors == []
        assert +LEDGER.open == Counter()


async def test_cancelling_the_app_at_every_step() -> None:
    for count in range(STEPS):
        LEDGER.__init__()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:

                async def run() -> None:
                    async with App() as app:
                        app.mount(User)
                        app.mount(Store)
                        await anyio.sleep_forever()

                tasks.start_soon(run)
                await steps(count)
                tasks.cancel_scope.cancel()
        assert LEDGER.errors == []
        assert +LEDGER.open == Counter()
