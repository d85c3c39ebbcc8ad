"""Outcomes and host tasks: where task-affine resources live.

A context manager, a generator or a background function must be entered and left by one task.
Each gets a task of its own in the app's flat task group, so that any task may ask for its end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import anyio

from dsh.core.errors import (
    InvalidPluginError,
    ProcessExitError,
    ResourceEndedError,
    StrayCancellationError,
)

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


def failure_of(error: Exception | SystemExit) -> Exception:
    """Return what to report: code that ends the process would take the whole app along."""
    if isinstance(error, SystemExit):
        failure = ProcessExitError(f"the code tried to end the process (status {error.code!r})")
        failure.__cause__ = error
        return failure
    return error


def stray_cancellation(error: BaseException) -> StrayCancellationError:
    """Return what to report of a cancellation that the scope around the code did not ask for.

    On asyncio, whoever awaits something that was cancelled ends cancelled too; passed on, that
    would make the task group cancel all of its tasks, which is the whole app.

    Raises:
        BaseException: `error` itself, where it is no cancellation.
    """
    # the first, because a coroutine may be closed after the end of its event loop
    if isinstance(error, GeneratorExit) or not isinstance(error, anyio.get_cancelled_exc_class()):
        raise error
    failure = StrayCancellationError(
        "the code was cancelled, and not by its owner",
        hint="catch the cancellation of what it awaits",
    )
    failure.__cause__ = error
    return failure


class Host:
    """A background function with its own cancel scope, shielded from everything but its owner."""

    __slots__ = ("_fn", "_scope", "done")

    def __init__(self, fn: Callable[[], Awaitable[object]]) -> None:
        self._fn = fn
        self._scope = anyio.CancelScope(shield=True)
        self.done: Outcome[None] = Outcome()

    async def run(self) -> None:
        """Run the function to its end; what it raises goes to `done`."""
        try:
            with self._scope:
                await self._fn()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - delivered through `done`
            self.done.fail(failure_of(error))
        except BaseException as error:  # noqa: BLE001 - all but cancellations are raised again
            self.done.fail(stray_cancellation(error))
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

    __slots__ = ("_manager", "_mount", "_scope", "_stop", "ended", "entered")

    def __init__(self, mount: Mount, manager: AbstractAsyncContextManager[T]) -> None:
        self._mount = mount
        self._manager = manager
        self._scope = anyio.CancelScope(shield=True)
        self._stop = anyio.Event()
        self.entered: Outcome[T] = Outcome()
        self.ended: Outcome[None] = Outcome()

    async def run(self) -> None:
        """Enter, stay until `leave()`, exit. An end nobody asked for fails the mount."""
        try:
            with self._scope:
                if self._scope.cancel_called:
                    # abandoned before it began
                    return
                async with self._manager as value:
                    self.entered.succeed(value)
                    # what was entered all the same is left as always, not by an exception
                    if not self._stop.is_set():
                        await self._stop.wait()
            if not self._stop.is_set():
                self._break(ResourceEndedError("it ended before it was asked to"))
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - delivered to the owner
            self._deliver(failure_of(raised))
        except BaseException as raised:  # noqa: BLE001 - all but cancellations are raised again
            self._deliver(stray_cancellation(raised))
        finally:
            self.ended.succeed(None)

    def _deliver(self, error: Exception) -> None:
        if not self.entered.settled:
            self.entered.fail(error)
        elif self._stop.is_set():
            self.ended.fail(error)
        else:
            self._break(error)

    def _break(self, error: Exception) -> None:
        self._mount._fail(error, "a resource of the plugin broke")

    async def leave(self) -> None:
        """Ask for the exit and wait for it; raises what the exit raised."""
        self._stop.set()
        try:
            await self.ended.wait()
        finally:
            # where the wait was given up, the exit must not linger
            self._scope.cancel()

    def abandon(self) -> None:
        """Stop entering, or leave at once: nobody waits for the value any more."""
        self._stop.set()
        if not self.entered.settled:
            self._scope.cancel()


@asynccontextmanager
async def generator_body(
    steps: AsyncGenerator[object, None], name: str
) -> AsyncGenerator[None, None]:
    """Run a plugin's generator: up to its one `yield` to enter, the rest to leave.

    Raises:
        InvalidPluginError: It ends without a `yield`, or has a second one.
    """
    async with aclosing(steps):
        try:
            await anext(steps)
        except StopAsyncIteration:
            raise InvalidPluginError(f"the generator of {name!r} ended without a yield") from None
        try:
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - the generator decides what to do
                # what a scope inside the generator has cancelled is for that scope to catch
                await steps.athrow(error)
            else:
                await anext(steps)
        except StopAsyncIteration:
            return
        raise InvalidPluginError(
            f"the generator of {name!r} has a second yield",
            hint="what follows the first is teardown",
        )
