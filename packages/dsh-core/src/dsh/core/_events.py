"""Events as typed classes: the base class is the dispatch mode.

    @dataclass(frozen=True, slots=True)
    class StatusChanged(Emit, name="agent/status", scope="agent"):
        '''The status of an agent changed.'''
        agent: Agent
        status: str

`scope` names the field (or dotted path) that carries the scope key; `realm` names the service,
by class or key, whose realm the listener must share with the emitter; `errors="raise"` lets a
listener of an `Emit` event veto what is announced.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from dsh.core._plugins import service_key
from dsh.core.errors import EventDeclarationError, EventModeError, NextCalledTwice

if TYPE_CHECKING:
    from dsh.core._audience import Listener

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out")

Mode: TypeAlias = Literal["emit", "parallel", "serial", "waterfall", "stream"]


class Event:
    """Base of all events; derive from one of the five mode classes."""

    __slots__ = ()
    event_name: ClassVar[str]
    """`family/action`."""
    event_mode: ClassVar[Mode]
    """How it is dispatched; the mode classes set it."""
    event_scope: ClassVar[str | None] = None
    """Path to the scope key, or None for an event without scope."""
    event_errors: ClassVar[Literal["contain", "raise"]] = "contain"
    """Whether a listener of an `Emit` event that raises is contained, or stops the emitter."""
    event_realm: ClassVar[str | None] = None
    """Key of the service whose realm listener and emitter must share, or None."""

    def __init_subclass__(
        cls,
        name: str | None = None,
        scope: str | None = None,
        errors: Literal["contain", "raise"] | None = None,
        realm: str | type[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        # a slotted dataclass is built twice; the second build repeats nothing of this
        if name is None:
            return
        cls.event_name = name
        cls.event_scope = scope
        cls.event_realm = service_key(realm) if isinstance(realm, type) else realm
        if errors is not None:
            cls.event_errors = errors


class Emit(Event):
    """Tell: sync listeners, in order; failures are contained unless the event says `raise`."""

    __slots__ = ()
    event_mode = "emit"


class Parallel(Event):
    """Do together: async listeners run concurrently, all awaited, failures raised as a group."""

    __slots__ = ()
    event_mode = "parallel"


class Serial(Event, Generic[R]):
    """Ask one by one: the first result that is not None wins."""

    __slots__ = ()
    event_mode = "serial"


class Waterfall(Event, Generic[R]):
    """Wrap: each listener runs around the ones after it and the default behaviour."""

    __slots__ = ()
    event_mode = "waterfall"


class StreamWaterfall(Event, Generic[T]):
    """Wrap a stream: as `Waterfall`, over async generators."""

    __slots__ = ()
    event_mode = "stream"


class _Rest(Generic[Out]):
    """What lies below one listener of a waterfall: the listeners after it, then the default."""

    __slots__ = ("_called", "_default", "_event", "_index", "_listeners")

    def __init__(
        self,
        listeners: tuple[Listener, ...],
        index: int,
        event: Event,
        default: Callable[[Any], Out],
    ) -> None:
        self._listeners = listeners
        self._index = index
        self._event = event
        self._default = default
        self._called = False

    def __call__(self, event: Event | None = None) -> Out:
        """Go on with everything below, once.

        Args:
            event: Passed downstream in place of the one received; must be of the same class.

        Returns:
            What the rest comes to: an awaitable, or a stream that has not begun.

        Raises:
            NextCalledTwice: It was called before; use `again()`.
        """
        if self._called:
            raise NextCalledTwice(self._event.event_name)
        return self.again(event)

    def again(self, event: Event | None = None) -> Out:
        """Go on with everything below from this position, any number of times.

        Args:
            event: Passed downstream in place of the one received; must be of the same class.

        Returns:
            What the rest comes to: an awaitable, or a stream that has not begun.
        """
        self._called = True
        current = replacement(self._event, event)
        if self._index == len(self._listeners):
            return self._default(current)
        result: Out = self._listeners[self._index].call(current, self._below(current))
        return result

    def _below(self, event: Event) -> _Rest[Out]:
        return type(self)(self._listeners, self._index + 1, event, self._default)


class Next(_Rest[Awaitable[R]]):
    """The rest of a waterfall, bound to one listener's position."""

    __slots__ = ()

    def again(self, event: Event | None = None) -> Awaitable[R]:
        result = super().again(event)
        if hasattr(result, "__await__"):
            return result
        at = self._index
        fn = self._listeners[at].call if at < len(self._listeners) else self._default
        return awaitable(result, fn, self._event)


