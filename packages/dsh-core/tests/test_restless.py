"""Mounts that nobody leaves alone: observers that act, updates, registrations that change."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import anyio
import pytest
from pydantic import ConfigDict, Field, model_validator

from dsh.core import (
    App,
    AppStateError,
    ConfigError,
    Context,
    DshError,
    Emit,
    InactiveContextError,
    InvalidEffectError,
    InvalidPluginError,
    MissingServiceError,
    Mount,
    MountState,
    Plugin,
    PluginConfig,
    Service,
    inject,
    secrets,
    settings,
)


class Store(Service, key="test-restless-store"):
    """A test service."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.closed = False


class Key:
    """A scope key."""


class Told(Emit, name="test-restless/told"):
    """A test event."""


# -- observers -----------------------------------------------------------------------------------


async def test_an_observer_may_restart_what_has_failed() -> None:
    starts: list[int] = []

    async def plugin(ctx: Context, config: object) -> None:
        starts.append(1)
        if len(starts) < 3:
            raise ValueError("no")

    def supervise(mount: Mount, previous: MountState) -> None:
        if mount.state is MountState.FAILED:
            mount.request_restart()

    async with App() as app:
        app.on_status(app.ctx, supervise)
        with anyio.fail_after(5):
            await app.mount(plugin).wait_state(MountState.ACTIVE)
    assert len(starts) == 3


@pytest.mark.parametrize("state", list(MountState))
async def test_an_observer_may_dispose_in_every_state(state: MountState) -> None:
    async def plugin(ctx: Context, config: object) -> None:
        if config == "bad":
            raise ValueError("no")

    def remove(mount: Mount, previous: MountState) -> None:
        if mount.state is state:
            mount.request_dispose()

    async with App() as app:
        app.on_status(app.ctx, remove)
        with anyio.fail_after(5):
            bad, good = app.mount(plugin, "bad"), app.mount(plugin)
            await anyio.wait_all_tasks_blocked()
            await bad.dispose()
            await good.dispose()
        assert app.mounts == ()


async def test_an_observer_that_could_not_be_registered_observes_nothing() -> None:
    async def plugin(ctx: Context, config: object) -> None: ...

    def never(*args: object) -> None:
        raise AssertionError

    async def hook(config: object, next: object) -> None: ...

    async with App() as app:
        mount = await app.mount(plugin).settled()
        await mount.dispose()
        register: tuple[Callable[[Context, Any], object], ...] = (
            app.on_dispatch,
            app.on_error,
            app.on_mount,
            app.on_status,
            app.on_retired,
            lambda ctx, fn: ctx.on_update(hook),
        )
        for attempt in register:
            with pytest.raises(InactiveContextError):
                attempt(mount.ctx, never)
        assert mount.update_hooks == []
        app.ctx.emit(Told())
        await app.mount(plugin).settled()


async def test_an_error_that_cannot_be_shown_is_contained(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not today")

    def listener(event: Told) -> None:
        raise Shy

    heard: list[int] = []
    secrets.add("a-secret-of-restless")
    async with App() as app:
        app.ctx.on(Told, listener)
        app.ctx.on(Told, lambda event: heard.append(1))
        with caplog.at_level(logging.ERROR):
            app.ctx.emit(Told())
    assert heard == [1]
    assert "Shy" in caplog.text


def test_the_filter_leaves_unformattable_records_to_the_handler() -> None:
    secrets.add("a-secret-of-restless")
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "%d", ("no number",), None)
    assert secrets.SecretsFilter().filter(record)


# -- restarts and updates ------------------------------------------------------------------------


class Choosy(Plugin):
    """A plugin that waits for a store and starts with a good configuration only."""

    class Config(PluginConfig):
        bad: bool = True

    config = settings(Config)
    store = inject(Store)

    async def start(self) -> None:
        if self.config.bad:
            raise ValueError("bad")


