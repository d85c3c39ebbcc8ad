"""Leaving the app: graceful, interrupted, stuck."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from trio.testing import MockClock

from dsh.core import (
    AbandonedError,
    App,
    Context,
    DshError,
    Failure,
    MountState,
    NextStream,
    StreamWaterfall,
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


# case: PY-07
async def test_a_stuck_cleanup_is_named_and_given_up(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("older"))
        ctx.defer(anyio.sleep_forever, "the stuck one")

    with caplog.at_level(logging.ERROR):
        async with App(teardown_grace_s=2) as app:
            mount = await app.mount(plugin).settled()
            started = anyio.current_time()
            await mount.dispose()
            assert anyio.current_time() - started == pytest.approx(2)
    assert log == ["older"]
    assert "the stuck one" in caplog.text


# case: PY-08
async def test_an_interrupted_boot_disposes_the_partial_app() -> None:
    log: list[str] = []

    async def done(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("done cleaned"))

    async def never(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("never cleaned"))
        await anyio.sleep_forever()

    app = App()
    with anyio.move_on_after(10) as scope:
        async with app:
            await app.mount(done).settled()
            await app.mount(never).settled()
    assert scope.cancelled_caught
    assert log == ["never cleaned", "done cleaned"]
    assert app.root.state is MountState.DISPOSED


async def test_a_start_that_never_ends_is_given_up_after_the_close_grace() -> None:
    async def never(ctx: Context, config: object) -> None:
        await anyio.sleep_forever()

    started = anyio.current_time()
    async with App(close_grace_s=3) as app:
        mount = app.mount(never)
        await anyio.wait_all_tasks_blocked()
        assert mount.state is MountState.LOADING
    assert anyio.current_time() - started == pytest.approx(3)


async def test_the_error_of_the_body_is_passed_on_unwrapped() -> None:
    cleaned: list[int] = []

    async def run() -> None:
        async with App() as app:
            app.ctx.defer(lambda: cleaned.append(1))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await run()
    assert cleaned == [1]


async def test_an_app_runs_once_at_a_time() -> None:
    app = App()
    with pytest.raises(DshError, match="not running"):
        app.mount(lambda ctx, config: None)
    async with app:
        with pytest.raises(DshError, match="entered already"):
            await app.__aenter__()


class Numbers(StreamWaterfall[int], name="test-shutdown/numbers"):
    """A stream of numbers."""


@asynccontextmanager
async def stuck_entering() -> AsyncGenerator[None, None]:
    await anyio.sleep_forever()
    yield


@asynccontextmanager
async def stuck_leaving() -> AsyncGenerator[None, None]:
    yield
    await anyio.sleep_forever()


async def enters_never(ctx: Context, config: object) -> None:
    await ctx.enter(stuck_entering())


async def leaves_never(ctx: Context, config: object) -> None:
    await ctx.enter(stuck_leaving())


async def yields_never(ctx: Context, config: object) -> AsyncGenerator[None, None]:
    await anyio.sleep_forever()
    yield


async def sets_up_never(ctx: Context, config: object) -> None:
    ctx.effect(anyio.sleep_forever)


@pytest.mark.parametrize("plugin", [enters_never, leaves_never, yields_never, sets_up_never])
async def test_whatever_is_stuck_is_cancelled_when_it_is_given_up(
    plugin: Callable[..., Any],
) -> None:
    older: list[int] = []
    started = anyio.current_time()
    async with App(teardown_grace_s=2, close_grace_s=3) as app:
        app.ctx.defer(lambda: older.append(1))
        app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
    assert older == [1]
    assert anyio.current_time() - started <= 5


async def test_a_set_up_that_comes_too_late_is_undone_at_once() -> None:
    log: list[str] = []

    async def set_up() -> Callable[[], object]:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(10)
        log.append("up")
        return lambda: log.append("down")

    async def plugin(ctx: Context, config: object) -> None:
        ctx.effect(set_up, "set-up")

    async with App(teardown_grace_s=2) as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        mount = await app.mount(plugin).settled()
        await mount.dispose()
        assert log == []
        assert [type(failure.error) for failure in failures] == [AbandonedError]
        await anyio.sleep(10)
        assert log == ["up", "down"]


async def test_a_stream_that_is_stuck_closing_is_given_up() -> None:
    async def layer(event: Numbers, next: NextStream[int]) -> AsyncGenerator[int, None]:
        async for number in next():
            yield number

    async def source(event: Numbers) -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await anyio.sleep_forever()

    async with App(teardown_grace_s=2) as app:
        app.ctx.on(Numbers, layer)
        started = anyio.current_time()
        with pytest.raises(AbandonedError, match="did not close"):
            async with aclosing(app.ctx.stream(Numbers(), source)) as stream:
                await anext(stream)
        assert anyio.current_time() - started == pytest.approx(2)


async def test_an_interrupt_in_a_start_disposes_everything_first() -> None:
    log: list[str] = []

    async def interrupted(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("interrupted cleaned"))
        raise KeyboardInterrupt

    async def other(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("other cleaned"))

    app = App()

    async def run() -> None:
        async with app:
            await app.mount(other).settled()
            await app.mount(interrupted).settled()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(KeyboardInterrupt)
    assert log == ["interrupted cleaned", "other cleaned"]
    assert app.root.state is MountState.DISPOSED


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_interrupt_ends_an_app_whose_other_mounts_have_not_begun(backend: str) -> None:
    log: list[str] = []
    apps: list[App] = []

    async def interrupted(ctx: Context, config: object) -> None:
        raise KeyboardInterrupt

    async def late(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("late cleaned"))

    async def outer(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("outer cleaned"))
        inner = ctx.mount(late)
        ctx.mount(interrupted)
        await anyio.lowlevel.checkpoint()
        await inner.settled()

    async def run() -> None:
        async with App() as app:
            apps.append(app)
            app.mount(outer)
            app.mount(interrupted)
            await anyio.sleep_forever()

    # as a program is run: the loop itself ends over the interrupt, and cancels whatever it has
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
        anyio.run(run, backend=backend)
    found = caught.value
    assert isinstance(found, KeyboardInterrupt) or caught.group_contains(KeyboardInterrupt)
    assert apps[0].root.state is MountState.DISPOSED
    assert "outer cleaned" in log
    # what the loop has killed before it began is told here, not in the middle of another test
    gc.collect()


async def test_an_app_inside_a_plugin_goes_with_it() -> None:
    log: list[str] = []

    async def inner(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("inner"))

    async def outer(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("older"))
        nested = await ctx.enter(App())
        await nested.mount(inner).settled()
        ctx.defer(lambda: log.append("newer"))

    async with App() as app:
        await app.mount(outer).settled()
    assert log == ["newer", "inner", "older"]


async def test_resetting_survives_failing_cleanups_and_a_cancelled_caller() -> None:
    log: list[str] = []

    async def slow() -> None:
        await anyio.sleep(1)
        log.append("slow")

    async def fails() -> None:
        raise ValueError("no")

    async with App() as app:
        app.ctx.defer(lambda: log.append("oldest"))
        app.ctx.defer(fails)
        app.ctx.defer(slow)
        with anyio.move_on_after(0.5):
            await app.reset()
        await app.reset()
        assert log == ["slow", "oldest"]
        assert app.root.effects == ()
        assert app.root.state is MountState.ACTIVE
