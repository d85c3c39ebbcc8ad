"""Who is told what happens in an app, for as long as the owner of the observer is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._effects import Effect

F = TypeVar("F", bound=Callable[..., Any])


class Observers(Generic[F]):
    """The observers of one kind of happening."""

    __slots__ = ("fns", "label")

    def __init__(self, label: str) -> None:
        self.label = label
        """The method of `App` that adds one, for diagnosis."""
        self.fns: tuple[F, ...] = ()
        """A new tuple at each change: who goes through it hears of none."""

    def add(self, ctx: Context, fn: F) -> Effect:
        """Have `fn` told until the owner of `ctx` is unloaded."""
        effect = ctx.defer(lambda: self._remove(fn), self.label)
        self.fns = (*self.fns, fn)
        return effect

    def _remove(self, fn: F) -> None:
        fns = list(self.fns)
        fns.remove(fn)
        self.fns = tuple(fns)