async def test_an_update_clears_the_error_of_what_waits() -> None:
    async with App() as app:
        mount, provider = app.mount(Choosy), app.mount(Store)
        await mount.wait_state(MountState.FAILED)
        await provider.dispose()
        assert mount.state is MountState.FAILED
        await mount.update({"bad": False})
        assert mount.state is MountState.PENDING
        assert mount.error is None
        await app.mount(Store).settled()
        await mount.settled()
        assert mount.state is MountState.ACTIVE


class Looked(Plugin):
    """Plugins whose empty configuration has to be looked at all the same."""

    class Config(PluginConfig):
        model_config = ConfigDict(validate_default=True)
        value: int = Field(default=0, gt=0)


class Judged(Plugin):
    class Config(PluginConfig):
        value: int = 0

        @model_validator(mode="after")
        def never(self) -> Self:
            raise ValueError("not like this")


class Nested(Plugin):
    class Config(PluginConfig):
        inner: dict[str, int] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("plugin", "config", "issue"),
    [
        (Looked, {}, "value: Input should be greater than 0"),
        (Judged, {}, "config: Value error, not like this"),
        (Nested, {"inner": {"a": "x"}}, "inner.a: Input should be a valid integer"),
    ],
)
async def test_a_config_that_does_not_fit_says_where(
    plugin: type[Plugin], config: dict[str, Any], issue: str
) -> None:
    async with App() as app:
        with pytest.raises(ConfigError) as caught:
            await app.mount(plugin, config).settled()
        assert len(caught.value.issues) == 1
        assert str(caught.value.issues[0]).startswith(issue)


async def test_a_mount_owns_itself_and_what_is_below() -> None:
    inner: list[Mount] = []

    async def leaf(ctx: Context, config: object) -> None: ...

    async def parent(ctx: Context, config: object) -> None:
        inner.append(ctx.mount(leaf))

    async with App() as app:
        outer = await app.mount(parent).settled()
        other = await app.mount(leaf).settled()
        assert outer.owns(outer)
        assert outer.owns(inner[0])
        assert app.root.owns(inner[0])
        assert not inner[0].owns(outer)
        assert not outer.owns(other)


async def test_an_update_that_is_overtaken_does_not_come_back() -> None:
    starts: list[object] = []
    gate = anyio.Event()

    async def plugin(ctx: Context, config: object) -> None:
        starts.append(config)
        if config == 1:
            await gate.wait()

    async with App() as app:
        mount = await app.mount(plugin, 0).settled()
        async with anyio.create_task_group() as tasks:
            for config in (1, 2):
                tasks.start_soon(mount.update, config)
                await anyio.wait_all_tasks_blocked()
            gate.set()
        await mount.restart()
    assert starts == [0, 1, 2, 2]


async def test_a_hook_that_raises_refuses_the_update() -> None:
    starts: list[Any] = []

    async def plugin(ctx: Context, config: Any) -> None:
        starts.append(config)

        async def hook(config: Any, next: Any) -> None:
            if config == "refused":
                raise ValueError("no")
            if config != "live":
                await next()

        ctx.on_update(hook)

    async with App() as app:
        mount = await app.mount(plugin, "first").settled()
        with pytest.raises(ValueError, match="no"):
            await mount.update("refused")
        await mount.restart()
        await mount.update("live")
        await mount.restart()
        await mount.update("last")
        assert starts == ["first", "first", "live", "last"]


async def test_what_is_no_plugin_cannot_be_restarted() -> None:
    async with App() as app:
        scope = app.ctx.scope(object())
        for mount in (app.root, scope.ctx.owner):
            with pytest.raises(InvalidPluginError, match="no plugin"):
                await mount.restart()
            with pytest.raises(InvalidPluginError, match="no plugin"):
                await mount.update({})
            assert mount.state is MountState.ACTIVE


async def test_what_ends_cannot_be_restarted_and_is_named() -> None:
    async def short(ctx: Context, config: object) -> None: ...

    async with App() as app:
        mount = await app.mount(short).settled()
        await mount.dispose()
        with pytest.raises(InactiveContextError, match=r"a restart .*'short' \(disposed\)"):
            await mount.restart()
        with pytest.raises(InactiveContextError, match=r"an update .*'short' \(disposed\)"):
            await mount.update({})


