"""Waits inside the kernel: shareable, and checked for cycles before they begin."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import anyio

from dsh.core.errors import LifecycleDeadlock

if TYPE_CHECKING:
    from dsh.core._mount import Mount

current_mount: ContextVar[Mount | None] = ContextVar("dsh_current_mount", default=None)
"""The mount whose transition the running task belongs to."""


class WaitGraph:
    """Who waits for whom, with the time each wait began."""

    __slots__ = ("_edges",)

    def __init__(self) -> None:
        self._edges: dict[int, tuple[Mount, Mount, float]] = {}

    @contextmanager
    def waiting(self, target: Mount, *, for_end: bool = True) -> Generator[None]:
        """Record that the current task waits for `target`.

        Args:
            target: The mount waited for.
            for_end: Whether the wait is for its disposal, which waits for all it owns.

        Raises:
            LifecycleDeadlock: The wait would close a cycle.
        """
        waiter = current_mount.get()
        if waiter is None:
            yield
            return
        if waiter is target or (for_end and target.owns(waiter)):
            raise LifecycleDeadlock([waiter.name, target.name, waiter.name])
        path = self._path(target, waiter, [target])
        if path is not None:
            raise LifecycleDeadlock([waiter.name, *(mount.name for mount in path)])
        key = id(object())
        while key in self._edges:
            key += 1
        self._edges[key] = (waiter, target, anyio.current_time())
        try:
            yield
        finally:
            del self._edges[key]

    def _path(self, start: Mount, goal: Mount, trail: list[Mount]) -> list[Mount] | None:
        for waiter, target, _ in self._edges.values():
            if waiter is not start or target in trail:
                continue
            if target is goal:
                return [*trail, goal]
            found = self._path(target, goal, [*trail, target])
            if found is not None:
                return found
        return None

    def pending(self) -> list[tuple[str, str, float]]:
        """Return `(waiter, target, seconds waited)` for each wait under way."""
        now = anyio.current_time()
        return [(w.name, t.name, now - since) for w, t, since in self._edges.values()]
