"""Events: registration, the five modes, observers, declarations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from dsh.core import (
    App,
    Context,
    Effect,
    Emit,
    Event,
    EventDeclarationError,
    EventModeError,
    Failure,
    InactiveContextError,
    Mount,
    Next,
    NextCalledTwice,
    NextStream,
    Parallel,
    Plugin,
    Serial,
    StreamWaterfall,
    Waterfall,
    on,
)


@dataclass(frozen=True, slots=True)
class Told(Emit, name="test/told"):
    """A notification."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Vetoed(Emit, name="test/vetoed", errors="raise"):
    """An announcement that may be refused."""


@dataclass(frozen=True, slots=True)
class Together(Parallel, name="test/together"):
    """Something done together."""


@dataclass(frozen=True, slots=True)
class Asked(Serial[Any], name="test/asked"):
    """A question."""


@dataclass(frozen=True, slots=True)
class Wrapped(Waterfall[int], name="test/wrapped"):
    """A wrapped number."""

    value: int = 0


@dataclass(frozen=True, slots=True)
class Streamed(StreamWaterfall[int], name="test/streamed"):
    """A wrapped stream."""

    count: int = 3


async def base(event: Wrapped) -> int:
    return event.value


async def numbers(event: Streamed) -> AsyncGenerator[int, None]:
    for number in range(event.count):
        yield number


# case: EV-01
async def test_on_and_off() -> None:
    calls: list[str] = []
    async with App() as app:
        effect = app.ctx.on(Told, lambda event: calls.append(event.text))
        app.ctx.emit(Told("a"))
        app.ctx.emit(Told("b"))
        await effect.dispose()
        app.ctx.emit(Told("c"))
    assert calls == ["a", "b"]


# case: EV-02
async def test_once_even_when_re_entered() -> None:
    calls: list[str] = []
    async with App() as app:

        def listener(event: Told) -> None:
            calls.append(event.text)
            app.ctx.emit(Told("inner"))

        app.ctx.once(Told, listener)
        app.ctx.emit(Told("a"))
        app.ctx.emit(Told("b"))
        early = app.ctx.once(Told, listener)
        await early.dispose()
        app.ctx.emit(Told("c"))
    assert calls == ["a"]


async def test_once_keeps_its_place_or_goes_first() -> None:
    heard: list[str] = []

    def noted(name: str) -> Callable[[Told], None]:
        return lambda event: heard.append(name)

    async with App() as app:
        app.ctx.on(Told, noted("on"))
        app.ctx.once(Told, noted("once"))
        app.ctx.once(Told, noted("first"), prepend=True)
        app.ctx.emit(Told("a"))
        app.ctx.emit(Told("b"))
    assert heard == ["first", "on", "once", "on"]


# case: EV-04
async def test_prepend_goes_first() -> None:
    calls: list[int] = []
    async with App() as app:
        app.ctx.on(Told, lambda event: calls.append(1))
        app.ctx.on(Told, lambda event: calls.append(2), prepend=True)
        app.ctx.on(Told, lambda event: calls.append(3), prepend=True)
        app.ctx.emit(Told())
    assert calls == [3, 2, 1]


def boom(event: Any) -> None:
    raise ValueError("no")


# case: EV-05
async def test_a_veto_stops_the_rest_and_reaches_the_emitter() -> None:
    calls: list[int] = []
    async with App() as app:
        app.ctx.on(Vetoed, boom)
        app.ctx.on(Vetoed, lambda event: calls.append(1))
        with pytest.raises(ValueError, match="no"):
            app.ctx.emit(Vetoed())
    assert calls == []


