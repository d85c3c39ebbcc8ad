"""Who hears an event: listeners, and the channel that holds those of one event class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from types import CodeType, MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from dsh.core._events import Event, Mode, check_declaration
from dsh.core._scope import scope_chain
from dsh.core.errors import EventModeError

if TYPE_CHECKING:
    from dsh.core._effects import Effect
    from dsh.core._place import Place


Audience: TypeAlias = Literal["scoped", "all"]

_CACHED_AUDIENCES: Final = 1024
"""Private realms come and go unannounced; beyond this many audiences the cache starts afresh."""


class Listener:
    """One registration of a listener."""

    __slots__ = ("call", "ctx", "everyone", "live")

    def __init__(self, ctx: Place, fn: Callable[..., Any], everyone: bool) -> None:
        self.ctx = ctx
        self.call = fn
        self.everyone = everyone
        self.live = True


class Channel:
    """Every listener of one event class in one app, with a cache of audiences."""

    __slots__ = ("_cache", "_listeners", "contained", "key_of", "mode", "name", "realm_key")

    def __init__(self, event: type[Event]) -> None:
        check_declaration(event)
        self.mode: Mode = event.event_mode
        self.name = event.event_name
        self.realm_key = event.event_realm
        """Key of the service whose realm a listener must share with the dispatcher, or None."""
        self.contained = event.event_errors == "contain"
        self.key_of = _key_reader(event.event_scope)
        """Reads the scope key an event carries, or None."""
        self._listeners: list[Listener] = []
        # by scope key, or by (scope key, realm) where the dispatcher is in a realm of its own
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

    def audience(self, ctx: Place, key: object) -> tuple[Listener, ...]:
        """Return who hears a dispatch by `ctx` about `key`."""
        realm = (
            ctx.realm_of(self.realm_key) if ctx.isolated and self.realm_key is not None else None
        )
        # a scope key is never a tuple, so the two forms cannot meet
        slot = key if realm is None else (key, realm)
        found = self._cache.get(slot)
        if found is None:
            found = self._select(key, realm)
            # nothing announces the end of a scope that was never opened, nor frees its key
            if key is None or ctx.app.has_scope(key):
                if len(self._cache) >= _CACHED_AUDIENCES:
                    self._cache.clear()
                self._cache[slot] = found
        return found

    def _select(self, key: object, realm: object) -> tuple[Listener, ...]:
        chain = scope_chain(key)
        return tuple(
            listener
            for listener in self._listeners
            if self._hears(listener, chain) and self._same_realm(listener, realm)
        )

    def _hears(self, listener: Listener, chain: tuple[object, ...]) -> bool:
        scope = listener.ctx.scope_key
        return scope is None or listener.everyone or any(scope is key for key in chain)

    def _same_realm(self, listener: Listener, realm: object) -> bool:
        return self.realm_key is None or listener.ctx.realm_of(self.realm_key) == realm

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


def check_event(event: Any) -> None:
    """Refuse to listen to something that is no event class.

    Raises:
        EventModeError: It is none; a method, where `@on` was written without an event.
    """
    if not (isinstance(event, type) and issubclass(cast("type[Any]", event), Event)):
        raise EventModeError(
            f"{_name(cast('Any', event))} is no event class",
            hint="name the event first: @on(Event), ctx.on(Event, fn)",
        )


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


def _check_arguments(event: type[Event], fn: Callable[..., Any]) -> None:
    """Refuse a function that does not take the event, and `next` where the mode has one.

    Raises:
        EventModeError: It would fail at every dispatch.
    """
    bound = isinstance(fn, MethodType)
    code = getattr(fn.__func__ if isinstance(fn, MethodType) else fn, "__code__", None)
    if not isinstance(code, CodeType) or code.co_flags & inspect.CO_VARARGS:
        # what cannot be looked into is believed
        return
    given = 2 if event.event_mode in ("waterfall", "stream") else 1
    most = code.co_argcount - bound
    least = most - len(getattr(fn, "__defaults__", None) or ())
    keywords = code.co_kwonlyargcount - len(getattr(fn, "__kwdefaults__", None) or ())
    if keywords or not least <= given <= most:
        shape = "(event, next)" if given == 2 else "(event)"
        raise EventModeError(
            f"{_name(fn)} cannot be called as a listener of the {event.event_mode} event "
            f"{event.event_name!r}",
            hint=f"its arguments are {shape}",
        )


def listen(
    ctx: Place,
    event: type[Event],
    fn: Callable[..., Any],
    prepend: bool,
    audience: Audience,
    *,
    once: bool,
) -> Effect:
    """Register a listener as an effect of the owner of `ctx`."""
    check_event(event)
    channel = ctx.app.channel(event)
    check_listener(event, fn)
    _check_arguments(event, fn)
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
            # only decisions get here, since notifications pass a dead listener by: a waterfall
            # or stream goes on with its `next`, a serial event hears that there is no answer
            return rest[0]() if rest else _nothing()
        spent = True
        effect.dispose_nowait()
        return fn(event, *rest)

    return call


async def _nothing() -> None:
    """What a listener that has nothing to say returns to a mode that awaits."""


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", repr(fn))
