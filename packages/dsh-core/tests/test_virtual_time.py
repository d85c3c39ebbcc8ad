"""Timers and the timing of transitions, in virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from dsh.core import App, Context, Failure, Mount, MountState, Plugin, Service, inject


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Slow(Service, key="slow-dependency"):
    """What the consumer below waits for."""


class Consumer(Plugin):
    """Takes a second to start and a second to stop."""

    dependency = inject(Slow)

    async def start(self) -> None:
        SEEN.append(self.dependency)
        await anyio.sleep(1)
        self.ctx.defer(lambda: anyio.sleep(1))


SEEN: list[Slow] = []


async def state_at(mount: Mount, start: float, second: float) -> str:
    await anyio.sleep_until(start + second)
    return mount.state.value


# case: SV-06
async def test_a_dependency_lost_while_loading_unloads_after_the_load() -> None:
    async with App() as app:
        provider = await app.mount(Slow).settled()
        start = anyio.current_time()
        consumer = app.mount(Consumer)
        await anyio.sleep_until(start + 0.4)
        provider.request_dispose()
        assert await state_at(consumer, start, 0.8) == "loading"
        assert await state_at(consumer, start, 1.15) == "unloading"
        await anyio.sleep_until(start + 1.2)
        app.mount(Slow)
        assert await state_at(consumer, start, 2.2) == "loading"
        assert await state_at(consumer, start, 3.2) == "active"


# case: SV-07
async def test_a_re_provided_dependency_reloads_with_the_new_registration() -> None:
    SEEN.clear()
    registrations: list[Any] = []

    async def provider(ctx: Context, config: object) -> None:
        registrations.append(ctx.provide(Slow, Slow(ctx)))

    async with App() as app:
        mount = await app.mount(provider).settled()
        again = Slow(mount.ctx)
        start = anyio.current_time()
        consumer = app.mount(Consumer)
        await anyio.sleep_until(start + 0.4)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(registrations[0].dispose)
            await anyio.sleep_until(start + 0.8)
            mount.ctx.provide(Slow, again)
        await consumer.wait_state(MountState.ACTIVE)
        assert len(SEEN) == 2
        assert SEEN[1] is again


async def test_timeout_and_interval() -> None:
    calls: list[tuple[str, float]] = []
    failures: list[Failure] = []
    async with App() as app:
        app.on_error(app.ctx, failures.append)
        start = anyio.current_time()

        def note(name: str) -> Any:
            return lambda: calls.append((name, round(anyio.current_time() - start, 3)))

        async def plugin(ctx: Context, config: object) -> None:
            ctx.timeout(2, note("once"))
            ctx.interval(1.5, note("every"))
            ctx.timeout(0.5, lambda: 1 / 0)
            ctx.timeout(100, note("never"))

        mount = await app.mount(plugin).settled()
        await anyio.sleep(4)
        await mount.dispose()
        await anyio.sleep(200)
        assert calls == [("every", 1.5), ("once", 2), ("every", 3)]
        assert [f.where for f in failures] == ["timeout"]
        with pytest.raises(ValueError, match="finite"):
            app.ctx.timeout(-1, note("x"))


async def test_debounce_and_throttle() -> None:
    calls: list[tuple[str, float]] = []
    async with App() as app:
        start = anyio.current_time()

        def note(name: str) -> Any:
            return lambda: calls.append((name, round(anyio.current_time() - start, 3)))

        triggers: list[Any] = []

        async def plugin(ctx: Context, config: object) -> None:
            triggers.append(ctx.debounce(1, note("debounced")))
            triggers.append(ctx.throttle(1, note("throttled")))

        mount = await app.mount(plugin).settled()
        for moment in (0, 0.3, 0.6, 5):
            await anyio.sleep_until(start + moment)
            for trigger in triggers:
                trigger()
        await anyio.sleep_until(start + 8)
        await mount.dispose()
        for trigger in triggers:
            trigger()
        await anyio.sleep(5)
    assert calls == [
        ("throttled", 0),
        ("throttled", 1),
        ("debounced", 1.6),
        ("throttled", 5),
        ("debounced", 6),
    ]


async def test_what_a_trigger_runs_may_fail() -> None:
    async with App() as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        app.ctx.debounce(1, lambda: 1 / 0)()
        app.ctx.throttle(2, lambda: 1 / 0)()
        await anyio.sleep(3)
        assert [(type(f.error), f.where) for f in failures] == [
            (ZeroDivisionError, "throttle"),
            (ZeroDivisionError, "debounce"),
        ]
