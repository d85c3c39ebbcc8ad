"""Leaving the app: graceful, interrupted, stuck."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from dsh.core import App, Context, DshError, MountState


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
