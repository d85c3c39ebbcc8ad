"""What a context does with events: hear them, and dispatch them in the five modes."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from anyio.streams.memory import MemoryObjectReceiveStream

from dsh.core import _dispatch
from dsh.core._audience import Audience, listen
from dsh.core._effects import Effect
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
from dsh.core._place import Place
from dsh.core._subscribe import subscribe

if TYPE_CHECKING:
    from dsh.core._context import Context

T = TypeVar("T")
R = TypeVar("R")
EmitT = TypeVar("EmitT", bound=Emit)
ParallelT = TypeVar("ParallelT", bound=Parallel)


class EventMethods(Place):
    """The part of `Context` that is about events."""

    __slots__ = ()

    @overload
    def on(
        self,
        event: type[EmitT],
        fn: Callable[[EmitT], None],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[ParallelT],
        fn: Callable[[ParallelT], Awaitable[None]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[Serial[R]],
        fn: Callable[[Any], Awaitable[R | None]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[Waterfall[R]],
        fn: Callable[[Any, Next[R]], Awaitable[R]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: type[StreamWaterfall[T]],
        fn: Callable[[Any, NextStream[T]], AsyncGenerator[T, None]],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect: ...
    def on(
        self,
        event: type[Event],
        fn: Callable[..., Any],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect:
        """Listen to an event for as long as the owner is loaded.

        Args:
            event: The event class; its base is the mode.
            fn: The listener, in the shape that mode asks for.
            prepend: Be first, which in a waterfall is outermost.
            audience: `all` also hears dispatches about other scopes.

        Returns:
            The registration; disposing it ends the listening.

        Raises:
            EventModeError: The function does not suit the mode.
            InactiveContextError: The owner is unloading, failed or disposed.
        """
        return listen(self, event, fn, prepend, audience, once=False)

    def once(
        self,
        event: type[Event],
        fn: Callable[..., Any],
        *,
        prepend: bool = False,
        audience: Audience = "scoped",
    ) -> Effect:
        """Listen to the next dispatch only; removed before the listener runs.

        Args:
            event: The event class; its base is the mode.
            fn: The listener, in the shape that mode asks for.
            prepend: Be first, which in a waterfall is outermost.
            audience: As for `on`.

        Returns:
            The registration; disposing it before the dispatch ends the listening.

        Raises:
            EventModeError: The function does not suit the mode.
            InactiveContextError: The owner is unloading, failed or disposed.
        """
        return listen(self, event, fn, prepend, audience, once=True)

    def subscribe(
        self, event: type[EmitT], buffer: float = math.inf, *, audience: Audience = "scoped"
    ) -> MemoryObjectReceiveStream[EmitT]:
        """Return a stream of the event, for observers that must await.

        It ends with the owner. Closing it unsubscribes; like every stream of anyio it wants to be
        closed, `with ctx.subscribe(...) as events`.

        Args:
            event: An `Emit` event class.
            buffer: How many events may wait; further ones are dropped, and the first of a run of
                drops is reported.
            audience: As for `on`.
        """
        return subscribe(self, event, buffer, audience)

    def emit(self, event: Emit) -> None:
        """Tell every listener, in order.

        Args:
            event: The event; its class says whether a listener that raises reaches the caller.
        """
        _dispatch.emit(self, event)

    async def parallel(self, event: Parallel) -> None:
        """Run every listener concurrently and wait for all.

        Args:
            event: The event.

        Raises:
            ExceptionGroup: Every failure, always as a group.
        """
        await _dispatch.parallel(self, event)

    async def serial(self, event: Serial[R]) -> R | None:
        """Ask listeners one by one; the first result that is not None wins.

        Args:
            event: The event.

        Returns:
            That result, or None when no listener gave one.
        """
        return await _dispatch.serial(self, event)

    async def waterfall(
        self,
        event: Waterfall[R],
        default: Callable[[Any], Awaitable[R]],
        *,
        on_failure: Callable[[Context, Exception], None] | None = None,
    ) -> R:
        """Run listeners around `default`, the first registered outermost.

        Args:
            event: The event.
            default: The innermost behaviour, given the event that reached it.
            on_failure: Told the context of a listener that raised and what it raised, once, also
                where a listener around it goes on. What is raised passes on unchanged.

        Returns:
            What the outermost listener returned, or the default without any.
        """
        return await _dispatch.waterfall(self, event, default, on_failure)

    def stream(
        self, event: StreamWaterfall[T], default: Callable[[Any], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        """Run listeners around a stream; closing the result closes every inner stream.

        Args:
            event: The event.
            default: The innermost stream, given the event that reached it.

        Returns:
            The outermost stream, not begun; consume it inside `aclosing`.
        """
        return _dispatch.stream(self, event, default)
