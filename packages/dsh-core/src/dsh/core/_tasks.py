"""Outcomes and host tasks: where task-affine resources live.

A context manager, a generator or a background function must be entered and left by one task.
Each gets a task of its own in the app's flat task group, so that any task may ask for its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import anyio

if TYPE_CHECKING:
    from dsh.core._mount import Mount

T = TypeVar("T")


class Outcome(Generic[T]):
    """A result that arrives once and may be awaited by many."""

    __slots__ = ("_error", "_event", "_value", "settled")

    def __init__(self) -> None:
        self.settled = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._event: anyio.Event | None = None

    def succeed(self, value: T) -> None:
        """Deliver the value; later deliveries are ignored."""
        if not self.settled:
            self._value = value
            self._settle()

    def fail(self, error: Exception) -> None:
        """Deliver an error; later deliveries are ignored."""
        if not self.settled:
            self._error = error
            self._settle()

    def _settle(self) -> None:
        self.settled = True
        if self._event is not None:
            self._event.set()

    @property
    def error(self) -> Exception | None:
        """The error that was delivered, if one was."""
        return self._error

    async def settle(self) -> None:
        """Wait until something was delivered, without raising it."""
        if not self.settled:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()

    async def wait(self) -> T:
        """Wait for the value, or raise the error."""
        await self.settle()
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


class Host:
    """A background function with its own cancel scope, shielded from everything but its owner."""

    __slots__ = ("_fn", "_scope", "_started", "done")

    def __init__(self, fn: Callable[[], Awaitable[object]]) -> None:
        self._fn = fn
        self._scope = anyio.CancelScope(shield=True)
        self._started = False
        self.done: Outcome[None] = Outcome()

    async def run(self) -> None:
        """Run the function to its end; what it raises goes to `done`."""
        try:
            with self._scope:
                await self._fn()
        except Exception as error:  # noqa: BLE001 - delivered to the owner through `done`
            self.done.fail(error)
        finally:
            self.done.succeed(None)

    def cancel(self) -> None:
        """Ask the function to end."""
        self._scope.cancel()

    async def stop(self) -> None:
        """Cancel and wait for the end."""
        self.cancel()
        await self.done.settle()


class Resident(Generic[T]):
    """An asynchronous context manager that is entered and left by a task of its own."""

    __slots__ = ("_manager", "_mount", "_stop", "ended", "entered")

    def __init__(self, mount: Mount, manager: AbstractAsyncContextManager[T]) -> None:
        self._mount = mount
        self._manager = manager
        self._stop = anyio.Event()
        self.entered: Outcome[T] = Outcome()
        self.ended: Outcome[None] = Outcome()

    async def run(self) -> None:
        """Enter, stay until `leave()`, exit. An end nobody asked for fails the mount."""
        try:
            with anyio.CancelScope(shield=True):
                async with self._manager as value:
                    self.entered.succeed(value)
                    await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - delivered to the owner
            asked = self._stop.is_set() or not self.entered.settled
            self.entered.fail(error)
            self.ended.fail(error)
            if not asked:
                self._mount.fail(error, "a resource of the plugin broke")
        finally:
            self.ended.succeed(None)

    async def leave(self) -> None:
        """Ask for the exit and wait for it; raises what the exit raised."""
        self._stop.set()
        await self.ended.wait()