# case: EV-06
async def test_a_contained_listener_starves_nobody(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []
    failures: list[Failure] = []

    class Bad(Plugin):
        @on(Told)
        def hear(self, event: Told) -> None:
            raise ValueError("no")

    async with App() as app:
        app.on_error(app.ctx, failures.append)
        await app.mount(Bad).settled()
        app.ctx.on(Told, lambda event: calls.append(1))
        app.ctx.emit(Told())
    assert calls == [1]
    assert [(f.plugin, f.where) for f in failures] == [("bad", "listener of test/told")]
    assert [r.name for r in caplog.records] == ["dsh.bad"]


# case: EV-07
# case: EV-08
# case: PY-09
async def test_parallel_runs_all_to_the_end_and_raises_a_group() -> None:
    given: list[Together] = []
    done: list[str] = []
    gate = anyio.Event()
    async with App() as app:

        def sync_raise(event: Together) -> Any:
            raise ValueError("sync")

        async def slow(event: Together) -> None:
            given.append(event)
            await gate.wait()
            done.append("slow")

        async def fast(event: Together) -> None:
            given.append(event)
            gate.set()
            raise KeyError("fast")

        for listener in (sync_raise, slow, fast):
            app.ctx.on(Together, listener)
        event = Together()
        with pytest.raises(ExceptionGroup) as caught:
            await app.ctx.parallel(event)
    assert done == ["slow"]
    assert given == [event, event]
    kinds = {type(error) for error in caught.value.exceptions}
    assert kinds == {ValueError, KeyError}


async def test_a_single_parallel_failure_is_a_group_too() -> None:
    async with App() as app:
        app.ctx.on(Together, boom)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
        with pytest.raises(ExceptionGroup):
            await app.ctx.parallel(Together())


# case: EV-09
@pytest.mark.parametrize(
    ("value", "asked_second"),
    [(None, True), (False, False), (0, False), ("", False), (float("nan"), False), (True, False)],
)
async def test_only_none_abstains(value: Any, asked_second: bool) -> None:
    asked: list[int] = []

    async def first(event: Asked) -> Any:
        return value

    async def second(event: Asked) -> Any:
        asked.append(2)
        return "second"

    async with App() as app:
        app.ctx.on(Asked, first)
        app.ctx.on(Asked, second)
        result = await app.ctx.serial(Asked())
    assert bool(asked) is asked_second
    assert result == "second" if asked_second else result is value


# case: EV-10
async def test_a_waterfall_nests_around_its_default() -> None:
    calls: list[str] = []

    async def add(event: Wrapped, next: Next[int]) -> int:
        calls.append("add")
        return 1 + await next()

    async def take_over(event: Wrapped, next: Next[int]) -> int:
        return 0

    async with App() as app:
        app.ctx.on(Wrapped, add)
        app.ctx.on(Wrapped, add)
        assert await app.ctx.waterfall(Wrapped(2), base) == 4
        app.ctx.on(Wrapped, take_over)
        app.ctx.on(Wrapped, add)
        calls.clear()
        assert await app.ctx.waterfall(Wrapped(2), base) == 2
        assert calls == ["add", "add"]


# case: EV-11
async def test_next_runs_once_and_again_reruns_everything_below() -> None:
    calls: list[str] = []

    async def retry(event: Wrapped, next: Next[int]) -> int:
        await next()
        with pytest.raises(NextCalledTwice):
            await next()
        return await next.again()

    async def inner(event: Wrapped, next: Next[int]) -> int:
        calls.append("inner")
        return await next()

    async with App() as app:
        app.ctx.on(Wrapped, retry)
        app.ctx.on(Wrapped, inner)
        assert await app.ctx.waterfall(Wrapped(5), base) == 5
    assert calls == ["inner", "inner"]


async def test_next_may_pass_a_replaced_event_of_the_same_class() -> None:
    async def double(event: Wrapped, next: Next[int]) -> int:
        return await next(Wrapped(event.value * 2))

    async def wrong(event: Wrapped, next: Next[int]) -> int:
        return await next(Told())

    async with App() as app:
        app.ctx.on(Wrapped, double)
        assert await app.ctx.waterfall(Wrapped(5), base) == 10
        app.ctx.on(Wrapped, wrong)
        with pytest.raises(EventModeError):
            await app.ctx.waterfall(Wrapped(5), base)


# case: EV-12
async def test_waterfall_errors_pass_outward() -> None:
    async def catches(event: Wrapped, next: Next[int]) -> int:
        try:
            return await next()
        except ValueError:
            return -1

    async def raises(event: Wrapped, next: Next[int]) -> int:
        raise ValueError("no")

    async with App() as app:
        inner = app.ctx.on(Wrapped, raises)
        with pytest.raises(ValueError, match="no"):
            await app.ctx.waterfall(Wrapped(), base)
        app.ctx.on(Wrapped, catches, prepend=True)
        assert await app.ctx.waterfall(Wrapped(), base) == -1
        await inner.dispose()


# case: EV-13
async def test_a_listener_added_meanwhile_is_not_called() -> None:
    calls: list[str] = []
    async with App() as app:

        def adds(event: Told) -> None:
            app.ctx.on(Told, lambda event: calls.append("late"))

        app.ctx.once(Told, adds)
        app.ctx.emit(Told())
        assert calls == []
        app.ctx.emit(Told())
        assert calls == ["late"]


# case: EV-14
async def test_a_removed_listener_is_skipped_by_notifications_but_kept_in_decisions() -> None:
    calls: list[str] = []
    later: list[Effect] = []

    async def removes(event: Wrapped, next: Next[int]) -> int:
        later[1].dispose_nowait()
        return await next()

    async def veto(event: Wrapped, next: Next[int]) -> int:
        calls.append("decision")
        return await next()

    async with App() as app:
        app.ctx.on(Told, lambda event: later[0].dispose_nowait())
        later.append(app.ctx.on(Told, lambda event: calls.append("notification")))
        app.ctx.emit(Told())
        app.ctx.on(Wrapped, removes)
        later.append(app.ctx.on(Wrapped, veto))
        await app.ctx.waterfall(Wrapped(), base)
    assert calls == ["decision"]


# case: EV-15
async def test_a_dispatch_observer_can_veto_every_mode() -> None:
    calls: list[str] = []

    def veto(event: Event, key: object, mode: str) -> None:
        raise PermissionError(mode)

    async def never(event: Any, *rest: Any) -> Any:
        calls.append("called")

    async with App() as app:
        app.ctx.on(Told, lambda event: calls.append("told"))
        app.ctx.on(Together, never)
        app.ctx.on(Asked, never)
        app.ctx.on(Wrapped, never)
        observer = app.on_dispatch(app.ctx, veto)
        with pytest.raises(PermissionError, match="emit"):
            app.ctx.emit(Told())
        with pytest.raises(PermissionError, match="parallel"):
            await app.ctx.parallel(Together())
        with pytest.raises(PermissionError, match="serial"):
            await app.ctx.serial(Asked())
        with pytest.raises(PermissionError, match="waterfall"):
            await app.ctx.waterfall(Wrapped(), base)
        with pytest.raises(PermissionError, match="stream"):
            app.ctx.stream(Streamed(), numbers)
        assert calls == []
        await observer.dispose()
        app.ctx.emit(Told())
        assert calls == ["told"]


# case: EV-16
async def test_the_true_mode_is_reported() -> None:
    modes: list[str] = []
    async with App() as app:
        app.on_dispatch(app.ctx, lambda event, key, mode: modes.append(mode))
        app.ctx.emit(Told())
        await app.ctx.parallel(Together())
        await app.ctx.serial(Asked())
        await app.ctx.waterfall(Wrapped(), base)
        async with aclosing(app.ctx.stream(Streamed(), numbers)) as stream:
            assert [n async for n in stream] == [0, 1, 2]
    assert modes == ["emit", "parallel", "serial", "waterfall", "stream"]


# case: EV-18
async def test_the_same_function_twice_is_two_registrations() -> None:
    calls: list[int] = []

    def listener(event: Told) -> None:
        calls.append(1)

    async with App() as app:
        first = app.ctx.on(Told, listener)
        app.ctx.on(Told, listener)
        await first.dispose()
        app.ctx.emit(Told())
    assert calls == [1]


# case: EV-19
async def test_a_listener_of_a_pending_mount_hears() -> None:
    calls: list[int] = []

    async def plugin(ctx: Context, config: object) -> None: ...

    def watch(mount: Mount) -> None:
        mount.ctx.on(Told, lambda event: calls.append(1))
        app.ctx.emit(Told())

    async with App() as app:
        app.on_mount(app.ctx, watch)
        app.mount(plugin)
        assert calls == [1]


# case: EV-20
async def test_the_wrong_mode_is_a_type_error() -> None:
    async with App() as app:
        with pytest.raises(EventModeError):
            app.ctx.emit(Wrapped())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError):
            await app.ctx.parallel(Told())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# case: EV-21
