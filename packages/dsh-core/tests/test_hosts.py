"""Resources, generators, set-ups and background tasks in tasks of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from dsh.core import (
    App,
    AppStateError,
    Context,
    Failure,
    InvalidEffectError,
    InvalidPluginError,
    MountState,
    Plugin,
    ProcessExitError,
    ResourceEndedError,
    Service,
    StrayCancellationError,
    inject,
)


class Store(Service, key="test-hosts-store"):
    """A test service."""


def watch(app: App) -> list[Failure]:
    """Collect what is contained."""
    failures: list[Failure] = []
    app.on_error(app.ctx, failures.append)
    return failures


# -- context managers ----------------------------------------------------------------------------


async def test_cancelling_an_entering_leaves_nothing() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def slow() -> AsyncGenerator[None, None]:
        log.append("entering")
        try:
            await anyio.sleep_forever()
            yield
        finally:
            log.append("left")

    async with App() as app:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.ctx.enter, slow())
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert log == ["entering", "left"]
        assert app.root.effects == ()


async def test_unloading_waits_for_an_entering_under_way_and_leaves_it() -> None:
    log: list[str] = []
    gate = anyio.Event()

    @asynccontextmanager
    async def slow() -> AsyncGenerator[str, None]:
        await gate.wait()
        log.append("entered")
        yield "value"
        log.append("left")

    async def plugin(ctx: Context, config: object) -> None:
        async def work() -> None:
            with anyio.CancelScope(shield=True):
                log.append(await ctx.enter(slow()))

        ctx.spawn(work)

    async with App() as app, anyio.create_task_group() as tasks:
        mount = await app.mount(plugin).settled()
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(mount.dispose)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert log == ["entered", "left", "value"] or log == ["entered", "value", "left"]


async def test_a_resource_that_ends_by_itself_fails_the_plugin() -> None:
    scopes: list[anyio.CancelScope] = []

    async def plugin(ctx: Context, config: object) -> AsyncGenerator[None, None]:
        async with anyio.create_task_group() as tasks:
            scopes.append(tasks.cancel_scope)
            yield

    async with App() as app:
        failures = watch(app)
        mount = await app.mount(plugin).settled()
        scopes[0].cancel()
        await mount.wait_state(MountState.FAILED)
        assert isinstance(mount.error, ResourceEndedError)
        assert len(failures) == 1


async def test_a_broken_resource_is_reported_once() -> None:
    boom = anyio.Event()

    async def crash() -> None:
        await boom.wait()
        raise RuntimeError("gone")

    async def plugin(ctx: Context, config: object) -> None:
        group = await ctx.enter(anyio.create_task_group())
        group.start_soon(crash)

    async with App() as app:
        failures = watch(app)
        mount = await app.mount(plugin).settled()
        boom.set()
        await mount.wait_state(MountState.FAILED)
        assert [failure.where for failure in failures] == ["a resource of the plugin broke"]


# -- generators ----------------------------------------------------------------------------------


async def test_a_generator_without_a_yield_fails_its_mount() -> None:
    async def plugin(ctx: Context, config: object) -> AsyncGenerator[None, None]:
        if config == "never":
            yield

    async with App() as app:
        with pytest.raises(InvalidPluginError, match="without a yield"):
            await app.mount(plugin).settled()


async def test_a_second_yield_is_reported_and_the_generator_closed_in_its_own_task() -> None:
    tasks_seen: list[int] = []

    async def plugin(ctx: Context, config: object) -> AsyncGenerator[None, None]:
        tasks_seen.append(anyio.get_current_task().id)
        try:
            yield
            yield
        finally:
            tasks_seen.append(anyio.get_current_task().id)

    async with App() as app:
        failures = watch(app)
        mount = await app.mount(plugin).settled()
        await mount.dispose()
        assert len(tasks_seen) == 2
        assert tasks_seen[0] == tasks_seen[1]
        assert [type(failure.error) for failure in failures] == [InvalidPluginError]


async def test_a_generator_whose_tail_raises_is_reported_and_gone() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> AsyncGenerator[None, None]:
        ctx.defer(lambda: log.append("older"))
        yield
        raise ValueError("tail")

    async with App() as app:
        failures = watch(app)
        mount = await app.mount(plugin).settled()
        await mount.dispose()
        assert mount.state is MountState.DISPOSED
        assert log == ["older"]
        assert [str(failure.error) for failure in failures] == ["tail"]


async def test_the_start_of_a_class_may_return_any_body() -> None:
    log: list[str] = []

    class Generating(Plugin):
        async def start(self) -> Any:
            log.append("up")
            yield
            log.append("down")

    async with App() as app:
        mount = await app.mount(Generating).settled()
        await mount.dispose()
    assert log == ["up", "down"]


# -- set-ups -------------------------------------------------------------------------------------


async def test_a_set_up_that_fails_unawaited_is_reported() -> None:
    async def body() -> None:
        raise ValueError("no")

    async with App() as app:
        failures = watch(app)
        effect = app.ctx.effect(body, "body")
        await anyio.wait_all_tasks_blocked()
        assert [failure.where for failure in failures] == ["set-up of body"]
        assert isinstance(failures[0].error, ValueError)
        assert effect not in app.root.effects
        with pytest.raises(ValueError, match="no"):
            await effect


async def test_a_set_up_that_fails_after_whoever_awaited_it_has_left_is_reported() -> None:
    gate = anyio.Event()

    async def body() -> None:
        await gate.wait()
        raise ValueError("no")

    async with App() as app:
        failures = watch(app)
        effect = app.ctx.effect(body, "body")
        with anyio.move_on_after(0):
            await effect
        gate.set()
        await anyio.wait_all_tasks_blocked()
        assert [failure.where for failure in failures] == ["set-up of body"]


async def test_a_set_up_that_fails_while_awaited_is_raised_only() -> None:
    async def body() -> None:
        raise ValueError("no")

    async with App() as app:
        failures = watch(app)
        with pytest.raises(ValueError, match="no"):
            await app.ctx.effect(body)
        assert failures == []


async def test_a_composite_with_a_set_up_under_way_is_not_undone_at_once() -> None:
    log: list[str] = []
    gate = anyio.Event()
    async with App() as app:

        async def set_up() -> Callable[[], object]:
            await gate.wait()
            return lambda: log.append("down")

        def body() -> Generator[Any, None, None]:
            yield app.ctx.effect(set_up)

        composite = app.ctx.effect(body)
        with pytest.raises(InvalidEffectError):
            composite.dispose_nowait()
        assert not composite.disposed
        gate.set()
        await composite.dispose()
    assert log == ["down"]


async def test_an_async_cleanup_in_disguise_is_not_lost() -> None:
    log: list[str] = []

    async def close() -> None:
        log.append("closed")

    async with App() as app:
        failures = watch(app)

        def body() -> Generator[Any, None, None]:
            yield lambda: close()
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            app.ctx.effect(body)
        await anyio.wait_all_tasks_blocked()
        assert log == ["closed"]
        assert len(failures) == 1
        effect = app.ctx.defer(lambda: close())
        with pytest.raises(InvalidEffectError, match="background"):
            effect.dispose_nowait()
        await anyio.wait_all_tasks_blocked()
        assert log == ["closed", "closed"]


async def test_a_bad_step_closes_the_generator_that_gave_it() -> None:
    log: list[str] = []

    def body() -> Generator[Any, None, None]:
        try:
            yield lambda: log.append("undone")
            yield 3
        finally:
            log.append("closed")

    async with App() as app:
        with pytest.raises(InvalidEffectError):
            app.ctx.effect(body)
    assert log == ["closed", "undone"]


async def test_what_is_over_takes_nothing_over() -> None:
    async with App() as app:
        composite = app.ctx.effect(lambda: None)
        await composite.dispose()
        late = app.ctx.defer(lambda: None)
        with pytest.raises(InvalidEffectError, match="is over"):
            composite.collect(late)
        assert app.root.effects == (late,)
        gone = app.ctx.defer(lambda: None)
        await gone.dispose()
        other = app.ctx.effect(lambda: None)
        other.collect(gone)
        assert other.children == ()


async def test_an_interrupted_disposal_goes_on_elsewhere() -> None:
    log: list[str] = []
    async with App() as app:
        failures = watch(app)

        def body() -> Generator[Any, None, None]:
            yield lambda: log.append("older")
            yield interrupt

        async def interrupt() -> None:
            raise KeyboardInterrupt

        effect = app.ctx.effect(body)
        with pytest.raises(KeyboardInterrupt):
            await effect.dispose()
        await anyio.wait_all_tasks_blocked()
        assert log == ["older"]
        assert effect.disposed
        assert failures == []


# -- background tasks ----------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
async def test_a_task_that_fails_the_plugin_while_it_loads(restart: bool) -> None:
    gate = anyio.Event()
    starts: list[int] = []

    async def crash() -> None:
        raise ValueError("no")

    async def plugin(ctx: Context, config: object) -> None:
        starts.append(1)
        if len(starts) == 1:
            ctx.spawn(crash, on_error="fail")
            await gate.wait()

    async with App() as app:
        mount = app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        if restart:
            mount.request_restart()
        gate.set()
        if restart:
            assert (await mount.settled()).state is MountState.ACTIVE
            return
        with pytest.raises(ValueError, match="no"):
            await mount.settled()
        assert mount.state is MountState.FAILED
        await mount.restart()
        assert mount.state is MountState.ACTIVE


async def test_a_task_that_fails_while_it_is_stopped_is_only_reported() -> None:
    open_to: list[bool] = [True]
    starts: list[int] = []

    async def fragile() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("no")

    class User(Plugin):
        store = inject(Store)

        async def start(self) -> None:
            starts.append(1)
            self.ctx.spawn(fragile, on_error="fail")

    async with App() as app:
        failures = watch(app)
        registration = app.ctx.provide(Store, Store(app.ctx), check=lambda ctx: open_to[0])
        mount = await app.mount(User).settled()
        await anyio.wait_all_tasks_blocked()
        for open_to[0] in (False, True):
            registration.notify()
            await mount.settled()
        assert mount.state is MountState.ACTIVE
        assert starts == [1, 1]
        assert [str(failure.error) for failure in failures] == ["no"]


@pytest.mark.parametrize("how", ["spawn", "enter"])
async def test_nothing_is_left_of_what_an_app_that_is_not_running_refuses(how: str) -> None:
    app = App()
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "spawn": lambda: app.ctx.spawn(anyio.sleep_forever),
        "enter": lambda: app.ctx.enter(anyio.create_task_group()),
    }
    with pytest.raises(AppStateError):
        await calls[how]()
    assert app.root.effects == ()


async def test_a_slow_start_may_watch_for_its_end_and_leave_early() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        async def leave() -> None:
            await ctx.stopping()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            await anyio.sleep_forever()
        log.append("left early")

    async with App() as app:
        mount = app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            await mount.dispose()
    assert log == ["left early"]


async def test_code_that_ends_the_process_is_a_failure_of_its_plugin() -> None:
    async def leaves() -> None:
        raise SystemExit(7)

    async def starting(ctx: Context, config: object) -> None:
        raise SystemExit(7)

    async def running(ctx: Context, config: object) -> None:
        ctx.spawn(leaves, on_error="fail")
        ctx.defer(leaves)

    async with App() as app:
        with anyio.fail_after(5):
            for plugin in (starting, running):
                mount = app.mount(plugin)
                await mount.wait_state(MountState.FAILED)
                assert isinstance(mount.error, ProcessExitError)
                assert "7" in str(mount.error)
                assert isinstance(mount.error.__cause__, SystemExit)
                await mount.dispose()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_nobody_asked_for_is_a_failure_of_its_plugin() -> None:
    async def strays() -> None:
        forever = asyncio.ensure_future(asyncio.sleep(3600))
        forever.cancel()
        await forever

    async def starting(ctx: Context, config: object) -> None:
        await strays()

    async def running(ctx: Context, config: object) -> None:
        ctx.spawn(strays, on_error="fail")

    async def entering(ctx: Context, config: object) -> None:
        await ctx.enter(straying(0))

    async def holding(ctx: Context, config: object) -> None:
        await ctx.enter(straying(1))

    @asynccontextmanager
    async def straying(when: int) -> AsyncGenerator[None]:
        if when == 0:
            await strays()
        yield
        await strays()

    async with App() as app:
        other = await app.mount(lambda ctx, config: None).settled()
        with anyio.fail_after(5):
            for plugin in (starting, running, entering):
                mount = app.mount(plugin)
                await mount.wait_state(MountState.FAILED)
                assert isinstance(mount.error, StrayCancellationError)
                assert isinstance(mount.error.__cause__, asyncio.CancelledError)
                await mount.dispose()
            failures = watch(app)
            await (await app.mount(holding).settled()).dispose()
            assert [type(failure.error) for failure in failures] == [StrayCancellationError]
        assert other.state is MountState.ACTIVE
