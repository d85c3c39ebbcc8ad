"""Worlds at random: providers, consumers, scopes and meddlers act on each other in any order.

Each seed is one world. Whatever happens in it, at rest every mount is where its services put it,
and after the end nothing is open, owned, listened to or waited for.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

import anyio
import pytest

from dsh.core import (
    App,
    Context,
    DshError,
    Effect,
    Emit,
    Failure,
    LifecycleDeadlock,
    Mount,
    MountState,
    Next,
    NextStream,
    Plugin,
    Registration,
    Scope,
    Service,
    StreamWaterfall,
    Waterfall,
    inject,
    scope_chain,
)

SEEDS = 40
ACTORS, ACTS = 3, 12

Ending = Literal["rest", "leave", "cancel"]


class Thing(Service):
    """A service that knows whether it may still be used."""

    closed = True


class One(Thing, key="test-worlds-one"):
    pass


class Two(Thing, key="test-worlds-two"):
    pass


class Three(Thing, key="test-worlds-three"):
    pass


SERVICES: tuple[type[Thing], ...] = (One, Two, Three)


class Key:
    """A scope key."""


@dataclass(frozen=True, slots=True)
class Told(Emit, name="test-worlds/told", scope="key", realm=One):
    key: Key | None


@dataclass(frozen=True, slots=True)
class Asked(Waterfall[int], name="test-worlds/asked", scope="key"):
    key: Key | None


@dataclass(frozen=True, slots=True)
class Streamed(StreamWaterfall[int], name="test-worlds/streamed", scope="key"):
    key: Key | None


EXPECTED = (DshError, ValueError, ExceptionGroup)
"""What an act may run into; everything else is a defect."""

PRIVATE = frozenset({"scope", "the end of a thing", "the end of a user"})
"""Effects the worlds rely on; meddlers leave them alone."""


async def steps(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


class World:
    """One app with everything that is going on in it."""

    def __init__(self, seed: int, app: App) -> None:
        self.random = Random(seed)
        self.app = app
        self.open: dict[int, str] = {}
        self.opened = 0
        self.errors: list[str] = []
        self.deadlocks = 0
        self.scopes: list[Scope] = []
        self.composites: list[Effect] = []
        self.registrations: list[tuple[Registration, type[Thing], Context]] = []
        self.keys = [Key() for _ in range(3)]

    # -- the books ---------------------------------------------------------------------------

    def up(self, name: str) -> Callable[[], None]:
        """Note that something is open; the result closes it."""
        self.opened += 1
        number = self.opened
        self.open[number] = name

        def down() -> None:
            if self.open.pop(number, None) is None:
                self.errors.append(f"{name} went down twice")

        return down

    def noticed(self, failure: Failure) -> None:
        self.deadlocks += isinstance(failure.error, LifecycleDeadlock)

    def key(self) -> Key | None:
        return self.random.choice([None, *self.keys])

    # -- plugins -----------------------------------------------------------------------------

    def provider(self, service: type[Thing], slow: int) -> type[Plugin]:
        """A service that is its own provider."""
        world = self

        async def start(thing: Thing) -> None:
            thing.closed = False
            down = world.up("thing")

            async def end() -> None:
                await steps(slow)
                thing.closed = True
                down()

            thing.ctx.defer(end, "the end of a thing")
            await steps(slow)
            if world.random.random() < 0.1:
                raise ValueError("no thing today")

        return type("Provider", (service,), {"start": start})

    def function(self, service: type[Thing], slow: int) -> Callable[..., Any]:
        """A function that provides a service, with a resource below it."""

        @asynccontextmanager
        async def resource() -> AsyncGenerator[None, None]:
            down = self.up("resource")
            try:
                await steps(slow)
                yield
                await steps(slow)
            finally:
                down()

        async def provide(ctx: Context, config: object) -> None:
            thing = service(ctx)
            thing.closed = False
            down = self.up("provided thing")

            def end() -> None:
                thing.closed = True
                down()

            ctx.defer(end, "the end of a thing")
            await ctx.enter(resource())
            self.registrations.append((ctx.provide(service, thing), service, ctx))

        return provide

    def generator(self, slow: int) -> Callable[..., Any]:
        """A generator that holds a task group across its yield."""

        async def generate(ctx: Context, config: object) -> AsyncGenerator[None, None]:
            down = self.up("generator")
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(anyio.sleep_forever)
                    await steps(slow)
                    yield
                    await steps(slow)
                    tasks.cancel_scope.cancel()
                    if self.random.random() < 0.1:
                        raise ValueError("tail")
            finally:
                down()

        return generate

    def user(self, services: list[type[Thing]], slow: int) -> type[Plugin]:
        """A consumer that listens, and then does one thing at random."""
        world = self

        async def start(user: Plugin) -> None:
            things = [getattr(user, f"thing{n}") for n in range(len(services))]
            await world.use(user.ctx, things, slow)

        body: dict[str, Any] = {f"thing{n}": inject(s) for n, s in enumerate(services)}
        return type("User", (Plugin,), {**body, "start": start})

    async def use(self, ctx: Context, things: list[Thing], slow: int) -> None:
        if any(thing.closed for thing in things):
            self.errors.append("started with a closed thing")
        down = self.up("user")

        async def end() -> None:
            await steps(slow)
            if self.random.random() < 0.15:
                await self.meddle()
            if any(thing.closed for thing in things):
                self.errors.append("a thing was closed under its user")
            down()

        effect = ctx.defer(end, "the end of a user")
        self.listen(ctx)
        await steps(slow)
        if self.random.random() < 0.15:
            await self.meddle()
        await self.do_something(ctx, effect, slow)

    def listen(self, ctx: Context) -> None:
        async def asked(event: Asked, next: Next[int]) -> int:
            await steps(1)
            return 1 + await next()

        async def streamed(event: Streamed, next: NextStream[int]) -> AsyncGenerator[int, None]:
            down = self.up("layer")
            try:
                async for number in next():
                    await steps(1)
                    yield number
            finally:
                down()

        ctx.on(Told, lambda event: None)
        ctx.on(Asked, asked)
        ctx.on(Streamed, streamed)

    async def do_something(self, ctx: Context, effect: Effect, slow: int) -> None:
        match self.random.randrange(12):
            case 0:
                await ctx.mount(self.generator(slow)).settled()
            case 1:
                ctx.mount(self.generator(slow))
            case 2:
                on_error: Any = self.random.choice(["fail", "report"])
                ctx.spawn(self.crash, slow, on_error=on_error)
            case 3:
                raise ValueError("no user today")
            case 4:
                self.compose(ctx, effect, slow)
            case 5:
                service = self.random.choice(SERVICES)
                ctx.when((service,), lambda inner: inner.defer(self.up("block")) and None)
            case 6:
                ctx.on_update(self.hook)
            case 7:
                ctx.owner.request_dispose()
            case 8:
                ctx.owner.request_restart()
            case 9:
                scope = ctx.scope(self.random.choice(self.keys))
                scope.ctx.defer(self.up("scoped"))
                scope.ctx.mount(self.generator(slow))
                self.scopes.append(scope)
            case 10:
                ctx.spawn(self.meddle)
            case _:
                pass

    async def crash(self, slow: int) -> None:
        await steps(slow)
        raise ValueError("crash")

    async def hook(self, config: object, next: Callable[[], Awaitable[object]]) -> None:
        await steps(1)
        if self.random.random() < 0.5:
            await next()

    def compose(self, ctx: Context, effect: Effect, slow: int) -> None:
        async def set_up() -> Callable[[], object]:
            down = self.up("set-up")
            await steps(slow)

            async def end() -> None:
                await steps(1)
                down()

            return end

        def body() -> Any:
            yield None
            yield ctx.effect(set_up)
            yield effect

        self.composites.append(ctx.effect(body, "composite"))

    # -- acts --------------------------------------------------------------------------------

    def someone(self) -> Mount | None:
        mounts = [mount for mount in self.app.mounts if mount.definition.target is not None]
        return self.random.choice(mounts) if mounts else None

    def somewhere(self) -> Context:
        places = [self.app.ctx] * 4 + [self.app.ctx.isolate(One, "inside")]
        places += [scope.ctx for scope in self.scopes if scope.ctx.owner.accepting]
        places += [mount.ctx for mount in self.app.mounts if mount.accepting]
        return self.random.choice(places)

    async def meddle(self) -> None:
        """Do to somebody what may not be possible from here."""
        mount = self.someone()
        if mount is None:
            return
        effects = [effect for effect in mount.effects if effect.label not in PRIVATE]
        try:
            match self.random.randrange(6):
                case 0:
                    await mount.dispose()
                case 1:
                    await mount.restart()
                case 2:
                    await mount.settled()
                case 3 if self.composites:
                    await self.random.choice(self.composites).dispose()
                case 4 if effects:
                    await self.random.choice(effects).dispose()
                case 5 if self.random.random() < 0.2:
                    try:
                        await self.app.reset()
                    finally:  # it takes along whoever counts the waits that are refused
                        self.app.on_error(self.app.ctx, self.noticed)
                case _:
                    await steps(1)
        except EXPECTED as error:
            self.deadlocks += isinstance(error, LifecycleDeadlock)

    async def act(self) -> None:
        acts: list[Callable[[], Awaitable[None]]] = [
            self.act_on_a_mount,
            self.act_on_a_scope,
            self.act_on_a_service,
            self.dispatch,
            self.meddle,
            lambda: steps(self.random.randrange(6)),
            *[self.mount_something] * 3,
        ]
        async with cancelled_after(self.random.choice([0, 2, 5, 10, None, None])):
            with suppress(*EXPECTED):
                await self.random.choice(acts)()

    async def mount_something(self) -> None:
        ctx, slow = self.somewhere(), self.random.randrange(4)
        service = self.random.choice(SERVICES)
        match self.random.randrange(4):
            case 0:
                ctx.mount(self.provider(service, slow))
            case 1:
                ctx.mount(self.function(service, slow))
            case 2:
                used = self.random.sample(SERVICES, self.random.randrange(1, 3))
                ctx.mount(self.user(used, slow))
            case _:
                ctx.mount(self.generator(slow))

    async def act_on_a_mount(self) -> None:
        mount = self.someone()
        if mount is None:
            return
        match self.random.randrange(5):
            case 0:
                await mount.dispose()
            case 1:
                mount.request_dispose()
            case 2:
                await mount.restart()
            case 3:
                mount.request_restart()
            case _:
                await mount.update(None)

    async def act_on_a_scope(self) -> None:
        scopes = [scope for scope in self.scopes if not scope.ctx.owner.ending]
        if scopes and self.random.random() < 0.4:
            await self.random.choice(scopes).dispose()
        elif scopes and self.random.random() < 0.4:
            self.random.choice(scopes).rebind(self.random.choice(self.keys))
        else:
            key = self.random.choice(self.keys)
            self.scopes.append(self.somewhere().scope(key, self.key()))

    async def act_on_a_service(self) -> None:
        if not self.registrations:
            return
        registration, service, ctx = self.random.choice(self.registrations)
        if self.random.random() < 0.5:
            await registration.dispose()
        else:
            thing = service(ctx)
            thing.closed = False
            registration.replace(thing, reload=self.random.random() < 0.7)

    async def dispatch(self) -> None:
        async def zero(event: Asked) -> int:
            return 0

        async def source(event: Streamed) -> AsyncGenerator[int, None]:
            down = self.up("source")
            try:
                for number in range(5):
                    await steps(1)
                    yield number
            finally:
                down()

        ctx = self.somewhere()
        ctx.emit(Told(self.key()))
        await ctx.waterfall(Asked(self.key()), zero)
        async with aclosing(ctx.stream(Streamed(self.key()), source)) as stream:
            async for _ in stream:
                if self.random.random() < 0.2:
                    break

    # -- checks ------------------------------------------------------------------------------

    def check_rest(self) -> None:
        for mount in self.app.mounts:
            assert not mount.busy, f"{mount!r} never came to rest\n{self.app.explain()}"
            if mount.definition.target is None:
                continue
            if mount.error is not None:
                expected = MountState.FAILED
            else:
                expected = MountState.PENDING if mount.missing() else MountState.ACTIVE
            assert mount.state is expected
            for key, impl in mount.store.items():
                assert self.app.services.find(key, mount.ctx.realm_of(key)) is impl
        self.check_errors()

    def check_errors(self) -> None:
        # where a wait had to be refused, somebody could not be waited for
        assert self.errors == [] or self.deadlocks

    def check_end(self) -> None:
        app = self.app
        self.check_errors()
        assert self.open == {}
        assert app.mounts == ()
        assert app.root.state is MountState.DISPOSED
        assert app.services.keys() == []
        for channel in app.channels.values():
            assert len(channel) == 0
        for key in self.keys:
            assert not app.has_scope(key)
            assert scope_chain(key) == (key,)


@asynccontextmanager
async def cancelled_after(count: int | None) -> AsyncGenerator[None, None]:
    """Cancel the block after so many steps."""
    async with anyio.create_task_group() as tasks:

        async def cancel(count: int) -> None:
            await steps(count)
            tasks.cancel_scope.cancel()

        if count is not None:
            tasks.start_soon(cancel, count)
        yield
        tasks.cancel_scope.cancel()


async def live(world: World, ending: Ending) -> None:
    async with world.app:
        world.app.on_error(world.app.ctx, world.noticed)
        async with anyio.create_task_group() as tasks:

            async def actor() -> None:
                for _ in range(ACTS):
                    await world.act()
                    await steps(world.random.randrange(3))

            for _ in range(ACTORS):
                tasks.start_soon(actor)
        if ending == "rest":
            await anyio.wait_all_tasks_blocked()
            world.check_rest()


@pytest.mark.parametrize("ending", ["rest", "leave", "cancel"])
async def test_whatever_happens_nothing_is_left(
    ending: Ending, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="dsh")
    for seed in range(SEEDS):
        world = World(seed, App())
        with anyio.fail_after(20):
            if ending == "cancel":
                async with cancelled_after(world.random.randrange(200)):
                    await live(world, ending)
            else:
                await live(world, ending)
        world.check_end()