async def test_a_coroutine_function_cannot_listen_to_an_emit_event() -> None:
    async def listener(event: Told) -> None: ...

    async with App() as app:
        with pytest.raises(EventModeError, match="subscribe"):
            app.ctx.on(Told, listener)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        with pytest.raises(EventModeError, match="async generator"):
            app.ctx.on(Streamed, listener)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        with pytest.raises(EventModeError):
            on(Told)(listener)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def test_a_stream_waterfall_wraps_and_closes_inside_out() -> None:
    closed: list[str] = []

    async def source(event: Streamed) -> AsyncGenerator[int, None]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append("source")

    def layer(name: str, factor: int) -> Any:
        async def listener(event: Streamed, next: NextStream[int]) -> AsyncGenerator[int, None]:
            try:
                async for number in next():
                    yield number * factor
            finally:
                closed.append(name)

        return listener

    async with App() as app:
        app.ctx.on(Streamed, layer("outer", 2))
        app.ctx.on(Streamed, layer("inner", 3))
        seen: list[int] = []
        async with aclosing(app.ctx.stream(Streamed(), source)) as stream:
            async for number in stream:
                seen.append(number)
                if len(seen) == 3:
                    break
        assert seen == [0, 6, 12]
        assert sorted(closed) == ["inner", "outer", "source"]


async def test_a_stream_listener_may_take_over_or_retry() -> None:
    async def twice(event: Streamed, next: NextStream[int]) -> AsyncGenerator[int, None]:
        for _ in range(2):
            async with aclosing(next.again()) as stream:
                async for number in stream:
                    yield number

    async def none(event: Streamed, next: NextStream[int]) -> AsyncGenerator[int, None]:
        yield 9

    async with App() as app:
        app.ctx.on(Streamed, twice)
        async with aclosing(app.ctx.stream(Streamed(2), numbers)) as stream:
            assert [n async for n in stream] == [0, 1, 0, 1]
        app.ctx.on(Streamed, none)
        async with aclosing(app.ctx.stream(Streamed(2), numbers)) as stream:
            assert [n async for n in stream] == [9, 9]