async def test_what_the_kernel_registers_has_a_name() -> None:
    async with App() as app:
        before = len(app.root.effects)
        app.on_error(app.ctx, print)
        app.on_mount(app.ctx, print)
        app.on_retired(app.ctx, print)
        app.on_status(app.ctx, print)
        app.ctx.effect(lambda: lambda: None)
        app.ctx.on(Told, print)
        app.ctx.spawn(anyio.sleep_forever)
        app.ctx.spawn(partial(anyio.sleep, math.inf))
        app.ctx.subscribe(Told).close()
        labels = [effect.label for effect in app.root.effects[before:]]
        assert labels == [
            "on_error",
            "on_mount",
            "on_retired",
            "on_status",
            "effect",
            f"on {Told.event_name}",
            "spawn sleep_forever",
            "spawn task",
            f"subscribe {Told.event_name}",
        ]
        assert [effect.label for effect in app.ctx.scope(Key()).ctx.owner.effects] == ["scope"]


async def test_an_app_is_entered_once() -> None:
    app = App()
    async with app:
        pass
    with pytest.raises(AppStateError) as caught:
        await app.__aenter__()
    assert caught.value.code == "APP_ENTERED"


async def test_abandoned_waits_leave_nothing_behind() -> None:
    class Waits(Plugin):
        store = inject(Store)

    async with App() as app:
        mount = app.mount(Waits)
        for _ in range(50):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await mount.wait_state(MountState.ACTIVE)
        assert mount._change is not None  # pyright: ignore[reportPrivateUsage]
        provider = await app.mount(Store).settled()
        await mount.settled()
        assert mount.state is MountState.ACTIVE
        await provider.dispose()
        with anyio.fail_after(5):
            await mount.wait_state(MountState.PENDING)


# -- registrations -------------------------------------------------------------------------------


async def test_what_is_no_cleanup_is_refused_and_not_kept() -> None:
    async with App() as app:
        bad: Any = 3
        with pytest.raises(InvalidEffectError):
            app.ctx.defer(bad)
        assert app.root.effects == ()


async def test_a_provider_waits_for_consumers_of_a_service_that_goes_already() -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def provider(ctx: Context, config: object) -> None:
        registrations.append(ctx.provide(Store, Store(ctx)))
        ctx.defer(lambda: log.append("provider closed"))

    class User(Plugin):
        store = inject(Store)

        async def start(self) -> None:
            async def leave() -> None:
                await gate.wait()
                log.append("user gone")

            self.ctx.defer(leave)

    registrations: list[Any] = []
    async with App() as app, anyio.create_task_group() as tasks:
        mount = await app.mount(provider).settled()
        await app.mount(User).settled()
        tasks.start_soon(registrations[0].dispose)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(mount.dispose)
        await anyio.wait_all_tasks_blocked()
        assert log == []
        gate.set()
        await mount.wait_state(MountState.DISPOSED)
    assert log == ["user gone", "provider closed"]


async def test_a_consumer_keeps_its_value_until_it_has_let_go() -> None:
    seen: list[tuple[str, bool]] = []
    async with App() as app:
        old, new = Store(app.ctx), Store(app.ctx)

        class User(Plugin):
            store = inject(Store)

            async def start(self) -> None:
                seen.append(("up", self.store is new))
                self.ctx.defer(lambda: seen.append(("down", self.store is new)))

        user = app.mount(User)
        registration = app.ctx.provide(Store, old)
        await user.settled()
        registration.replace(new, reload=True)
        assert app[Store] is new
        await user.settled()
        assert seen == [("up", False), ("down", False), ("up", True)]
        await registration.dispose()
        assert user.state is MountState.PENDING


@pytest.mark.parametrize("reload", [False, True])
async def test_a_replacement_of_the_wrong_type_is_refused(reload: bool) -> None:
    async with App() as app:
        store = Store(app.ctx)
        registration = app.ctx.provide(Store, store)
        with pytest.raises(TypeError, match="must be a Store"):
            registration.replace(3, reload=reload)
        assert app[Store] is store


