"""Listeners and the five ways to dispatch.

A dispatch takes a snapshot of its listeners. Notifications skip one that was removed meanwhile;
decisions keep it, because dropping a veto half-way would fail open.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from dsh.core._effects import raise_all
from dsh.core._events import Event, Mode, Next, NextStream, check_declaration
from dsh.core._scope import scope_chain
from dsh.core.errors import AbandonedError, EventModeError

if TYPE_CHECKING:
    from dsh.core._app import App
    from dsh.core._context import Context
    from dsh.core._effects import Effect


class Listener:
    """One registration of a listener."""

    __slots__ = ("call", "ctx", "everyone", "live")

    def __init__(self, ctx: Context, fn: Callable[..., Any], everyone: bool) -> None:
        self.ctx = ctx
        self.call = fn
        self.everyone = everyone
        self.live = True


class Channel:
    """Every listener of one event class in one app, with a cache of audiences."""

    __slots__ = ("_cache", "_listeners", "contained", "key_of", "mode", "name", "realm")

    def __init__(self, event: type[Event]) -> None:
        check_declaration(event)
        self.mode: Mode = event.event_mode
        self.name = event.event_name
        self.realm = event.event_realm
        self.contained = event.event_errors == "contain"
        self.key_of = _key_reader(event.event_scope)
        """Reads the scope key an event carries, or None."""
        self._listeners: list[Listener] = []
        self._cache: dict[object, tuple[Listener, ...]] = {}

    def add(self, listener: Listener, prepend: bool) -> None:
        """Enter a listener, first or last."""
        if prepend:
            self._listeners.insert(0, listener)
        else:
            self._listeners.append(listener)
        self.forget()

    def remove(self, listener: Listener) -> None:
        """Take a listener out; running decisions still call it."""
        listener.live = False
        self._listeners.remove(listener)
        self.forget()

    def forget(self) -> None:
        """Drop the cached audiences: who listens, or which scopes there are, has changed."""
        self._cache.clear()

    def audience(self, ctx: Context, key: object) -> tuple[Listener, ...]:
        """Return who hears a dispatch by `ctx` about `key`."""
        label = ctx.label(self.realm) if ctx.isolated and self.realm is not None else None
        # a scope key is never a tuple, so the two forms cannot meet
        slot = key if label is None else (key, label)
        found = self._cache.get(slot)
        if found is None:
            found = self._select(key, label)
            if key is None or ctx.app.has_scope(key):
                if len(self._cache) >= _CACHED_AUDIENCES:
                    self._cache.clear()
                self._cache[slot] = found
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


_CACHED_AUDIENCES: Final = 1024
"""Private realms come and go unannounced; beyond this many audiences the cache starts afresh."""


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

    A plain function passes everywhere: where the mode awaits, it may return an awaitable.

    Raises:
        EventModeError: The function is of a kind that would never run in that mode.
    """
    target: Any = fn
    while isinstance(target, partial):
        target = target.func
    if not inspect.isroutine(target):
        # an object with a __call__ of its own
        target = cast("Any", type(target)).__call__
    mode = event.event_mode
    if inspect.isgeneratorfunction(target):
        kind, hint = "a generator", "make it a function, or an async generator for a stream event"
    elif inspect.isasyncgenfunction(target) and mode != "stream":
        kind, hint = "an async generator", "only stream events are listened to by generators"
    elif inspect.iscoroutinefunction(target) and mode == "emit":
        kind, hint = "async", "use ctx.subscribe(), or ctx.spawn() inside a plain function"
    elif inspect.iscoroutinefunction(target) and mode == "stream":
        kind, hint = "a coroutine function", "make it an async generator"
    else:
        return
    raise EventModeError(
        f"{_name(fn)} is {kind} and cannot listen to the {mode} event {event.event_name!r}",
        hint=hint,
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
    channel = ctx.app.channel(event)
    check_listener(event, fn)
    listener = Listener(ctx, fn, audience == "all")
    effect = ctx.defer(partial(channel.remove, listener), f"on {channel.name}")
    if once:
        listener.call = _once(effect, fn)
    channel.add(listener, prepend)
    return effect


def _once(effect: Effect, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `fn` to run for one dispatch; others that hold it in their snapshot pass it by."""
    spent = False

    def call(event: Any, *rest: Any) -> Any:
        nonlocal spent
        if spent:
            return rest[0]() if rest else _nothing()
        spent = True
        effect.dispose_nowait()
        return fn(event, *rest)

    return call


async def _nothing() -> None:
    """What a listener that has nothing to say returns to a mode that awaits."""


def subscribe(
    ctx: Context, event: type[Event], buffer: float, audience: Literal["scoped", "all"]
) -> MemoryObjectReceiveStream[Any]:
    """Return a stream fed by a listener; it ends with the owner."""
    if event.event_mode != "emit":
        raise EventModeError(f"only Emit events can be subscribed to, not {event.event_name!r}")
    label = f"subscribe {ctx.app.channel(event).name}"
    ctx.owner.check_accepting(label)
    send, receive = anyio.create_memory_object_stream[Any](buffer)
    dropping = False

    def feed(item: Any) -> None:
        nonlocal dropping
        try:
            send.send_nowait(item)
            dropping = False
        except anyio.BrokenResourceError:
            effect.dispose_nowait()
        except anyio.WouldBlock as error:
            if not dropping:
                ctx.report(error, f"subscription to {event.event_name}: its buffer is full")
            dropping = True

    def body() -> Generator[Any, None, None]:
        yield send.close
        yield listen(ctx, event, feed, False, audience, once=False)

    effect = ctx.effect(body, label)
    return receive


def _open(ctx: Context, event: Event, mode: Mode) -> tuple[Channel, tuple[Listener, ...]]:
    app: App = ctx.app
    channel = app.channels.get(type(event))
    if channel is None:
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
                listener.ctx.report(error, f"listener of {channel.name}")


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
    channel, listeners = _open(ctx, event, "stream")
    if not listeners:
        return default(event)
    return _closing(ctx, channel, listeners, event, default)


async def _closing(
    ctx: Context,
    channel: Channel,
    listeners: tuple[Listener, ...],
    event: Event,
    default: Callable[[Any], AsyncGenerator[Any, None]],
) -> AsyncGenerator[Any, None]:
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


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", repr(fn))
