"""Services: gating, replacement, teardown order, access rules, realms."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

import anyio
import pytest

from dsh.core import (
    App,
    Context,
    DshError,
    Emit,
    LifecycleDeadlock,
    MissingServiceError,
    MountState,
    Plugin,
    Registration,
    Service,
    ServiceConflictError,
    ServiceOwnershipError,
    inject,
)


class Number(Service, ABC, key="number"):
    """A service with one number."""

    value: int = 0

    @abstractmethod
    def double(self) -> int: ...


class One(Number):
    """A provider."""

    value = 1

    def double(self) -> int:
        return self.value * 2


class Two(One):
    """Another provider."""

    value = 2


class Other(Service, key="other"):
    """A second key."""


class Log(Service, key="log"):
    """Where the plugins below write."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.lines: list[str] = []


class Consumer(Plugin):
    """Waits for a number and writes what it sees."""

    number = inject(Number)
    log = inject(Log)

    async def start(self) -> None:
        lines = self.log.lines
        number = self.number
        lines.append(f"up {number.value}")
        self.ctx.defer(lambda: lines.append(f"down {number.value}"))


async def with_log(app: App) -> list[str]:
    await app.mount(Log).settled()
    return app[Log].lines


# case: SV-01
async def test_a_consumer_waits_until_the_provider_has_started() -> None:
    gate = anyio.Event()

    class Slow(One):
        value = 3

        async def start(self) -> None:
            await gate.wait()

    async with App() as app:
        lines = await with_log(app)
        consumer = app.mount(Consumer)
        app.mount(Slow)
        await anyio.wait_all_tasks_blocked()
        assert consumer.state is MountState.PENDING
        assert lines == []
        gate.set()
        await consumer.wait_state(MountState.ACTIVE)
        assert lines == ["up 3"]


# case: SV-02
async def test_chains_of_services_start_each_once() -> None:
    starts: list[str] = []

    class Foo(Service, key="foo"):
        other = inject(Other)

        async def start(self) -> None:
            starts.append("foo")

    class Bar(Plugin):
        foo = inject(Foo)
        other = inject(Other)

        async def start(self) -> None:
            starts.append("bar")

    async with App() as app:
        for plugin in (Foo, Bar, Other):
            app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        assert starts == ["foo", "bar"]


# case: SV-03
@pytest.mark.parametrize("order", [(One, Consumer), (Consumer, One)])
async def test_mount_order_does_not_matter(order: Any) -> None:
    async with App() as app:
        lines = await with_log(app)
        for plugin in order:
            app.mount(plugin)
        await anyio.wait_all_tasks_blocked()
        assert lines == ["up 1"]


# case: SV-04
# case: SV-08
async def test_a_consumer_goes_before_its_provider_is_gone() -> None:
    gate = anyio.Event()

    class Careful(Plugin):
        number = inject(Number)

        async def start(self) -> None:
            self.ctx.defer(gate.wait)

    async with App() as app:
        provider = app.mount(One)
        consumer = await app.mount(Careful).settled()
        await consumer.wait_state(MountState.ACTIVE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provider.dispose)
            await anyio.wait_all_tasks_blocked()
            assert provider.state is MountState.UNLOADING
            gate.set()
        assert consumer.state is MountState.PENDING


# case: SV-05
async def test_a_replaced_provider_reloads_its_consumer() -> None:
    async with App() as app:
        lines = await with_log(app)
        first = app.mount(One)
        consumer = app.mount(Consumer)
        await consumer.wait_state(MountState.ACTIVE)
        await first.dispose()
        await app.mount(Two).settled()
        await consumer.settled()
        assert lines == ["up 1", "down 1", "up 2"]


