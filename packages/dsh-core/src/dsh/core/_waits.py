"""Waits inside the kernel: shareable, and checked for cycles before they begin."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias, cast

import anyio

from dsh.core.errors import LifecycleDeadlock

if TYPE_CHECKING:
    from dsh.core._effects import Effect
    from dsh.core._mount import Mount

Work: TypeAlias = "Mount | Effect"
"""What runs code that others may wait for: a mount's transition, or an effect."""

current_work: ContextVar[Work | None] = ContextVar("dsh_current_work", default=None)
"""The work that cannot end before the running code has; None outside the kernel's tasks."""


class WaitGraph:
    """Who waits for whom, with the time each wait began."""

    __slots__ = ("_edges",)

    def __init__(self) -> None:
        self._edges: dict[Work, list[tuple[Work, float]]] = {}

    @contextmanager
    def waiting(
        self, target: Work, *, for_end: bool = True, shielded: bool = False
    ) -> Generator[None]:
        """Record that the current work waits for `target`.

        Args:
            target: The work waited for.
            for_end: Whether the wait is for its disposal, which waits for all it owns.
            shielded: Whether the wait goes on when the waiter is cancelled. Waits of background
                tasks that do not are never in the way: who needs the task to end cancels it.

        Raises:
            LifecycleDeadlock: The wait would close a cycle.
        """
        waiter = current_work.get()
        # who needs a background task to end cancels it, and with it a wait that is not shielded
        if waiter is None or (waiter.background and not shielded):
            yield
            return
        if waiter is target or _holds_up(waiter, target, for_end):
            raise LifecycleDeadlock([waiter.name, target.name, waiter.name])
        path = self._path(target, waiter)
        if path:
            raise LifecycleDeadlock([waiter.name, *(work.name for work in path)])
        edge = (target, anyio.current_time())
        self._edges.setdefault(waiter, []).append(edge)
        try:
            yield
        finally:
            edges = self._edges[waiter]
            edges.remove(edge)
            if not edges:
                del self._edges[waiter]

    def _path(self, start: Work, goal: Work) -> list[Work]:
        """Return the chain of waits from `start` to `goal`, or nothing."""
        came_from: dict[Work, Work] = {}
        queue = [start]
        while queue:
            work = queue.pop()
            for target, _ in self._edges.get(work, ()):
                if target is start or target in came_from:
                    continue
                came_from[target] = work
                if target is goal:
                    return _trail(came_from, start, goal)
                queue.append(target)
        return []

    def pending(self) -> list[tuple[str, str, float]]:
        """Return `(waiter, target, seconds waited)` for each wait under way."""
        now = anyio.current_time()
        return [
            (waiter.name, target.name, now - since)
            for waiter, edges in self._edges.items()
            for target, since in edges
        ]


def _holds_up(waiter: Work, target: Work, for_end: bool) -> bool:
    """Whether `target` is a mount that cannot get there before `waiter`, inside it, has ended."""
    node: Mount | None = cast("Mount", getattr(waiter, "mount", waiter))
    while node is not None and node is not target and for_end:
        node = node.parent
    return node is target


def _trail(came_from: dict[Work, Work], start: Work, goal: Work) -> list[Work]:
    trail = [goal]
    while trail[-1] is not start:
        trail.append(came_from[trail[-1]])
    return trail[::-1]
