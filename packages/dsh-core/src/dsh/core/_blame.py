"""Whose listener of a waterfall broke down, for a dispatcher that asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dsh.core._events import Event, Next, replacement

if TYPE_CHECKING:
    from dsh.core._audience import Listener
    from dsh.core._place import Place

R = TypeVar("R")


class Blame:
    """Tells each failure of a listener once: at the one that raised it, not where it passed."""

    __slots__ = ("_known", "_tell")

    def __init__(self, tell: Callable[[Place, Exception], None]) -> None:
        self._tell = tell
        self._known: list[BaseException] = []

    def caught(self, listener: Listener | None, error: Exception) -> None:
        """Take note of what came out of a listener, or out of the default behaviour (None)."""
        new = [leaf for leaf in _leaves(error) if not any(leaf is one for one in self._known)]
        self._known.extend(new)
        if new and listener is not None:
            self._tell(listener.ctx, error)


class BlamingNext(Next[R]):
    """The rest of a waterfall whose dispatcher wants to know who breaks down."""

    __slots__ = ("_blame",)

    def __init__(
        self,
        listeners: tuple[Listener, ...],
        index: int,
        event: Event,
        default: Callable[[Any], Awaitable[R]],
        blame: Blame,
    ) -> None:
        super().__init__(listeners, index, event, default)
        self._blame = blame

    def again(self, event: Event | None = None) -> Awaitable[R]:
        self._called = True
        # out here, because the fault would be the caller's and not that of the listener below
        current = replacement(self._event, event)
        below = self._listeners[self._index] if self._index < len(self._listeners) else None
        try:
            result = super().again(current)
        except Exception as error:
            self._blame.caught(below, error)
            raise
        return self._watch(below, result)

    async def _watch(self, below: Listener | None, result: Awaitable[R]) -> R:
        try:
            return await result
        except Exception as error:
            self._blame.caught(below, error)
            raise

    def _below(self, event: Event) -> BlamingNext[R]:
        return BlamingNext(self._listeners, self._index + 1, event, self._default, self._blame)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(one)
    else:
        yield error