# case: SV-09
async def test_a_consumers_cleanup_still_finds_the_provider_open() -> None:
    log: list[str] = []

    class Opens(One):
        value = 1
        open = True

        async def start(self) -> None:
            def close() -> None:
                self.open = False
                log.append("provider closed")

            self.ctx.defer(close)

    class Uses(Plugin):
        number = inject(Number)

        async def start(self) -> None:
            number = self.number
            assert isinstance(number, Opens)

            async def down() -> None:
                await anyio.lowlevel.checkpoint()
                log.append(f"consumer sees open={number.open}")

            self.ctx.defer(down)

    async with App() as app:
        provider = app.mount(Opens)
        await app.mount(Uses).wait_state(MountState.ACTIVE)
        await provider.dispose()
    assert log == ["consumer sees open=True", "provider closed"]


class Picky(Plugin):
    """Fails for the number one."""

    number = inject(Number)
    log = inject(Log)

    async def start(self) -> None:
        self.log.lines.append(f"try {self.number.value}")
        if self.number.value == 1:
            raise ValueError("not one")


# case: SV-10
# case: SV-11
async def test_a_failed_consumer_is_retried_only_for_another_provider() -> None:
    async with App() as app:
        lines = await with_log(app)
        first = app.mount(One)
        picky = app.mount(Picky)
        await picky.wait_state(MountState.FAILED)
        app.services.notify("number", None)
        await anyio.wait_all_tasks_blocked()
        assert lines == ["try 1"]
        await first.dispose()
        app.mount(Two)
        await picky.wait_state(MountState.ACTIVE)
        assert lines == ["try 1", "try 2"]


# case: SV-12
async def test_reading_an_undeclared_service_says_what_to_add() -> None:
    errors: list[MissingServiceError] = []

    class Nosy(Plugin):
        async def start(self) -> None:
            try:
                self.ctx[Number]
            except MissingServiceError as error:
                errors.append(error)
            assert self.ctx.get(Number) is not None

    async with App() as app:
        await app.mount(One).settled()
        await app.mount(Nosy).settled()
    assert errors[0].reason == "undeclared"
    assert "number = inject(Number)" in str(errors[0])
    assert "nosy" in str(errors[0])


# case: SV-13
async def test_reading_through_an_unloaded_plugin_raises() -> None:
    kept: list[Consumer] = []

    class Keeps(Consumer):
        async def start(self) -> None:
            kept.append(self)

    async with App() as app:
        await with_log(app)
        app.mount(One)
        mount = app.mount(Keeps)
        await mount.wait_state(MountState.ACTIVE)
        await mount.dispose()
        with pytest.raises(MissingServiceError) as caught:
            _ = kept[0].number
        assert caught.value.reason == "inactive"
        with pytest.raises(MissingServiceError):
            kept[0].ctx[Number]


# case: SV-14
# case: SV-15
async def test_a_second_provider_fails_alone() -> None:
    async def twice(ctx: Context, config: object) -> None:
        ctx.provide(Other, Other(ctx))
        ctx.provide(Other, Other(ctx))

    async with App() as app:
        first = await app.mount(One).settled()
        second = app.mount(Two)
        with pytest.raises(ServiceConflictError, match="'one'"):
            await second.settled()
        assert second.state is MountState.FAILED
        assert first.state is MountState.ACTIVE
        assert app[Number].value == 1
        with pytest.raises(ServiceConflictError):
            await app.mount(twice).settled()


# case: SV-16
# case: SV-17
async def test_only_the_registration_handle_replaces_and_in_place() -> None:
    handles: list[Registration] = []

    async def provider(ctx: Context, config: object) -> None:
        handles.append(ctx.provide(Number, One(ctx)))

    async with App() as app:
        lines = await with_log(app)
        mount = await app.mount(provider).settled()
        consumer = app.mount(Consumer)
        await consumer.wait_state(MountState.ACTIVE)
        handles[0].replace(Two(mount.ctx))
        await anyio.wait_all_tasks_blocked()
        assert lines == ["up 1"]
        assert app[Number].value == 2
        handles[0].replace(Two(mount.ctx), reload=True)
        await consumer.settled()
        assert lines == ["up 1", "down 1", "up 2"]
        await mount.dispose()
        with pytest.raises(ServiceOwnershipError):
            handles[0].replace(One(app.ctx))


