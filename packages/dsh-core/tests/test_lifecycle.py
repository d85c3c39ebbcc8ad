"""Mounts: states, failure, disposal, restart, update, observers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import Field

from dsh.core import (
    App,
    ConfigError,
    Context,
    Emit,
    Failure,
    InactiveContextError,
    InvalidPluginError,
    LifecycleDeadlock,
    Mount,
    MountState,
    Plugin,
    PluginConfig,
    Service,
    inject,
    settings,
)


class Ping(Emit, name="test-lifecycle/ping"):
    """A test event."""


class Clock(Service, key="test-clock"):
    """A test service."""


def trace(app: App) -> list[str]:
    """Record the states of every mount."""
    states: list[str] = []
    app.on_status(app.ctx, lambda mount, previous: states.append(mount.state.value))
    return states


# case: FI-01
async def test_every_plugin_shape_gets_its_config_once() -> None:
    seen: list[Any] = []

    def plain(ctx: Context, config: Any) -> None:
        seen.append(config)

    async def coroutine(ctx: Context, config: Any) -> None:
        seen.append(config)

    async def generator(ctx: Context, config: Any) -> Any:
        seen.append(config)
        yield

    class ByClass(Plugin):
        class Config(PluginConfig):
            value: int

        config = settings(Config)

        async def start(self) -> None:
            seen.append({"value": self.config.value})

    async with App() as app:
        for plugin in (plain, coroutine, generator, ByClass):
            await app.mount(plugin, {"value": 1}).settled()
    assert seen == [{"value": 1}] * 4


# case: FI-02
@pytest.mark.parametrize("bad", [None, {}, 3, int])
async def test_what_is_no_plugin_is_refused_at_once(bad: Any) -> None:
    async with App() as app:
        with pytest.raises(InvalidPluginError):
            app.mount(bad)
        assert len(app.mounts) == 0


# case: FI-03
async def test_nothing_can_be_added_to_an_owner_that_goes_away() -> None:
    refused: list[str] = []

    async def other(ctx: Context, config: object) -> None:
        refused.append("ran")

    async def plugin(ctx: Context, config: object) -> None:
        def down() -> None:
            for attempt in (
                lambda: ctx.mount(other),
                lambda: ctx.defer(lambda: None),
                lambda: ctx.on(Ping, lambda event: None),
                lambda: ctx.scope(object()),
            ):
                with pytest.raises(InactiveContextError):
                    attempt()
                refused.append("refused")

        ctx.defer(down)

    async with App() as app:
        mount = await app.mount(plugin).settled()
        await mount.dispose()
    assert refused == ["refused"] * 4


def print_nothing(ctx: Context, config: object) -> None:
    """A plugin by function."""


# case: FI-04
async def test_names() -> None:
    class Qux(Plugin):
        pass

    class Named(Plugin):
        name = "bar"

    async def foo(ctx: Context, config: object) -> None: ...

    async with App() as app:
        plugins: tuple[Any, ...] = (foo, Named, Qux, print_nothing)
        names = [app.mount(plugin).name for plugin in plugins]
        assert names == ["foo", "bar", "qux", "print-nothing"]
        assert app.root.name == "root"


# case: FI-05
# case: EV-17
async def test_nested_plugins_go_with_their_parent() -> None:
    calls: list[int] = []

    async def nest(ctx: Context, config: Any) -> None:
        ctx.on(Ping, lambda event: calls.append(1))
        if config:
            await ctx.mount(nest, config - 1).settled()

    async with App() as app:
        app.ctx.on(Ping, lambda event: calls.append(0))
        mount = await app.mount(nest, 2).settled()
        app.ctx.emit(Ping())
        assert len(calls) == 4
        assert len(app.mounts) == 3
        await mount.dispose()
        app.ctx.emit(Ping())
        await mount.dispose()
        assert len(calls) == 5
        assert app.mounts == ()


# case: FI-06
async def test_mounting_and_disposing_leaves_no_listener() -> None:
    async def plugin(ctx: Context, config: object) -> None:
        ctx.on(Ping, lambda event: None)

    async with App() as app:
        for _ in range(3):
            mount = await app.mount(plugin).settled()
            assert len(app.channel(Ping)) == 1
            await mount.dispose()
            assert len(app.channel(Ping)) == 0


# case: FI-07
async def test_resetting_the_root_leaves_it_usable() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("clean"))

    async with App() as app:
        mount = await app.mount(plugin).settled()
        app.ctx.on(Ping, lambda event: None)
        await app.reset()
        await app.reset()
        assert log == ["clean"]
        assert mount.state is MountState.DISPOSED
        assert app.root.effects == ()
        assert (await app.mount(plugin).settled()).state is MountState.ACTIVE


# case: FI-08
async def test_start_runs_once_and_its_cleanup_once() -> None:
    log: list[str] = []

    class Starter(Plugin):
        async def start(self) -> Any:
            log.append("start")
            return lambda: log.append("stop")

    async with App() as app:
        mount = await app.mount(Starter).settled()
        await mount.dispose()
    assert log == ["start", "stop"]


# case: FI-09
async def test_a_failing_instance_does_not_touch_its_twin(caplog: Any) -> None:
    heard: list[Any] = []

    async def plugin(ctx: Context, config: Any) -> None:
        ctx.on(Ping, lambda event: heard.append(config))
        if config == "bad":
            raise ValueError("bad config")

    async with App() as app:
        bad = app.mount(plugin, "bad")
        good = await app.mount(plugin, "good").settled()
        with pytest.raises(ValueError, match="bad config"):
            await bad.settled()
        app.ctx.emit(Ping())
        assert heard == ["good"]
        assert bad.state is MountState.FAILED
        assert good.state is MountState.ACTIVE
    assert len(caplog.records) == 1


# case: FI-10
async def test_the_trace_of_a_failure() -> None:
    async def plugin(ctx: Context, config: object) -> None:
        raise ValueError("no")

    async with App() as app:
        states = trace(app)
        mount = app.mount(plugin)
        for _ in range(2):
            with pytest.raises(ValueError, match="no") as caught:
                await mount.settled()
            assert caught.value is mount.error
        assert states == ["loading", "unloading", "failed"]
        await mount.dispose()
        assert states[3:] == ["disposed"]


# case: FI-11
async def test_a_failure_unwinds_what_the_start_had_registered() -> None:
    log: list[str] = []

    async def child(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("child gone"))

    async def plugin(ctx: Context, config: object) -> None:
        ctx.provide(Clock, Clock(ctx))
        ctx.defer(lambda: log.append("effect gone"))
        await ctx.mount(child).settled()
        raise ValueError("no")

    async with App() as app:
        mount = app.mount(plugin)
        await mount.wait_state(MountState.FAILED)
        assert log == ["child gone", "effect gone"]
        assert app.get(Clock, strict=False) is None
        assert mount.effects == ()


async def test_children_of_a_failing_parent_never_run() -> None:
    ran: list[str] = []

    async def child(ctx: Context, config: object) -> None:
        ran.append("child")

    async def plugin(ctx: Context, config: object) -> None:
        ctx.mount(child)
        raise ValueError("no")

    async with App() as app:
        mount = app.mount(plugin)
        await mount.wait_state(MountState.FAILED)
        assert ran == []
        assert app.mounts == (mount,)


# case: FI-12
async def test_disposing_while_loading_lets_the_start_finish() -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def plugin(ctx: Context, config: object) -> None:
        await gate.wait()
        log.append("started")
        ctx.defer(lambda: log.append("cleaned"))

    async with App() as app:
        mount = app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        mount.request_dispose()
        assert mount.state is MountState.LOADING
        gate.set()
        await mount.dispose()
        assert log == ["started", "cleaned"]
        assert mount.state is MountState.DISPOSED


# case: FI-13
async def test_disposed_in_the_same_tick_never_runs() -> None:
    ran: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ran.append("ran")

    async with App() as app:
        mount = app.mount(plugin)
        await mount.dispose()
        assert ran == []
        assert mount.state is MountState.DISPOSED


# case: FI-14
# case: FI-15
async def test_a_pending_mount_is_settled_and_drains_early_effects() -> None:
    log: list[str] = []

    class Waits(Plugin):
        clock = inject(Clock)

    async with App() as app:
        app.on_mount(app.ctx, lambda mount: mount.ctx.defer(lambda: log.append("early")) and None)
        mount = await app.mount(Waits).settled()
        assert mount.state is MountState.PENDING
        await mount.dispose()
        assert log == ["early"]
        assert mount.state is MountState.DISPOSED


# case: FI-16
async def test_an_observer_can_refuse_a_mount() -> None:
    async def plugin(ctx: Context, config: object) -> None: ...

    def refuse(mount: Mount) -> None:
        raise PermissionError("not here")

    async with App() as app:
        observer = app.on_mount(app.ctx, refuse)
        with pytest.raises(PermissionError):
            app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        assert app.mounts == ()
        assert app.root.effects == (observer,)


# case: FI-17
async def test_observers_of_an_end_are_contained() -> None:
    seen: list[str] = []
    failures: list[Failure] = []

    async def plugin(ctx: Context, config: object) -> None: ...

    def boom(mount: Mount) -> None:
        raise ValueError("no")

    async with App() as app:
        app.on_error(app.ctx, failures.append)
        app.on_retired(app.ctx, boom)
        app.on_retired(app.ctx, lambda mount: seen.append(mount.name))
        mount = await app.mount(plugin).settled()
        await mount.dispose()
        assert seen == ["plugin"]
        assert len(failures) == 1


# case: FI-18
# case: FI-19
async def test_a_parent_disposed_during_publication_waits_for_the_child() -> None:
    gate = anyio.Event()
    ran: list[str] = []

    async def child(ctx: Context, config: object) -> None:
        ran.append("child")

    async def parent(ctx: Context, config: object) -> None:
        def watch(mount: Mount) -> None:
            mount.ctx.defer(gate.wait)
            ctx.owner.request_dispose()

        ctx.app.on_mount(ctx, watch)
        ctx.mount(child)

    async with App() as app:
        mount = app.mount(parent)
        await anyio.wait_all_tasks_blocked()
        assert mount.state is MountState.UNLOADING
        gate.set()
        await mount.dispose()
        assert ran == []
        assert app.mounts == ()


# case: FI-20
async def test_an_observer_can_add_a_required_service() -> None:
    ran: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ran.append("ran")

    async with App() as app:
        watch = app.on_mount(app.ctx, lambda mount: mount.require(Clock))
        mount = await app.mount(plugin).settled()
        assert mount.state is MountState.PENDING
        await watch.dispose()
        await app.mount(Clock).settled()
        await mount.settled()
        assert ran == ["ran"]


# case: FI-21
async def test_restart_cleans_up_then_starts_again() -> None:
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        log.append("up")
        ctx.defer(lambda: log.append("down"))

    async with App() as app:
        mount = await app.mount(plugin).settled()
        await mount.restart()
        assert log == ["up", "down", "up"]


# case: FI-22
async def test_a_restart_while_loading_is_not_lost() -> None:
    starts: list[int] = []
    gate = anyio.Event()

    async def plugin(ctx: Context, config: object) -> None:
        starts.append(1)
        await gate.wait()

    async with App() as app:
        mount = app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        mount.request_restart()
        gate.set()
        await mount.settled()
        assert len(starts) == 2
        assert mount.state is MountState.ACTIVE


class Checked(Plugin):
    """A plugin whose default does not pass its own check."""

    class Config(PluginConfig):
        value: int = Field(default=0, gt=0, validate_default=True)


async def test_defaults_that_ask_for_it_are_validated() -> None:
    async with App() as app:
        with pytest.raises(ConfigError, match="value"):
            await app.mount(Checked).settled()


class Configured(Plugin):
    """A plugin that shows the configuration it was started with."""

    class Config(PluginConfig):
        value: int = 0

    config = settings(Config)
    starts: list[int]

    async def start(self) -> None:
        gate = getattr(self.ctx.app, "test_gate", None)
        if gate is not None:
            await gate.wait()
        STARTS.append(self.config.value)


STARTS: list[int] = []


# case: FI-23
async def test_an_update_while_loading_is_not_lost() -> None:
    STARTS.clear()
    async with App() as app:
        gate = anyio.Event()
        app.test_gate = gate  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        mount = app.mount(Configured, {"value": 1})
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mount.update, {"value": 2})
            await anyio.wait_all_tasks_blocked()
            gate.set()
        await mount.settled()
        assert STARTS == [1, 2]


# case: FI-24
async def test_an_update_restarts_with_the_new_config() -> None:
    STARTS.clear()
    async with App() as app:
        mount = await app.mount(Configured, {"value": 1}).settled()
        await mount.update({"value": 2})
        assert STARTS == [1, 2]


# case: FI-25
# case: FI-26
async def test_an_update_hook_applies_live_and_does_not_pile_up() -> None:
    calls: list[int] = []
    starts: list[int] = []

    async def plugin(ctx: Context, config: Any) -> None:
        starts.append(config)

        async def hook(config: Any, next: Any) -> None:
            calls.append(config)
            if config != 1:
                await next()

        ctx.on_update(hook)

    async with App() as app:
        mount = await app.mount(plugin, 0).settled()
        for value in (1, 2, 3):
            await mount.update(value)
        assert calls == [1, 2, 3]
        assert starts == [0, 2, 3]
        await mount.update(1)
        await mount.restart()
        assert starts == [0, 2, 3, 1]


# case: FI-27
async def test_an_invalid_update_changes_nothing() -> None:
    STARTS.clear()
    async with App() as app:
        mount = await app.mount(Configured, {"value": 1}).settled()
        with pytest.raises(ConfigError, match="value"):
            await mount.update({"value": "many"})
        assert mount.state is MountState.ACTIVE
        await mount.restart()
        assert STARTS == [1, 1]


# case: FI-28
async def test_an_invalid_config_fails_the_mount_with_its_path() -> None:
    STARTS.clear()
    async with App() as app:
        mount = app.mount(Configured, {"value": "many", "typo": 1})
        with pytest.raises(ConfigError) as caught:
            await mount.settled()
        assert [issue.location for issue in caught.value.issues] == [("value",), ("typo",)]
        assert "configured" in str(caught.value)
        assert mount.state is MountState.FAILED
        assert STARTS == []


# case: FI-29
# case: PY-05
async def test_waiting_for_ones_own_end_is_an_error_not_a_hang() -> None:
    errors: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        for wait in (ctx.owner.dispose, ctx.owner.settled, ctx.owner.restart):
            try:
                await wait()
            except LifecycleDeadlock as error:
                errors.append(error.code)
        ctx.owner.request_dispose()

    async with App() as app:
        with anyio.fail_after(5):
            await app.mount(plugin).wait_state(MountState.DISPOSED)
    assert errors == ["LIFECYCLE_DEADLOCK"] * 3


async def test_a_child_that_waits_for_its_parents_end_is_told() -> None:
    errors: list[str] = []

    async def child(ctx: Context, config: object) -> None:
        assert ctx.owner.parent is not None
        try:
            await ctx.owner.parent.dispose()
        except LifecycleDeadlock as error:
            errors.append(error.code)

    async def parent(ctx: Context, config: object) -> None:
        await ctx.mount(child).settled()

    async with App() as app:
        with anyio.fail_after(5):
            await app.mount(parent).settled()
    assert errors == ["LIFECYCLE_DEADLOCK"]


# case: FI-30
# case: PY-03
async def test_cancelling_a_waiter_does_not_stop_the_teardown() -> None:
    gate = anyio.Event()
    log: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("last"))
        ctx.defer(gate.wait)

    async with App() as app:
        mount = await app.mount(plugin).settled()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mount.dispose)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        gate.set()
        await mount.wait_state(MountState.DISPOSED)
        assert log == ["last"]


# case: FI-31
async def test_instances_of_one_plugin_are_independent() -> None:
    async def plugin(ctx: Context, config: object) -> None: ...

    async with App() as app:
        first = await app.mount(plugin).settled()
        second = await app.mount(plugin).settled()
        await first.dispose()
        assert second.state is MountState.ACTIVE
        assert app.mounts == (second,)


# case: FI-32
async def test_status_observers_are_contained() -> None:
    failures: list[Failure] = []

    async def plugin(ctx: Context, config: object) -> None: ...

    def boom(mount: Mount, previous: MountState) -> None:
        raise ValueError("no")

    async with App() as app:
        app.on_error(app.ctx, failures.append)
        app.on_status(app.ctx, boom)
        mount = await app.mount(plugin).settled()
        assert mount.state is MountState.ACTIVE
        assert len(failures) == 2


# case: PY-01
async def test_a_generator_plugin_may_hold_a_task_group_across_its_yield() -> None:
    log: list[str] = []

    async def worker() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            log.append("worker stopped")

    async def plugin(ctx: Context, config: object) -> Any:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker)
            yield
            log.append("body tail")
            tasks.cancel_scope.cancel()

    async with App() as app:
        mount = await app.mount(plugin).settled()
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mount.dispose)
    assert log == ["body tail", "worker stopped"]


# case: PY-02
async def test_spawned_work_is_cancelled_and_joined_at_its_position() -> None:
    log: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            log.append("work stopped")

    async def plugin(ctx: Context, config: object) -> None:
        ctx.defer(lambda: log.append("older"))
        ctx.spawn(work)
        ctx.defer(lambda: log.append("newer"))

    async with App() as app:
        mount = await app.mount(plugin).settled()
        await anyio.wait_all_tasks_blocked()
        await mount.dispose()
    assert log == ["newer", "work stopped", "older"]


# case: PY-04
async def test_a_failing_plugin_cancels_nobody() -> None:
    ticks: list[int] = []

    async def bad(ctx: Context, config: object) -> None:
        raise ValueError("no")

    async def good(ctx: Context, config: object) -> None:
        ctx.spawn(anyio.sleep_forever)
        ticks.append(1)

    async with App() as app:
        mounts = [app.mount(plugin) for plugin in (bad, good, bad, good)]
        await anyio.wait_all_tasks_blocked()
        assert [m.state.value for m in mounts] == ["failed", "active", "failed", "active"]


# case: PY-06
async def test_lifecycle_tasks_see_the_apps_context_variables() -> None:
    from contextvars import ContextVar

    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[str] = []

    async def plugin(ctx: Context, config: object) -> None:
        seen.append(who.get())

    who.set("app")
    async with App() as app:
        who.set("caller")
        await app.mount(plugin).settled()
    assert seen == ["app"]


async def test_a_plugin_without_a_model_takes_no_config() -> None:
    class Plain(Plugin):
        pass

    async with App() as app:
        with pytest.raises(ConfigError, match="takes no settings"):
            await app.mount(Plain, {"a": 1}).settled()


async def test_two_apps_live_side_by_side() -> None:
    async with App() as one, App() as two:
        await one.mount(Clock).settled()
        assert one.get(Clock) is not None
        assert two.get(Clock) is None
