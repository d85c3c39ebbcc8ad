"""The `@on` decorator: listeners declared on a plugin, bound at start and unbound at stop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from dsh.core._audience import Audience, check_event, check_listener, listen
from dsh.core._events import (
    Emit,
    Event,
    Next,
    NextStream,
    Parallel,
    Serial,
    StreamWaterfall,
    Waterfall,
)

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._plugins import Plugin

E_co = TypeVar("E_co", bound=Event, covariant=True)
E = TypeVar("E", bound=Event)
EmitT = TypeVar("EmitT", bound=Emit)
ParallelT = TypeVar("ParallelT", bound=Parallel)
R = TypeVar("R")
T = TypeVar("T")
P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__dsh_on__"


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One declared listener."""

    attribute: str
    event: type[Event]
    prepend: bool
    audience: Audience

    def bind(self, ctx: Context, plugin: Plugin) -> None:
        """Register the listener of this plugin instance."""
        fn = getattr(plugin, self.attribute)
        listen(ctx, self.event, fn, self.prepend, self.audience, once=False)


class On(Generic[E_co]):
    """The decorator that `on` returns; it checks the method against the event's mode."""

    def __init__(self, event: type[Event], prepend: bool, audience: Audience) -> None:
        self._event = event
        self._prepend = prepend
        self._audience: Audience = audience

    @overload
    def __call__(self: On[EmitT], fn: Callable[[P, EmitT], None]) -> Callable[[P, EmitT], None]: ...
    @overload
    def __call__(
        self: On[ParallelT], fn: Callable[[P, ParallelT], Awaitable[None]]
    ) -> Callable[[P, ParallelT], Awaitable[None]]: ...
    @overload
    def __call__(
        self: On[Serial[R]], fn: Callable[[P, Any], Awaitable[R | None]]
    ) -> Callable[[P, Any], Awaitable[R | None]]: ...
    @overload
    def __call__(
        self: On[Waterfall[R]], fn: Callable[[P, Any, Next[R]], Awaitable[R]]
    ) -> Callable[[P, Any, Next[R]], Awaitable[R]]: ...
    @overload
    def __call__(
        self: On[StreamWaterfall[T]],
        fn: Callable[[P, Any, NextStream[T]], AsyncGenerator[T, None]],
    ) -> Callable[[P, Any, NextStream[T]], AsyncGenerator[T, None]]: ...
    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Mark `fn` as a listener."""
        check_listener(self._event, fn)
        marks: list[tuple[type[Event], bool, Audience]]
        marks = getattr(fn, _MARK, [])
        marks.append((self._event, self._prepend, self._audience))
        setattr(fn, _MARK, marks)
        return fn


def on(event: type[E], *, prepend: bool = False, audience: Audience = "scoped") -> On[E]:
    """Declare a method of a plugin as listener of `event`; see `Context.on`.

    Args:
        event: The event class; its base is the mode.
        prepend: Be first, which in a waterfall is outermost.
        audience: `all` also hears dispatches about other scopes.

    Returns:
        The decorator. It leaves the method as it is, and raises `EventModeError` for one that does
        not suit the mode.

    Raises:
        EventModeError: It was given no event class, as by `@on` without an event.
    """
    check_event(event)
    return On(event, prepend, audience)


def listeners_of(cls: type[Plugin]) -> tuple[ListenerSpec, ...]:
    """Return the declared listeners of a plugin class, in definition order, bases first."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for attribute in vars(base):
            names.setdefault(attribute, None)
    return tuple(
        ListenerSpec(attribute, *mark)
        for attribute in names
        for mark in getattr(getattr(cls, attribute, None), _MARK, ())
    )