class NextStream(_Rest[AsyncGenerator[T, None]]):
    """The rest of a stream waterfall; what it opens is closed with the outermost stream."""

    __slots__ = ("_opened",)

    def __init__(
        self,
        listeners: tuple[Listener, ...],
        index: int,
        event: Event,
        default: Callable[[Any], AsyncGenerator[T, None]],
        opened: list[AsyncGenerator[Any, None]],
    ) -> None:
        super().__init__(listeners, index, event, default)
        self._opened = opened

    def again(self, event: Event | None = None) -> AsyncGenerator[T, None]:
        generator = super().again(event)
        self._opened.append(generator)
        return generator

    def _below(self, event: Event) -> NextStream[T]:
        return NextStream(self._listeners, self._index + 1, event, self._default, self._opened)


def awaitable(result: Any, fn: Callable[..., Any], event: Event) -> Awaitable[Any]:
    """Return what a listener gave to a mode that awaits it.

    Raises:
        EventModeError: It is nothing that can be awaited.
    """
    if inspect.isawaitable(result):
        return result
    name = getattr(fn, "__qualname__", None) or repr(fn)
    raise EventModeError(
        f"{name} gave {event.event_name!r} a {type(result).__name__}, which cannot be awaited",
        hint="declare it with `async def`",
    )


def replacement(original: Event, given: Event | None) -> Event:
    """Return the event to pass on."""
    if given is None:
        return original
    if type(given) is not type(original):
        raise EventModeError(
            f"next() of {original.event_name!r} was given a {type(given).__name__}, "
            f"not a {type(original).__name__}"
        )
    return given


_by_name: dict[str, weakref.ref[type[Event]]] = {}


def check_declaration(cls: type[Event]) -> None:
    """Check an event class when it is first used.

    Raises:
        EventDeclarationError: It has no name or mode, is not frozen, its scope path names no
            field, or another live class has its name.
    """
    where = f"event class {cls.__module__}.{cls.__qualname__}"
    if "event_name" not in cls.__dict__:
        raise EventDeclarationError(f"{where} has no name", hint='say name="family/action"')
    if not hasattr(cls, "event_mode"):
        raise EventDeclarationError(f"{where} has no mode", hint="derive from Emit, Serial, ...")
    params = getattr(cls, "__dataclass_params__", None)
    if params is not None and not params.frozen:
        raise EventDeclarationError(f"{where} is not frozen", hint="use @dataclass(frozen=True)")
    _check_scope(cls, where)
    known = _by_name.get(cls.event_name)
    other = known() if known is not None else None
    if other is not None and other is not cls and _identity(other) != _identity(cls):
        raise EventDeclarationError(
            f"{where} has the name {cls.event_name!r} of {other.__module__}.{other.__qualname__}"
        )
    _by_name[cls.event_name] = weakref.ref(cls)


def _identity(cls: type[Event]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _check_scope(cls: type[Event], where: str) -> None:
    if cls.event_scope is None:
        return
    current: Any = cls
    for part in cls.event_scope.split("."):
        hints = _hints(current)
        if part not in hints and not hasattr(current, part):
            raise EventDeclarationError(
                f'{where} says scope="{cls.event_scope}", but {current.__name__} has no {part!r}'
            )
        current = _unless_none(hints.get(part))
        if not isinstance(current, type):
            return


def _unless_none(hint: Any) -> Any:
    """Return `X` for an annotation `X | None`, others as they are."""
    options = [item for item in get_args(hint) if item is not NoneType]
    is_union = get_origin(hint) in (Union, UnionType)
    return options[0] if is_union and len(options) == 1 else hint


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except (NameError, TypeError):
        # annotations that exist for type checkers only cannot be resolved here; names suffice
        return {name: None for base in cls.__mro__ for name in _annotated(base)}


def _annotated(cls: Any) -> tuple[str, ...]:
    return tuple(cast("dict[str, Any]", getattr(cls, "__annotations__", {})))