# case: SV-18
async def test_strict_reading_wants_a_started_provider() -> None:
    gate = anyio.Event()

    class Slow(One):
        async def start(self) -> None:
            await gate.wait()

    async with App() as app:
        mount = app.mount(Slow)
        await anyio.wait_all_tasks_blocked()
        assert app.get(Number) is None
        assert app.get(Number, strict=False) is not None
        gate.set()
        await mount.settled()
        assert app.get(Number) is app["number"]


# case: SV-19
async def test_children_inherit_what_their_ancestors_inject() -> None:
    seen: list[Any] = []

    class Child(Plugin):
        async def start(self) -> None:
            seen.append(self.ctx[Number].value)
            with pytest.raises(MissingServiceError):
                self.ctx[Other]
            seen.append(self.ctx.get(Other) is not None)

    class Parent(Plugin):
        number = inject(Number)

        async def start(self) -> None:
            await self.ctx.mount(Child).settled()

    async with App() as app:
        await app.mount(One).settled()
        await app.mount(Other).settled()
        await app.mount(Parent).wait_state(MountState.ACTIVE)
    assert seen == [1, True]


# case: SV-20
async def test_an_availability_check_gates_each_consumer() -> None:
    answer: list[Any] = [False]
    handles: list[Registration] = []

    def check(consumer: Context) -> bool:
        if answer[0] == "boom":
            raise RuntimeError("no answer")
        return bool(answer[0])

    async def provider(ctx: Context, config: object) -> None:
        handles.append(ctx.provide(Number, One(ctx), check=check))

    async with App() as app:
        await with_log(app)
        await app.mount(provider).settled()
        consumer = await app.mount(Consumer).settled()
        states: list[str] = [consumer.state.value]
        for value in (True, False, "boom"):
            answer[0] = value
            handles[0].notify()
            await anyio.wait_all_tasks_blocked()
            states.append(consumer.state.value)
        assert states == ["pending", "active", "pending", "pending"]


# case: SV-21
# case: SV-22
async def test_ownership_follows_the_owner_and_resolution_the_callee() -> None:
    log: list[str] = []

    class Registry(Service, key="registry"):
        number = inject(Number)

        def register(self, owner: Context, name: str) -> None:
            log.append(f"{name} {self.number.value}")
            owner.defer(lambda: log.append(f"{name} gone"))

    class Uses(Plugin):
        registry = inject(Registry)

        async def start(self) -> None:
            self.registry.register(self.ctx, "mine")

    async with App() as app:
        app.mount(One)
        registry = app.mount(Registry)
        consumer = app.mount(Uses)
        await consumer.wait_state(MountState.ACTIVE)
        await consumer.dispose()
        assert registry.state is MountState.ACTIVE
    assert log == ["mine 1", "mine gone"]


# case: SV-25
async def test_a_gated_block_comes_and_goes_with_its_services() -> None:
    log: list[str] = []

    def body(ctx: Context) -> None:
        log.append(f"up {ctx[Number].value}")
        ctx.defer(lambda: log.append("down"))

    async with App() as app:
        app.ctx.when((Number,), body)
        assert [mount.name for mount in app.explain().mounts] == ["when"]
        provider = app.mount(One)
        await anyio.wait_all_tasks_blocked()
        await provider.dispose()
        assert log == ["up 1", "down"]
        one = app.mount(One)
        await one.settled()
        (report,) = [item for item in app.explain().mounts if item.name == one.name]
        assert (report.provides, report.missing) == (("number",), ())


async def test_an_optional_service_never_gates_and_is_always_current() -> None:
    class Optional(Plugin):
        number = inject(Number, optional=True)

    async with App() as app:
        mount = await app.mount(Optional).settled()
        plugin = mount.instance
        assert isinstance(plugin, Optional)
        assert plugin.number is None
        provider = await app.mount(One).settled()
        number = plugin.number
        assert number is not None
        assert number.value == 1
        await provider.dispose()
        assert plugin.number is None
        assert mount.state is MountState.ACTIVE


