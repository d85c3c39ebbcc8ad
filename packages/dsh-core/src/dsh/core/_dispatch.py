"""The five ways to dispatch.

A dispatch takes a snapshot of its listeners. Notifications skip one that was removed meanwhile;
decisions keep it, because dropping a veto half-way would fail open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from dsh.core._blame import Blame, BlamingNext
from dsh.core._effects import raise_all
from dsh.core._events import (
    Event,
    Mode,
    Next,
    NextStream,
    Serial,
    StreamWaterfall,
    Waterfall,
    awaitable,
)
from dsh.core.errors import AbandonedError, EventModeError

if TYPE_CHECKING:
    from dsh.core._app import App
    from dsh.core._audience import Channel, Listener
    from dsh.core._place import Place

R = TypeVar("R")
T = TypeVar("T")


def _open(ctx: Place, event: Event, mode: Mode) -> tuple[Channel, tuple[Listener, ...]]:
    app: App = ctx.app
    channel = app.channels.get(type(event))
    if channel is None:
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EventModeError(
                f"{event!r} is dispatched as {mode}, but it is no event",
                hint="dispatch an instance of the event class",
            )
        channel = app.channel(type(event))
    if channel.mode != mode:
        raise EventModeError(
            f"{channel.name!r} is dispatched as {mode}, but its mode is {channel.mode}"
        )
    key = channel.key_of(event)
    for observe in app._dispatch_observers.fns:
        observe(event, key, mode)
    return channel, channel.audience(ctx, key)


def emit(ctx: Place, event: Event) -> None:
    """Tell every listener, in order."""
    channel, listeners = _open(ctx, event, "emit")
    for listener in listeners:
        if listener.live:
            try:
                listener.call(event)
            except Exception as error:
                if not channel.contained:
                    raise
                listener.ctx.report(error, f"listener of {channel.name}")


async def parallel(ctx: Place, event: Event) -> None:
    """Run every listener concurrently; raise all failures as one group."""
    channel, listeners = _open(ctx, event, "parallel")
    errors: list[Exception] = []

    async def run(listener: Listener) -> None:
        try:
            if listener.live:
                await awaitable(listener.call(event), listener.call, event)
        except Exception as error:  # noqa: BLE001 - collected and raised as a group below
            errors.append(error)

    if len(listeners) == 1:
        await run(listeners[0])
    elif listeners:
        async with anyio.create_task_group() as group:
            for listener in listeners:
                group.start_soon(run, listener)
    if errors:
        raise ExceptionGroup(f"listeners of {channel.name!r} failed", errors)


async def serial(ctx: Place, event: Serial[R]) -> R | None:
    """Ask listeners one by one; the first result that is not None wins."""
    _, listeners = _open(ctx, event, "serial")
    for listener in listeners:
        result: R | None = await awaitable(listener.call(event), listener.call, event)
        if result is not None:
            return result
    return None


def waterfall(
    ctx: Place,
    event: Waterfall[R],
    default: Callable[[Any], Awaitable[R]],
    on_failure: Callable[[Any, Exception], None] | None,
) -> Awaitable[R]:
    """Run the listeners around `default`."""
    _, listeners = _open(ctx, event, "waterfall")
    if not listeners:
        return default(event)
    if on_failure is None:
        return Next(listeners, 0, event, default)()
    return BlamingNext(listeners, 0, event, default, Blame(on_failure))()


def stream(
    ctx: Place, event: StreamWaterfall[T], default: Callable[[Any], AsyncGenerator[T, None]]
) -> AsyncGenerator[T, None]:
    """Run the listeners around the stream of `default`."""
    channel, listeners = _open(ctx, event, "stream")
    if not listeners:
        return default(event)
    return _closing(ctx, channel, listeners, event, default)


async def _closing(
    ctx: Place,
    channel: Channel,
    listeners: tuple[Listener, ...],
    event: Event,
    default: Callable[[Any], AsyncGenerator[T, None]],
) -> AsyncGenerator[T, None]:
    opened: list[AsyncGenerator[Any, None]] = []
    broken = True
    try:
        async for item in NextStream(listeners, 0, event, default, opened)():
            yield item
        broken = False
    except GeneratorExit:
        broken = False
        raise
    finally:
        errors = await _close_all(opened, ctx.app.teardown_grace_s)
        if broken:
            # what broke the stream is on its way to the consumer, and matters more
            for error in errors:
                ctx.report(error, f"closing a stream of {channel.name}")
        else:
            raise_all(f"closing a stream of {channel.name!r} failed", errors)


async def _close_all(opened: list[AsyncGenerator[Any, None]], grace: float) -> list[Exception]:
    """Close every generator, outermost first: a layer may still iterate the one below it."""
    errors: list[Exception] = []
    for generator in opened:
        with anyio.move_on_after(grace, shield=True) as scope:
            try:
                await generator.aclose()
            except Exception as error:  # noqa: BLE001 - the ones below are closed all the same
                errors.append(error)
        if scope.cancelled_caught:
            errors.append(AbandonedError(f"{generator!r} did not close within {grace:g} s"))
    return errors