async def test_a_stream_listener_may_pass_another_event_down() -> None:
    seen: list[Streamed] = []

    async def more(event: Streamed, next: NextStream[int]) -> AsyncGenerator[int, None]:
        for count in (1, 2):
            async with aclosing(next.again(Streamed(count))) as stream:
                async for number in stream:
                    yield number
        with pytest.raises(NextCalledTwice):
            next()

    async def look(event: Streamed, next: NextStream[int]) -> AsyncGenerator[int, None]:
        seen.append(event)
        async with aclosing(next()) as stream:
            async for number in stream:
                yield number

    async with App() as app:
        app.ctx.on(Streamed, more)
        app.ctx.on(Streamed, look)
        async with aclosing(app.ctx.stream(Streamed(9), numbers)) as stream:
            assert [n async for n in stream] == [0, 0, 1]
    assert seen == [Streamed(1), Streamed(2)]


async def test_a_subscription_delivers_and_ends_with_its_owner() -> None:
    heard: list[str] = []

    class Reader(Plugin):
        async def start(self) -> None:
            stream = self.ctx.subscribe(Told)

            async def read() -> None:
                async with stream:
                    async for event in stream:
                        heard.append(event.text)
                heard.append("end")

            READERS.append(read)

    async with App() as app, anyio.create_task_group() as tasks:
        mount = await app.mount(Reader).settled()
        tasks.start_soon(READERS.pop())
        app.ctx.emit(Told("a"))
        app.ctx.emit(Told("b"))
        await anyio.wait_all_tasks_blocked()
        await mount.dispose()
    assert heard == ["a", "b", "end"]


READERS: list[Any] = []


async def test_a_full_subscription_drops_with_a_report() -> None:
    failures: list[Failure] = []
    async with App() as app:
        app.on_error(app.ctx, failures.append)
        stream = app.ctx.subscribe(Told, buffer=1)
        app.ctx.emit(Told("a"))
        app.ctx.emit(Told("b"))
        assert stream.receive_nowait().text == "a"
        stream.close()
        app.ctx.emit(Told("c"))
        app.ctx.emit(Told("d"))
        assert len(failures) == 1
        assert len(app.channel(Told)) == 0


async def test_declarations_are_checked_when_first_used() -> None:
    class Nameless(Emit):
        pass

    @dataclass
    class Mutable(Emit, name="test/mutable"):
        x: int = 0

    @dataclass(frozen=True, slots=True)
    class BadScope(Emit, name="test/bad-scope", scope="agnet"):
        agent: object = None

    class Twin(Emit, name="test/told"):
        pass

    async with App() as app:
        for cls, words in (
            (Nameless, "no name"),
            (Mutable, "not frozen"),
            (BadScope, "agnet"),
            (Twin, "test/told"),
        ):
            with pytest.raises(EventDeclarationError, match=words):
                app.ctx.on(cls, lambda event: None)


async def test_a_disposed_context_takes_no_listener() -> None:
    kept: list[Context] = []

    async def plugin(ctx: Context, config: object) -> None:
        kept.append(ctx)

    async with App() as app:
        mount = await app.mount(plugin).settled()
        await mount.dispose()
        with pytest.raises(InactiveContextError):
            kept[0].on(Told, lambda event: None)
        with pytest.raises(InactiveContextError, match="register subscribe test/told on"):
            kept[0].subscribe(Told)
        assert len(app.channel(Told)) == 0


async def test_a_method_may_be_declared_for_several_events() -> None:
    heard: list[str] = []

    class Both(Plugin):
        @on(Told)
        @on(Told, prepend=True)
        def hear(self, event: Told) -> None:
            heard.append(event.text)

    async with App() as app:
        await app.mount(Both).settled()
        app.ctx.emit(Told("a"))
    assert heard == ["a", "a"]


async def test_declared_listeners_are_inherited_and_unbound() -> None:
    heard: list[str] = []

    class Base(Plugin):
        @on(Told)
        def hear(self, event: Told) -> None:
            heard.append(f"{type(self).__name__} {event.text}")

        @on(Wrapped)
        async def wrap(self, event: Wrapped, next: Next[int]) -> int:
            return 10 + await next()

    class Derived(Base):
        pass

    async with App() as app:
        mount = await app.mount(Derived).settled()
        app.ctx.emit(Told("a"))
        assert await app.ctx.waterfall(Wrapped(1), base) == 11
        await mount.dispose()
        app.ctx.emit(Told("b"))
        assert await app.ctx.waterfall(Wrapped(1), base) == 1
    assert heard == ["Derived a"]