async def test_providing_the_wrong_type_is_refused_at_the_provider() -> None:
    async with App() as app:
        with pytest.raises(TypeError, match="must be a Number"):
            app.ctx.provide(Number, object())
        with pytest.raises(TypeError, match="name the interface Number"):
            inject(One)
        with pytest.raises(TypeError, match="no service key"):
            app.ctx.provide(int, 3)


async def test_an_abstract_service_cannot_be_mounted() -> None:
    async with App() as app:
        with pytest.raises(DshError, match=r"abstract .* it lacks \w+"):
            app.mount(Number)


async def test_root_provided_services_are_readable_everywhere() -> None:
    seen: list[int] = []

    class Reads(Plugin):
        async def start(self) -> None:
            seen.append(self.ctx[Number].value)

    async with App() as app:
        app.ctx.provide(Number, One(app.ctx))
        await app.mount(Reads).settled()
    assert seen == [1]


async def test_a_consumer_cleanup_that_waits_for_its_provider_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with App() as app:
        provider = app.mount(One)

        class Bad(Plugin):
            number = inject(Number)

            async def start(self) -> None:
                self.ctx.defer(provider.dispose)

        consumer = app.mount(Bad)
        await consumer.wait_state(MountState.ACTIVE)
        with caplog.at_level(logging.ERROR), anyio.fail_after(5):
            await consumer.dispose()
        assert consumer.state is MountState.DISPOSED
        await provider.wait_state(MountState.DISPOSED)
    assert any(LifecycleDeadlock.__name__ in r.getMessage() for r in caplog.records)


# case: IS-01
async def test_realms_gate_independently() -> None:
    async with App() as app:
        lines = await with_log(app)
        first, second = app.ctx.isolate(Number), app.ctx.isolate(Number)
        mounts = [ctx.mount(Consumer) for ctx in (app.ctx, first, second)]
        provider = await first.mount(One).settled()
        await mounts[1].wait_state(MountState.ACTIVE)
        assert [m.state.value for m in mounts] == ["pending", "active", "pending"]
        assert first.get(Number) is not None
        assert (app.ctx.get(Number), second.get(Number)) == (None, None)
        root = await app.mount(Two).settled()
        await mounts[0].wait_state(MountState.ACTIVE)
        await root.dispose()
        assert [m.state.value for m in mounts] == ["pending", "active", "pending"]
        await provider.dispose()
        assert lines == ["up 1", "up 2", "down 2", "down 1"]


# case: IS-02
async def test_a_shared_label_joins_contexts() -> None:
    async with App() as app:
        await with_log(app)
        first = app.ctx.isolate(Number, "shared")
        second = app.ctx.isolate(Number, "shared")
        mounts = [ctx.mount(Consumer) for ctx in (first, second)]
        provider = first.mount(One)
        for mount in mounts:
            await mount.wait_state(MountState.ACTIVE)
        await provider.dispose()
        assert [m.state.value for m in mounts] == ["pending", "pending"]


class Announced(Emit, name="test-services/announced", realm="number"):
    """An event that stays in the realm of the number."""


# case: IS-03
async def test_an_event_stays_in_its_realm() -> None:
    heard: list[str] = []
    async with App() as app:
        inner = app.ctx.isolate(Number)
        app.ctx.on(Announced, lambda event: heard.append("outer"))
        inner.on(Announced, lambda event: heard.append("inner"))
        inner.emit(Announced())
        assert heard == ["inner"]
        app.ctx.emit(Announced())
        assert heard == ["inner", "outer"]


# case: IS-04
async def test_a_plugin_can_provide_into_a_realm_of_its_own() -> None:
    consumers: list[Any] = []

    class Own(Plugin):
        async def start(self) -> None:
            inner = self.ctx.isolate(Number)
            inner.provide(Number, One(inner))
            consumers.append(inner.mount(Consumer))
            with pytest.raises(MissingServiceError):
                self.ctx[Number]
            assert inner[Number].value == 1

    async with App() as app:
        await with_log(app)
        await app.mount(Own).settled()
        await consumers[0].wait_state(MountState.ACTIVE)
        assert app.get(Number) is None
