"""Who hears a dispatch: scopes that move, realms that come and go, listeners that hear once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from dsh.core import (
    App,
    Emit,
    Event,
    EventDeclarationError,
    EventModeError,
    InactiveContextError,
    Next,
    NextStream,
    Parallel,
    ScopeError,
    Serial,
    Service,
    StreamWaterfall,
    Waterfall,
    scope_chain,
)


class Key:
    """A scope key."""


class Store(Service, key="test-audiences-store"):
    """A test service."""


@dataclass(frozen=True, slots=True)
class About(Emit, name="test-audiences/about", scope="key"):
    """Something about a key."""

    key: Key | None


@dataclass(frozen=True, slots=True)
class Stored(Emit, name="test-audiences/stored", realm=Store):
    """Something about a store."""


@dataclass(frozen=True, slots=True)
class Told(Emit, name="test-audiences/told"):
    """A notification."""


@dataclass(frozen=True, slots=True)
class Together(Parallel, name="test-audiences/together"):
    """Something done together."""


@dataclass(frozen=True, slots=True)
class Asked(Serial[int], name="test-audiences/asked"):
    """A question."""


@dataclass(frozen=True, slots=True)
class Wrapped(Waterfall[int], name="test-audiences/wrapped"):
    """A wrapped number."""


@dataclass(frozen=True, slots=True)
class Streamed(StreamWaterfall[int], name="test-audiences/streamed"):
    """A wrapped stream."""


# -- scopes --------------------------------------------------------------------------------------


async def test_a_scope_that_gets_another_parent_is_heard_by_that_one() -> None:
    heard: list[str] = []
    async with App() as app:
        one, two, child = Key(), Key(), Key()
        app.ctx.scope(one).ctx.on(About, lambda event: heard.append("one"))
        app.ctx.scope(two).ctx.on(About, lambda event: heard.append("two"))
        scope = app.ctx.scope(child, parent=one)
        app.ctx.emit(About(child))
        scope.rebind(two)
        app.ctx.emit(About(child))
        assert heard == ["one", "two"]
        await scope.dispose()
        assert scope_chain(child) == (child,)


async def test_a_scope_whose_grandparent_ends_is_heard_there_no_more() -> None:
    heard: list[str] = []
    async with App() as app:
        top, middle, child = Key(), Key(), Key()
        app.ctx.scope(top).ctx.on(About, lambda event: heard.append("top"))
        between = app.ctx.scope(middle, parent=top)
        app.ctx.scope(child, parent=middle)
        app.ctx.emit(About(child))
        await between.dispose()
        app.ctx.emit(About(child))
    assert heard == ["top"]


async def test_a_link_made_later_ends_with_the_scope_and_not_before_the_last() -> None:
    async with App() as app:
        parent, child = Key(), Key()
        first, second = app.ctx.scope(child), app.ctx.scope(child)
        first.rebind(parent)
        await first.dispose()
        assert scope_chain(child) == (child, parent)
        with pytest.raises(InactiveContextError):
            first.rebind(parent)
        await second.dispose()
        assert scope_chain(child) == (child,)


async def test_keys_compared_by_value_are_refused() -> None:
    @dataclass(frozen=True)
    class Equal:
        number: int

    async with App() as app:
        with pytest.raises(ScopeError, match="identity"):
            app.ctx.scope(Equal(1))
        with pytest.raises(ScopeError, match="identity"):
            app.ctx.scope(Key(), parent=Equal(1))
        with pytest.raises(ScopeError, match="identity"):
            app.ctx.scope(Key()).rebind("parent")


async def test_a_scope_path_is_checked_through_optional_fields() -> None:
    @dataclass(frozen=True)
    class Carrier:
        key: Key | None

    @dataclass(frozen=True, slots=True)
    class Wrong(Emit, name="test-audiences/wrong", scope="carrier.owner"):
        carrier: Carrier | None

    Wrong.__annotations__["carrier"] = Carrier | None
    async with App() as app:
        with pytest.raises(EventDeclarationError, match="no 'owner'"):
            app.ctx.emit(Wrong(None))


async def test_an_event_needs_a_mode() -> None:
    class Modeless(Event, name="test-audiences/modeless"):
        pass

    event: Any = Modeless
    async with App() as app:
        with pytest.raises(EventDeclarationError, match="no mode"):
            app.ctx.on(event, lambda event: None)
        with pytest.raises(EventDeclarationError, match="no mode"):
            app.ctx.emit(event())


async def test_a_subscription_that_is_refused_leaves_nothing() -> None:
    async def plugin(ctx: Any, config: object) -> None: ...

    async with App() as app:
        mount = await app.mount(plugin).settled()
        await mount.dispose()
        with pytest.raises(InactiveContextError):
            mount.ctx.subscribe(Told)
        assert len(app.channel(Told)) == 0


# -- realms --------------------------------------------------------------------------------------


async def test_the_realm_of_an_event_may_be_named_by_its_service() -> None:
    heard: list[str] = []
    async with App() as app:
        inside = app.ctx.isolate(Store)
        app.ctx.on(Stored, lambda event: heard.append("outside"))
        inside.on(Stored, lambda event: heard.append("inside"))
        inside.emit(Stored())
        app.ctx.emit(Stored())
    assert Stored.event_realm == "test-audiences-store"
    assert heard == ["inside", "outside"]


async def test_private_realms_that_dispatch_do_not_pile_up() -> None:
    async with App() as app:
        for _ in range(3000):
            app.ctx.isolate(Store).emit(Stored())
        assert len(app.channel(Stored)._cache) <= 1024  # pyright: ignore[reportPrivateUsage]


# -- once ----------------------------------------------------------------------------------------


async def test_once_is_once_for_dispatches_that_overlap() -> None:
    calls: list[str] = []
    gate = anyio.Event()

    async def wait(event: object) -> None:
        await gate.wait()

    async def wait_around(event: object, next: Next[int]) -> int:
        await gate.wait()
        return await next()

    async def wait_in_stream(event: object, next: NextStream[int]) -> AsyncGenerator[int, None]:
        await gate.wait()
        async for number in next():
            yield number

    async def answer(event: object) -> int | None:
        calls.append("asked")
        return None

    async def around(event: object, next: Next[int]) -> int:
        calls.append("wrapped")
        return 10 + await next()

    async def in_stream(event: object, next: NextStream[int]) -> AsyncGenerator[int, None]:
        calls.append("streamed")
        async for number in next():
            yield 10 + number

    async def one(event: object) -> int:
        return 1

    async def ones(event: object) -> AsyncGenerator[int, None]:
        yield 1

    results: list[Any] = []
    async with App() as app:
        app.ctx.on(Asked, wait)
        app.ctx.on(Wrapped, wait_around)
        app.ctx.on(Streamed, wait_in_stream)
        app.ctx.once(Asked, answer)
        app.ctx.once(Wrapped, around)
        app.ctx.once(Streamed, in_stream)

        async def dispatch() -> None:
            results.append(await app.ctx.serial(Asked()))
            results.append(await app.ctx.waterfall(Wrapped(), one))
            results.extend([n async for n in app.ctx.stream(Streamed(), ones)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dispatch)
            tasks.start_soon(dispatch)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert app.root.effects[3:] == ()
    assert calls == ["asked", "wrapped", "streamed"]
    assert sorted(results, key=str) == [1, 1, 11, 11, None, None]


# -- listeners that change things ----------------------------------------------------------------


async def test_listeners_may_remove_themselves_and_others() -> None:
    calls: list[str] = []
    async with App() as app:

        def clear(event: Told) -> None:
            calls.append("first")
            for effect in effects:
                effect.dispose_nowait()

        effects = [app.ctx.on(Told, clear), app.ctx.on(Told, lambda event: calls.append("second"))]
        app.ctx.emit(Told())
        app.ctx.emit(Told())
        assert len(app.channel(Told)) == 0
    assert calls == ["first"]


async def test_a_listener_may_end_its_owner_in_every_mode() -> None:
    async def plugin(ctx: Any, config: object) -> None:
        async def together(event: Together) -> None:
            await ctx.owner.dispose()

        async def asked(event: Asked) -> int:
            await ctx.owner.dispose()
            return 1

        async def wrapped(event: Wrapped, next: Next[int]) -> int:
            await ctx.owner.dispose()
            return 1 + await next()

        async def streamed(event: Streamed, next: NextStream[int]) -> AsyncGenerator[int, None]:
            await ctx.owner.dispose()
            async for number in next():
                yield 1 + number

        ctx.on(Together, together)
        ctx.on(Asked, asked)
        ctx.on(Wrapped, wrapped)
        ctx.on(Streamed, streamed)

    async def zero(event: object) -> int:
        return 0

    async def zeros(event: object) -> AsyncGenerator[int, None]:
        yield 0

    async with App() as app:
        with anyio.fail_after(5):
            await app.mount(plugin).settled()
            await app.ctx.parallel(Together())
            await app.mount(plugin).settled()
            assert await app.ctx.serial(Asked()) == 1
            await app.mount(plugin).settled()
            assert await app.ctx.waterfall(Wrapped(), zero) == 1
            await app.mount(plugin).settled()
            assert [n async for n in app.ctx.stream(Streamed(), zeros)] == [1]
        assert app.mounts == ()


def _generator(event: object) -> Any:
    yield


async def _async_generator(event: object) -> Any:
    yield


class _AsyncCallable:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize(
    ("event", "listener"),
    [
        (Told, _generator),
        (Told, _async_generator),
        (Told, _AsyncCallable()),
        (Together, _generator),
        (Together, _async_generator),
        (Asked, _async_generator),
        (Wrapped, _async_generator),
        (Streamed, _AsyncCallable()),
        (Streamed, _generator),
    ],
)
async def test_a_listener_that_would_never_run_is_refused(
    event: Any, listener: Callable[..., Any]
) -> None:
    async with App() as app:
        with pytest.raises(EventModeError):
            app.ctx.on(event, listener)
        assert app.root.effects == ()


async def test_a_subscription_reports_the_first_of_a_run_of_drops() -> None:
    reports: list[str] = []
    async with App() as app:
        app.on_error(app.ctx, lambda failure: reports.append(failure.where))
        with app.ctx.subscribe(Told, buffer=1) as events:
            for _ in range(2):
                for _ in range(4):
                    app.ctx.emit(Told())
                events.receive_nowait()
            with pytest.raises(anyio.WouldBlock):
                events.receive_nowait()
        app.ctx.emit(Told())
        assert len(app.channel(Told)) == 0
    assert len(reports) == 2
