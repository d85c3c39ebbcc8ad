"""Listeners and the five ways to dispatch.

A dispatch takes a snapshot of its listeners. Notifications skip one that was removed meanwhile;
decisions keep it, because dropping a veto half-way would fail open.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from dsh.core._events import Event, Mode, Next, NextStream, check_declaration
from dsh.core._logging import Failure
from dsh.core._scope import scope_chain
from dsh.core.errors import EventModeError

if TYPE_CHECKING:
    from dsh.core._app import App
    from dsh.core._context import Context
    from dsh.core._effects import Effect
    from dsh.core._mount import Mount


class Listener:
    """One registration of a listener."""

    __slots__ = ("call", "ctx", "everyone", "fn", "live")

    def __init__(self, ctx: Context, fn: Callable[..., Any], everyone: bool) -> None:
        self.ctx = ctx
        self.fn = fn
        self.call = fn
        self.everyone = everyone
        self.live = True


class Channel:
    """Every listener of one event class in one app, with a cache of audiences."""

    __slots__ = (
        "_audiences",
        "_listeners",
        "_realms",
        "contained",
        "key_of",
        "mode",
        "name",
        "realm",
    )

    def __init__(self, event: type[Event]) -> None:
        check_declaration(event)
        self.mode: Mode = event.event_mode
        self.name = event.event_name
        self.realm = event.event_realm
        self.contained = event.event_errors == "contain"
        self.key_of = _key_reader(event.event_scope)
        """Reads the scope key an event carries, or None."""
        self._listeners: list[Listener] = []
        self._audiences: dict[object, tuple[Listener, ...]] = {}
        self._realms: dict[tuple[object, object], tuple[Listener, ...]] = {}

    def add(self, listener: Listener, prepend: bool) -> None:
        """Enter a listener, first or last."""
        if prepend:
            self._listeners.insert(0, listener)
        else:
            self._listeners.append(listener)
        self._audiences.clear()
        self._realms.clear()

    def remove(self, listener: Listener) -> None:
        """Take a listener out; running decisions still call it."""
        listener.live = False
        self._listeners.remove(listener)
        self._audiences.clear()
        self._realms.clear()

    def forget_scope(self, key: object) -> None:
        """Drop what was cached for a scope that has ended."""
        self._audiences.pop(key, None)
        for cached in [c for c in self._realms if c[0] is key]:
            del self._realms[cached]

    def audience(self, ctx: Context, key: object) -> tuple[Listener, ...]:
        """Return who hears a dispatch by `ctx` about `key`."""
        label = None if self.realm is None else ctx.label(self.realm)
        if label is None:
            found = self._audiences.get(key)
            if found is None:
                found = self._select(key, None)
                if key is None or ctx.app.has_scope(key):
                    self._audiences[key] = found
            return found
        found = self._realms.get((key, label))
        if found is None:
            found = self._select(key, label)
            if key is None or ctx.app.has_scope(key):
                self._realms[key, label] = found
        return found

    def _select(self, key: object, label: object) -> tuple[Listener, ...]:
        chain = scope_chain(key)
        return tuple(
            listener
            for listener in self._listeners
            if self._hears(listener, chain) and self._same_realm(listener, label)
        )

    def _hears(self, listener: Listener, chain: tuple[object, ...]) -> bool:
        tag = listener.ctx.tag
        return tag is None or listener.everyone or any(tag is key for key in chain)

    def _same_realm(self, listener: Listener, label: object) -> bool:
        return self.realm is None or listener.ctx.label(self.realm) == label

    def __len__(self) -> int:
        return len(self._listeners)


def _key_reader(path: str | None) -> Callable[[Event], object]:
    if path is None:
        return _no_key
    parts = path.split(".")
    if len(parts) == 1:
        return attrgetter(parts[0])

    def read(event: Event) -> object:
        value: object = event
        for part in parts:
            value = getattr(value, part)
            if value is None:
                return None
        return value

    return read


def _no_key(event: Event) -> object:
    return None


def check_listener(event: type[Event], fn: Callable[..., Any]) -> None:
    """Refuse a function that does not suit the mode.

    Raises:
        EventModeError: A coroutine function on an `Emit` event would never run, a plain function
            on an awaited one would block or fail late.
    """
    mode = event.event_mode
    target: Callable[..., Any] = fn
    while isinstance(target, partial):
        target = target.func
    is_async = inspect.iscoroutinefunction(target)
    is_stream = inspect.isasyncgenfunction(target)
    if mode == "emit" and (is_async or is_stream):
        raise EventModeError(
            f"{_name(fn)} is async, but {event.event_name!r} is an Emit event",
            hint="use ctx.subscribe(), or ctx.spawn() inside a plain function",
        )
    if mode == "stream" and is_async:
        raise EventModeError(
            f"{_name(fn)} listens to the stream event {event.event_name!r} and yields nothing",
            hint="make it an async generator",
        )


def listen(
    ctx: Context,
    event: type[Event],
    fn: Callable[..., Any],
    prepend: bool,
    audience: Literal["scoped", "all"],
    *,
    once: bool,
) -> Effect:
    """Register a listener as an effect of the owner of `ctx`."""
    check_listener(event, fn)
    channel = ctx.app.channel(event)
    label = f"on {channel.name}"
    ctx.owner.check_accepting(label)
    listener = Listener(ctx, fn, audience == "all")
    channel.add(listener, prepend)

    def remove() -> None:
        if listener.live:
            channel.remove(listener)

    effect = ctx.defer(remove, label)
    if once:

        def call(*args: Any) -> Any:
            effect.dispose_nowait()
            return fn(*args)

        listener.call = call
    return effect


def subscribe(
    ctx: Context, event: type[Event], buffer: float, audience: Literal["scoped", "all"]
) -> MemoryObjectReceiveStream[Any]:
    """Return a stream fed by a listener; it ends with the owner."""
    if event.event_mode != "emit":
        raise EventModeError(f"only Emit events can be subscribed to, not {event.event_name!r}")
    send, receive = anyio.create_memory_object_stream[Any](buffer)

    def feed(item: Any) -> None:
        try:
            send.send_nowait(item)
        except anyio.BrokenResourceError:
            effect.dispose_nowait()
        except anyio.WouldBlock as error:
            ctx.report(error, f"subscription to {event.event_name}: its buffer is full")

    def body() -> Any:
        yield send.close
        yield listen(ctx, event, feed, False, audience, once=False)

    effect = ctx.effect(body, f"subscribe {event.event_name}")
    return receive


def _open(ctx: Context, event: Event, mode: Mode) -> tuple[Channel, tuple[Listener, ...]]:
    app: App = ctx.app
    channel = app.channel(type(event))
    if channel.mode != mode:
        raise EventModeError(
            f"{channel.name!r} is dispatched as {mode}, but it is a {channel.mode} event"
        )
    key = channel.key_of(event)
    if app.observers:
        for observe in app.observers:
            observe(event, key, mode)
    return channel, channel.audience(ctx, key)


def emit(ctx: Context, event: Event) -> None:
    """Tell every listener, in order."""
    channel, listeners = _open(ctx, event, "emit")
    for listener in listeners:
        if listener.live:
            try:
                listener.call(event)
            except Exception as error:
                if not channel.contained:
                    raise
                _report(listener.ctx.owner, channel, error)


async def parallel(ctx: Context, event: Event) -> None:
    """Run every listener concurrently; raise all failures as one group."""
    channel, listeners = _open(ctx, event, "parallel")
    errors: list[Exception] = []

    async def run(listener: Listener) -> None:
        try:
            if listener.live:
                await listener.call(event)
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


async def serial(ctx: Context, event: Event) -> object:
    """Ask listeners one by one; the first result that is not None wins."""
    _, listeners = _open(ctx, event, "serial")
    for listener in listeners:
        result = await listener.call(event)
        if result is not None:
            return result
    return None


def waterfall(
    ctx: Context, event: Event, default: Callable[[Any], Awaitable[Any]]
) -> Awaitable[Any]:
    """Run the listeners around `default`."""
    _, listeners = _open(ctx, event, "waterfall")
    return default(event) if not listeners else Next(listeners, 0, event, default)()


def stream(
    ctx: Context, event: Event, default: Callable[[Any], AsyncGenerator[Any, None]]
) -> AsyncGenerator[Any, None]:
    """Run the listeners around the stream of `default`."""
    _, listeners = _open(ctx, event, "stream")
    if not listeners:
        return default(event)
    return _closing(listeners, event, default)


async def _closing(
    listeners: tuple[Listener, ...],
    event: Event,
    default: Callable[[Any], AsyncGenerator[Any, None]],
) -> AsyncGenerator[Any, None]:
    opened: list[AsyncGenerator[Any, None]] = []
    try:
        async for item in NextStream(listeners, 0, event, default, opened)():
            yield item
    finally:
        with anyio.CancelScope(shield=True):
            await _close_all(opened)


async def _close_all(opened: list[AsyncGenerator[Any, None]]) -> None:
    """Close every generator, outermost first: a layer may still iterate the one below it."""
    errors: list[Exception] = []
    for generator in opened:
        try:
            await generator.aclose()
        except Exception as error:  # noqa: BLE001 - the ones below are closed all the same
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("closing a stream failed", errors)


def _report(mount: Mount, channel: Channel, error: Exception) -> None:
    mount.app.report(Failure(mount.name, f"listener of {channel.name}", error))


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", repr(fn))