async def test_a_withdrawal_waits_for_a_consumer_that_still_has_the_last_value() -> None:
    log: list[str] = []
    gate = anyio.Event()
    async with App() as app:

        class User(Plugin):
            store = inject(Store)

            async def start(self) -> None:
                async def leave() -> None:
                    await gate.wait()
                    log.append("user gone")

                self.ctx.defer(leave)

        user = app.mount(User)
        registration = app.ctx.provide(Store, Store(app.ctx))
        await user.settled()
        registration.replace(Store(app.ctx), reload=True)
        async with anyio.create_task_group() as tasks:

            async def withdraw() -> None:
                await registration.dispose()
                log.append("withdrawn")

            tasks.start_soon(withdraw)
            await anyio.wait_all_tasks_blocked()
            gate.set()
    assert log == ["user gone", "withdrawn"]


# -- reading services ----------------------------------------------------------------------------


async def test_an_optional_service_can_be_read_by_its_type() -> None:
    seen: list[object] = []

    class User(Plugin):
        store = inject(Store, optional=True)

        async def start(self) -> None:
            try:
                seen.append(self.ctx[Store])
            except MissingServiceError as error:
                seen.append(error.reason)

    async with App() as app:
        await app.mount(User).settled()
        await app.mount(Store).settled()
        await app.mount(User).settled()
        assert seen == ["inactive", app[Store]]


async def test_what_one_attribute_requires_is_required() -> None:
    class User(Plugin):
        store = inject(Store)
        maybe = inject(Store, optional=True)

    async with App() as app:
        assert (await app.mount(User).settled()).state is MountState.PENDING


async def test_a_plugin_may_provide_one_service_in_two_realms() -> None:
    seen: list[bool] = []

    async def plugin(ctx: Context, config: object) -> None:
        inside = ctx.isolate(Store)
        outer, inner = Store(ctx), Store(ctx)
        ctx.provide(Store, outer)
        inside.provide(Store, inner)
        seen.extend([ctx[Store] is outer, inside[Store] is inner])

    async with App() as app:
        await app.mount(plugin).settled()
    assert seen == [True, True]


async def test_a_realm_the_plugin_does_not_inject_from_is_undeclared_to_it() -> None:
    reasons: list[str] = []

    class User(Plugin):
        store = inject(Store)

        async def start(self) -> None:
            with pytest.raises(MissingServiceError) as caught:
                self.ctx.isolate(Store)[Store]
            reasons.append(caught.value.reason)

    async with App() as app:
        app.mount(Store)
        await app.mount(User).wait_state(MountState.ACTIVE)
    assert reasons == ["undeclared"]


async def test_the_root_is_told_that_a_service_is_not_active() -> None:
    async with App() as app:
        with pytest.raises(MissingServiceError, match=r"app\.explain") as caught:
            app[Store]
        assert caught.value.code == "INACTIVE_SERVICE"


async def test_a_service_without_a_key_is_no_plugin() -> None:
    class Nameless(Service):
        pass

    async with App() as app:
        with pytest.raises(InvalidPluginError, match="no key"):
            app.mount(Nameless)


async def test_explaining_many_ways_to_wait_takes_no_time() -> None:
    chain: list[Any] = [type("Link0", (Service,), {}, key="test-restless-0")]
    for number in range(1, 60):
        body = {"one": inject(chain[-1]), "two": inject(chain[max(0, number - 2)])}
        chain.append(type(f"Link{number}", (Service,), body, key=f"test-restless-{number}"))

    class First(chain[0]):
        last = inject(chain[-1])

    async with App() as app:
        for service in reversed(chain[1:]):
            app.mount(service)
        assert app.explain().cycles == ()
        app.mount(First)
        (cycle,) = app.explain().cycles
        assert "first" in cycle


async def test_every_kernel_error_has_a_code_of_its_own() -> None:
    def codes(kind: type[DshError]) -> list[str]:
        return [kind.code, *(code for sub in kind.__subclasses__() for code in codes(sub))]

    kernel = [kind for kind in DshError.__subclasses__() if kind.__module__ == "dsh.core.errors"]
    own = [kind.code for kind in kernel]
    assert len(set(own)) == len(own)
