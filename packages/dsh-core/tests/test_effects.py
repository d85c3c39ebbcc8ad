"""Effects: what a body may give, the order of cleanup, joined disposal."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator
from typing import Any

import anyio
import pytest

from dsh.core import (
    App,
    Context,
    Effect,
    InactiveContextError,
    InvalidEffectError,
    MountState,
)


async def host(app: App, body: Any) -> Any:
    """Mount a function plugin and wait until it is active."""
    mount = app.mount(body)
    await mount.settled()
    return mount


async def idle(ctx: Context, config: object) -> None:
    """A plugin that does nothing."""


# case: EF-01
async def test_a_labelled_effect_is_shown_and_cleaned_once() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ctx.effect(lambda: lambda: log.append("clean"), "test")

    async with App() as app:
        mount = await host(app, plugin)
        assert [effect.tree() for effect in mount.effects] == ["test"]
        await mount.dispose()
        await mount.dispose()
        assert log == ["clean"]
        assert mount.effects == ()


# case: EF-02
async def test_an_effect_of_the_root_can_be_disposed_by_hand() -> None:
    log: list[str] = []
    async with App() as app:
        effect = app.ctx.effect(lambda: lambda: log.append("clean"))
        await effect.dispose()
        await effect.dispose()
        assert log == ["clean"]
        assert app.root.effects == ()


# case: EF-03
async def test_a_composite_nests_what_it_takes_over_and_unwinds_newest_first() -> None:
    log: list[str] = []
    async with App() as app:
        ctx = app.ctx

        def inner() -> Generator[Any, None, None]:
            yield ctx.defer(lambda: log.append("inner listener"), "listener 2")
            yield lambda: log.append("d3")

        def outer() -> Generator[Any, None, None]:
            yield lambda: log.append("d1")
            yield ctx.defer(lambda: log.append("listener"), "listener 1")
            yield lambda: log.append("d2")
            yield ctx.effect(inner, "nested")

        effect = ctx.effect(outer, "outer")
        assert effect.tree() == "outer\n  listener 1\n  nested\n    listener 2"
        assert app.root.effects == (effect,)
        await effect.dispose()
        assert log == ["d3", "inner listener", "d2", "listener", "d1"]


# case: EF-04
async def test_an_async_body_sets_up_then_cleans_up() -> None:
    log: list[str] = []

    async def body() -> Any:
        await anyio.lowlevel.checkpoint()
        log.append("up")
        return lambda: log.append("down")

    async with App() as app:
        effect = app.ctx.effect(body)
        await effect
        await effect.dispose()
    assert log == ["up", "down"]


# case: EF-05
async def test_disposal_during_async_setup_waits_for_it() -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def body() -> Any:
        await gate.wait()
        log.append("up")
        return lambda: log.append("down")

    async with App() as app, anyio.create_task_group() as tasks:
        effect = app.ctx.effect(body)
        tasks.start_soon(effect.dispose)
        await anyio.wait_all_tasks_blocked()
        assert log == []
        gate.set()
        await effect.dispose()
        assert log == ["up", "down"]


def stepper(log: list[str], gates: list[anyio.Event]) -> Any:
    async def body() -> AsyncGenerator[Any, None]:
        for number, gate in enumerate(gates, start=1):
            await gate.wait()
            log.append(f"up {number}")
            yield _record(log, f"down {number}")

    return body


def _record(log: list[str], text: str) -> Any:
    return lambda: log.append(text)


# case: EF-06
# case: EF-09
async def test_an_async_composite_unwinds_in_reverse() -> None:
    log: list[str] = []
    gates = [anyio.Event() for _ in range(3)]
    for gate in gates:
        gate.set()
    async with App() as app:
        effect = app.ctx.effect(stepper(log, gates))
        assert await effect is effect
        await effect.dispose()
    assert log == ["up 1", "up 2", "up 3", "down 3", "down 2", "down 1"]


# case: EF-07
async def test_disposal_before_the_first_yield_keeps_only_that_step() -> None:
    log: list[str] = []
    gates = [anyio.Event() for _ in range(3)]
    async with App() as app, anyio.create_task_group() as tasks:
        effect = app.ctx.effect(stepper(log, gates))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(effect.dispose)
        await anyio.wait_all_tasks_blocked()
        for gate in gates:
            gate.set()
        await effect.dispose()
        assert log == ["up 1", "down 1"]


# case: EF-08
async def test_disposal_in_the_middle_finishes_the_step_under_way() -> None:
    log: list[str] = []
    gates = [anyio.Event() for _ in range(3)]
    gates[0].set()
    async with App() as app, anyio.create_task_group() as tasks:
        effect = app.ctx.effect(stepper(log, gates))
        await anyio.wait_all_tasks_blocked()
        assert log == ["up 1"]
        tasks.start_soon(effect.dispose)
        await anyio.wait_all_tasks_blocked()
        gates[1].set()
        gates[2].set()
        await effect.dispose()
        assert log == ["up 1", "up 2", "down 2", "down 1"]


# case: EF-10
async def test_a_sync_body_that_raises_leaves_nothing() -> None:
    def body() -> None:
        raise ValueError("no")

    async with App() as app:
        with pytest.raises(ValueError, match="no"):
            app.ctx.effect(body)
        assert app.root.effects == ()


# case: EF-11
async def test_a_generator_that_raises_is_rolled_back() -> None:
    log: list[str] = []

    def body() -> Generator[Any, None, None]:
        yield lambda: log.append("d1")
        raise ValueError("no")

    async with App() as app:
        with pytest.raises(ValueError, match="no"):
            app.ctx.effect(body)
        assert log == ["d1"]
        assert app.root.effects == ()


# case: EF-12
async def test_an_async_body_that_raises_tells_whoever_awaits_it() -> None:
    async def body() -> None:
        raise ValueError("no")

    async with App() as app:
        effect = app.ctx.effect(body)
        with pytest.raises(ValueError, match="no"):
            await effect
        assert app.root.effects == ()


# case: EF-13
async def test_an_async_generator_that_raises_is_rolled_back() -> None:
    log: list[str] = []

    async def body() -> AsyncGenerator[Any, None]:
        yield lambda: log.append("d1")
        raise ValueError("no")

    async with App() as app:
        effect = app.ctx.effect(body)
        with pytest.raises(ValueError, match="no"):
            await effect
        assert log == ["d1"]
        assert app.root.effects == ()


# case: EF-14
@pytest.mark.parametrize("result", [1, "a", {}, True])
async def test_a_body_that_gives_no_cleanup_is_refused(result: Any) -> None:
    def generator() -> Generator[Any, None, None]:
        yield result

    async with App() as app:
        with pytest.raises(InvalidEffectError):
            app.ctx.effect(lambda: result)
        with pytest.raises(TypeError):
            app.ctx.effect(generator)
        assert app.root.effects == ()
        app.ctx.effect(lambda: None)


# case: EF-15
async def test_a_restart_from_inside_async_setup_waits_for_setup_and_cleanup() -> None:
    log: list[str] = []
    loads: list[int] = []

    async def plugin(ctx: Context, config: object) -> None:
        loads.append(1)
        if len(loads) > 1:
            return

        async def body() -> Any:
            ctx.owner.request_restart()
            await anyio.lowlevel.checkpoint()
            log.append("up")

            async def down() -> None:
                await anyio.lowlevel.checkpoint()
                log.append("down")

            return down

        ctx.effect(body)

    async with App() as app:
        mount = app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        await mount.settled()
        assert log == ["up", "down"]
        assert len(loads) == 2
        assert mount.effects == ()


# case: EF-16
async def test_an_async_rollback_is_waited_for_by_the_unload() -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def plugin(ctx: Context, config: object) -> None:
        def body() -> Generator[Any, None, None]:
            async def down() -> None:
                await gate.wait()
                log.append("down")

            yield down
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            ctx.effect(body)

    async with App() as app, anyio.create_task_group() as tasks:
        mount = await host(app, plugin)
        tasks.start_soon(mount.dispose)
        await anyio.wait_all_tasks_blocked()
        assert mount.state is MountState.UNLOADING
        gate.set()
        await mount.dispose()
        assert log == ["down"]


# case: EF-17
async def test_a_sync_effect_is_undone_without_awaiting() -> None:
    log: list[str] = []
    async with App() as app:
        effect = app.ctx.defer(lambda: log.append("clean"))
        effect.dispose_nowait()
        effect.dispose_nowait()
        assert log == ["clean"]

        async def down() -> None:
            log.append("async")

        with pytest.raises(InvalidEffectError):
            app.ctx.defer(down).dispose_nowait()


async def test_a_cleanup_that_undoes_its_effect_again_changes_nothing() -> None:
    async with App() as app:
        log: list[str] = []

        def body() -> Generator[Any]:
            yield lambda: log.append("first")
            yield again

        def again() -> None:
            effect.dispose_nowait()
            log.append("again")

        effect = app.ctx.effect(body)
        effect.dispose_nowait()
        assert log == ["again", "first"]


# case: EF-18
async def test_registering_while_unloading_is_refused() -> None:
    refused: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        def down() -> None:
            try:
                ctx.defer(lambda: None)
            except InactiveContextError as error:
                refused.append(error.code)

        ctx.defer(down)

    async with App() as app:
        mount = await host(app, plugin)
        await mount.restart()
        assert refused == ["INACTIVE_EFFECT"]
        assert mount.state is MountState.ACTIVE
        assert len(mount.effects) == 1


# case: EF-19
async def test_registering_while_pending_and_loading_is_legal() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("loading"))

    async with App() as app:

        def watch(mount: Any) -> None:
            assert mount.state is MountState.PENDING
            mount.ctx.defer(lambda: log.append("pending"))

        app.on_mount(app.ctx, watch)
        mount = await host(app, plugin)
        await mount.dispose()
        assert log == ["loading", "pending"]


# case: EF-20
async def test_a_failing_cleanup_strands_nothing() -> None:
    log: list[str] = []

    def boom() -> None:
        raise ValueError("no")

    def body() -> Generator[Any, None, None]:
        yield lambda: log.append("a")
        yield boom
        yield boom
        yield lambda: log.append("b")

    async with App() as app:
        effect = app.ctx.effect(body)
        with pytest.raises(ExceptionGroup) as caught:
            await effect.dispose()
        assert len(caught.value.exceptions) == 2
        assert log == ["b", "a"]


# case: EF-21
async def test_siblings_unwind_strictly_one_after_the_other() -> None:
    log: list[str] = []

    async def slow(name: str) -> None:
        log.append(f"{name} starts")
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        log.append(f"{name} ends")

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(lambda: slow("a"))
        ctx.defer(lambda: slow("b"))
        ctx.defer(lambda: log.append("c"))

    async with App() as app:
        mount = await host(app, plugin)
        await mount.dispose()
    assert log == ["c", "b starts", "b ends", "a starts", "a ends"]


# case: EF-22
async def test_a_child_unwinds_at_its_position_between_parent_effects() -> None:
    log: list[str] = []

    async def child(ctx: Context, config: object) -> None:
        async def down() -> None:
            await anyio.lowlevel.checkpoint()
            log.append("child")

        ctx.defer(down)

    async def parent(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("p1"))
        await ctx.mount(child).settled()
        ctx.defer(lambda: log.append("p2"))

    async with App() as app:
        mount = await host(app, parent)
        await mount.dispose()
    assert log == ["p2", "child", "p1"]


# case: EF-23
async def test_a_failing_cleanup_of_a_plugin_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def plugin(ctx: Context, config: object) -> None:
        def boom() -> None:
            raise ValueError("no")

        ctx.defer(boom)

    async with App() as app:
        mount = await host(app, plugin)
        with caplog.at_level(logging.ERROR):
            await mount.dispose()
    assert [(r.name, "no" in r.getMessage()) for r in caplog.records] == [("dsh.plugin", True)]


# case: EF-24
async def test_everyone_who_disposes_waits_for_the_one_cleanup() -> None:
    gate = anyio.Event()
    done: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(gate.wait)

    async with App() as app, anyio.create_task_group() as tasks:
        mount = await host(app, plugin)
        effect = app.ctx.defer(gate.wait)

        async def wait(name: str, dispose: Any) -> None:
            await dispose()
            done.append(name)

        for name in ("first", "second"):
            tasks.start_soon(wait, name, mount.dispose)
            tasks.start_soon(wait, name, effect.dispose)
        await anyio.wait_all_tasks_blocked()
        assert done == []
        gate.set()
    assert sorted(done) == ["first", "first", "second", "second"]


# case: EF-25
async def test_ownership_moves_by_identity_only() -> None:
    log: list[str] = []
    async with App() as app:
        moved: list[Effect] = []

        async def plugin(ctx: Context, config: object) -> None:
            first = ctx.defer(lambda: log.append("first"), "first")
            second = ctx.defer(lambda: log.append("second"), "second")
            moved.append(second)

            def body() -> Generator[Any, None, None]:
                yield lambda: log.append("own")
                yield second
                yield first.dispose

            ctx.effect(body, "composite")

        mount = await host(app, plugin)
        assert [effect.label for effect in mount.effects] == ["first", "composite"]
        with pytest.raises(InvalidEffectError, match="cannot move"):
            app.ctx.effect(lambda: moved[0])
        await mount.dispose()
        assert log == ["first", "second", "own"]


# case: EF-26
async def test_disposing_an_effect_of_an_unloaded_owner_does_nothing() -> None:
    log: list[str] = []
    kept: list[Effect] = []

    async def plugin(ctx: Context, config: object) -> None:
        kept.append(ctx.defer(lambda: log.append("clean")))

    async with App() as app:
        mount = await host(app, plugin)
        await mount.dispose()
        await kept[0].dispose()
        kept[0].dispose_nowait()
    assert log == ["clean"]


async def test_cancelling_a_caller_does_not_tear_a_cleanup_apart() -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def down() -> None:
        await gate.wait()
        await anyio.lowlevel.checkpoint()
        log.append("down")

    async with App() as app:
        effect = app.ctx.defer(down)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(effect.dispose)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            gate.set()
        assert log == ["down"]
        assert effect.disposed


async def test_entered_managers_live_in_one_task_of_their_own() -> None:
    tasks_seen: list[int] = []

    class Manager:
        async def __aenter__(self) -> str:
            tasks_seen.append(anyio.get_current_task().id)
            return "value"

        async def __aexit__(self, *args: object) -> None:
            tasks_seen.append(anyio.get_current_task().id)

    async with App() as app:

        async def plugin(ctx: Context, config: object) -> None:
            assert await ctx.enter(Manager()) == "value"
            assert [effect.label for effect in ctx.owner.effects] == ["enter Manager"]

        mount = await host(app, plugin)
        await mount.dispose()
    assert len(tasks_seen) == 2
    assert tasks_seen[0] == tasks_seen[1] != anyio.get_current_task().id


async def test_entering_that_fails_raises_and_leaves_nothing() -> None:
    class Manager:
        async def __aenter__(self) -> None:
            raise OSError("closed")

        async def __aexit__(self, *args: object) -> None: ...

    async with App() as app:
        with pytest.raises(OSError, match="closed"):
            await app.ctx.enter(Manager())
        assert app.root.effects == ()


async def test_a_broken_resource_fails_the_plugin() -> None:
    boom = anyio.Event()

    async def crash() -> None:
        await boom.wait()
        raise RuntimeError("gone")

    async def plugin(ctx: Context, config: object) -> None:
        group = await ctx.enter(anyio.create_task_group())
        group.start_soon(crash)

    async with App() as app:
        mount = await host(app, plugin)
        boom.set()
        await mount.wait_state(MountState.FAILED)
        assert isinstance(mount.error, ExceptionGroup)


async def test_spawned_work_that_fails_is_reported_or_fails_the_plugin() -> None:
    async def crash() -> None:
        raise RuntimeError("gone")

    async def plugin(ctx: Context, config: Any) -> None:
        ctx.spawn(crash, on_error=config["on_error"])

    async with App() as app:
        failures: list[str] = []
        app.on_error(app.ctx, lambda failure: failures.append(failure.plugin))
        mount = app.mount(plugin, {"on_error": "report"})
        await anyio.wait_all_tasks_blocked()
        assert mount.state is MountState.ACTIVE
        assert mount.effects == ()
        other = app.mount(plugin, {"on_error": "fail"})
        await other.wait_state(MountState.FAILED)
        assert failures == ["plugin", "plugin"]
