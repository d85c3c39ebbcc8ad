"""Waits that could never end: they raise at once, and what was to be undone is undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from dsh.core import (
    App,
    Context,
    Effect,
    LifecycleDeadlock,
    Mount,
    MountState,
    Plugin,
    Service,
    inject,
)


class Store(Service, key="test-waits-store"):
    """A test service."""


async def told(wait: Callable[[], Awaitable[object]], log: list[str]) -> None:
    """Wait, and note it where the wait is refused."""
    try:
        await wait()
    except LifecycleDeadlock as error:
        log.append(error.code)


async def test_a_cleanup_that_disposes_its_own_effect_is_told() -> None:
    log: list[str] = []
    async with App() as app:

        async def cleanup() -> None:
            await told(effect.dispose, log)

        effect = app.ctx.defer(cleanup)
        with anyio.fail_after(5):
            await effect.dispose()
        assert effect.disposed
    assert log == ["LIFECYCLE_DEADLOCK"]


async def test_effects_whose_cleanups_dispose_each_other_are_told() -> None:
    log: list[str] = []
    async with App() as app:

        async def first() -> None:
            await two.dispose()

        async def second() -> None:
            await told(one.dispose, log)

        one, two = app.ctx.defer(first), app.ctx.defer(second)
        with anyio.fail_after(5):
            await one.dispose()
        assert one.disposed
        assert two.disposed
    assert log == ["LIFECYCLE_DEADLOCK"]


async def test_a_cleanup_that_disposes_its_owner_is_told_whoever_runs_it() -> None:
    log: list[str] = []
    effects: list[Effect] = []

    async def plugin(ctx: Context, config: object) -> None:
        async def cleanup() -> None:
            await told(ctx.owner.dispose, log)

        effects.append(ctx.defer(cleanup))

    async with App() as app:
        mount = await app.mount(plugin).settled()
        with anyio.fail_after(5):
            await effects[0].dispose()
            await mount.restart()
            await mount.dispose()
    assert log == ["LIFECYCLE_DEADLOCK"] * 2


async def test_a_set_up_that_waits_for_its_owner_is_told() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        async def body() -> Callable[[], object]:
            await told(ctx.owner.dispose, log)
            return lambda: log.append("undone")

        await ctx.effect(body)

    async with App() as app:
        with anyio.fail_after(5):
            mount = await app.mount(plugin).settled()
            await mount.dispose()
    assert log == ["LIFECYCLE_DEADLOCK", "undone"]


async def test_a_child_that_waits_through_a_generator_body_is_told() -> None:
    log: list[str] = []
    parents: list[Mount] = []

    async def child(ctx: Context, config: object) -> None:
        await told(parents[0].settled, log)

    async def parent(ctx: Context, config: object) -> Any:
        parents.append(ctx.owner)
        await ctx.mount(child).settled()
        yield

    async with App() as app:
        with anyio.fail_after(5):
            await app.mount(parent).settled()
    assert log == ["LIFECYCLE_DEADLOCK"]


async def test_a_long_chain_of_waits_is_followed() -> None:
    log: list[str] = []
    tops: list[Mount] = []

    async def level(ctx: Context, config: Any) -> None:
        if config:
            await ctx.mount(level, config - 1).settled()
        else:
            await told(tops[0].settled, log)

    async with App() as app:
        tops.append(app.mount(level, 1200))
        with anyio.fail_after(30):
            await tops[0].settled()
        assert len(app.mounts) == 1201
    assert log == ["LIFECYCLE_DEADLOCK"]


async def test_a_timer_may_end_itself_in_its_callback() -> None:
    ticks: list[int] = []
    async with App() as app:

        async def tick() -> None:
            ticks.append(1)
            await timer.dispose()
            await anyio.lowlevel.checkpoint()
            ticks.append(2)

        timer = app.ctx.interval(0, tick)
        with anyio.fail_after(5):
            while not timer.disposed:
                await anyio.lowlevel.checkpoint()
        assert app.root.effects == ()
    assert ticks == [1]


async def test_a_background_task_that_disposes_what_holds_it_is_told_and_ends() -> None:
    log: list[str] = []
    go = anyio.Event()
    async with App() as app:

        async def work() -> None:
            await go.wait()
            try:
                await told(composite.dispose, log)
                await anyio.sleep_forever()
            finally:
                log.append("ended")

        def body() -> Generator[Any, None, None]:
            yield lambda: log.append("older")
            yield app.ctx.spawn(work)

        composite = app.ctx.effect(body, "composite")
        await anyio.wait_all_tasks_blocked()
        go.set()
        with anyio.fail_after(5):
            while app.root.effects:
                await anyio.lowlevel.checkpoint()
        assert composite.disposed
    assert log == ["older", "LIFECYCLE_DEADLOCK", "ended"]


async def test_a_background_task_may_dispose_its_owner() -> None:
    async def plugin(ctx: Context, config: object) -> None:
        ctx.spawn(ctx.owner.dispose)

    async with App() as app:
        with anyio.fail_after(5):
            await app.mount(plugin).wait_state(MountState.DISPOSED)


async def test_a_background_task_that_ends_a_service_it_uses_holds_nobody_up() -> None:
    log: list[str] = []
    async with App() as app:

        class User(Plugin):
            store = inject(Store)

            async def start(self) -> None:
                self.ctx.defer(lambda: log.append("user gone"))
                self.ctx.spawn(registration.dispose)

        user = app.mount(User)
        registration = app.ctx.provide(Store, Store(app.ctx))
        with anyio.fail_after(5):
            while not registration.disposed:
                await anyio.lowlevel.checkpoint()
            await user.settled()
        assert user.state is MountState.PENDING
    assert log == ["user gone"]


async def test_resetting_the_app_from_inside_a_plugin_disposes_that_too() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("gone"))
        await ctx.app.reset()

    async with App() as app:
        app.ctx.defer(lambda: log.append("older"))
        mount = app.mount(plugin)
        with anyio.fail_after(5):
            await mount.wait_state(MountState.DISPOSED)
        assert app.mounts == ()
        assert app.root.effects == ()
    assert log == ["older", "gone"]


async def test_a_composite_disposed_from_within_what_it_holds_is_undone_all_the_same() -> None:
    log: list[str] = []
    go = anyio.Event()
    async with App() as app:

        async def child(ctx: Context, config: object) -> None:
            ctx.defer(lambda: log.append("child gone"))
            await go.wait()
            await told(composite.dispose, log)

        def body() -> Generator[Any, None, None]:
            yield lambda: log.append("older")
            yield app.mount(child).entry

        composite = app.ctx.effect(body, "composite")
        await anyio.wait_all_tasks_blocked()
        go.set()
        with anyio.fail_after(5):
            while app.mounts:
                await anyio.lowlevel.checkpoint()
        assert composite.disposed
        assert app.root.effects == ()
    assert log == ["older", "LIFECYCLE_DEADLOCK", "child gone"]


async def test_an_effect_can_be_disposed_without_waiting() -> None:
    gate = anyio.Event()
    failures: list[str] = []
    async with App() as app:
        app.on_error(app.ctx, lambda failure: failures.append(failure.where))

        async def cleanup() -> None:
            await gate.wait()
            raise ValueError("no")

        effect = app.ctx.defer(cleanup, "the slow one")
        effect.request_dispose()
        await anyio.wait_all_tasks_blocked()
        assert not effect.disposed
        gate.set()
        await anyio.wait_all_tasks_blocked()
        assert effect.disposed
    assert failures == ["cleanup of the slow one"]


async def test_waits_for_effects_are_explained() -> None:
    gate = anyio.Event()

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(gate.wait, "the stuck one")

    async with App() as app, anyio.create_task_group() as tasks:
        mount = await app.mount(plugin).settled()
        tasks.start_soon(mount.dispose)
        await anyio.wait_all_tasks_blocked()
        waits = [(who, whom) for who, whom, _ in app.explain().waits]
        assert waits == [("plugin", "the stuck one of plugin")]
        assert 0 <= app.explain().waits[0][2] < 60
        gate.set()


@pytest.mark.parametrize("loser", ["scope", "mount"])
async def test_what_is_inside_cannot_wait_for_what_is_around_it(loser: str) -> None:
    log: list[str] = []
    async with App() as app:
        scope = app.ctx.scope(object())

        async def inner(ctx: Context, config: object) -> None:
            assert ctx.owner.parent is not None
            around = scope.dispose if loser == "scope" else ctx.owner.parent.dispose
            await told(around, log)

        with anyio.fail_after(5):
            await scope.ctx.mount(inner).settled()
            await scope.dispose()
    assert log == ["LIFECYCLE_DEADLOCK"]
