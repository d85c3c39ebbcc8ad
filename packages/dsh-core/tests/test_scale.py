"""Many of everything, and nothing left of it: depth, breadth, and cycles that must not grow."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import anyio

from dsh.core import App, Context, Emit, MountState, Plugin, Service, inject


class Store(Service, key="test-scale-store"):
    """A test service."""


class Key:
    """A scope key."""


@dataclass(frozen=True, slots=True)
class About(Emit, name="test-scale/about", scope="key", realm=Store):
    """Something about a key."""

    key: Key | None


async def test_five_hundred_levels_of_mounts() -> None:
    gone: list[int] = []

    async def level(ctx: Context, config: Any) -> None:
        ctx.defer(lambda: gone.append(config))
        if config:
            await ctx.mount(level, config - 1).settled()

    async with App() as app:
        top = await app.mount(level, 500).settled()
        assert len(app.mounts) == 501
        await top.dispose()
        assert app.mounts == ()
    assert gone == list(range(501))


async def test_five_thousand_consumers_of_one_service() -> None:
    class User(Plugin):
        store = inject(Store)

        async def start(self) -> None:
            self.ctx.on(About, lambda event: heard.append(1))

    heard: list[int] = []
    async with App() as app:
        users = [app.mount(User) for _ in range(5000)]
        provider = app.mount(Store)
        for user in users:
            await user.wait_state(MountState.ACTIVE)
        app.ctx.emit(About(None))
        assert len(heard) == 5000
        await provider.dispose()
        assert {user.state for user in users} == {MountState.PENDING}
        assert len(app.channel(About)) == 0


async def test_coming_and_going_leaves_nothing() -> None:
    async def set_up() -> Any:
        return lambda: None

    async def plugin(ctx: Context, config: object) -> None:
        ctx.on(About, lambda event: None)
        ctx.provide(Store, Store(ctx))
        ctx.when((Store,), lambda inner: None)
        ctx.spawn(anyio.sleep_forever)
        ctx.timeout(1000, lambda: None)
        ctx.defer(ctx.subscribe(About).close)
        await ctx.effect(set_up)
        ctx.isolate(Store).emit(About(None))

    async def come_and_go(app: App, parent: Key) -> None:
        key = Key()
        async with app.ctx.scope(key, parent) as scope:
            mount = await scope.ctx.mount(plugin).settled()
            app.ctx.emit(About(key))
            scope.ctx.emit(About(key))
            await mount.restart()
        app.ctx.emit(About(key))

    async with App() as app:
        parent = Key()
        app.ctx.scope(parent)
        for _ in range(50):
            await come_and_go(app, parent)
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(400):
            await come_and_go(app, parent)
        gc.collect()
        assert len(gc.get_objects()) - before < 400
        assert len(app.mounts) == 1
        assert app.services.keys() == []
