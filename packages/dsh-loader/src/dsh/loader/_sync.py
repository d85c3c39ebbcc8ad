"""Running async code from a script or a notebook cell."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_sync(fn: Callable[[*Ts], Awaitable[T]], *args: *Ts, backend: str = "asyncio") -> T:
    """Run `await fn(*args)` to its end and return the result.

    In a plain script that is `anyio.run`. Where an event loop already runs in this thread, as in
    a notebook, the function runs on a loop of its own in a new thread, and this thread waits for
    it; an interrupt cancels it. In the thread, context variables have their default values.

    Args:
        fn: A coroutine function. It must not use objects of the loop that already runs.
        args: Its arguments.
        backend: `asyncio` or `trio`.

    Raises:
        LookupError: There is no such backend.
        BaseException: Whatever `fn` raises.
    """
    if not _loop_runs_here():
        return anyio.run(fn, *args, backend=backend)
    return _Thread(lambda: fn(*args), backend).result()


def _loop_runs_here() -> bool:
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:
        return False
    return True


class _Thread(Generic[T]):
    """One function on an event loop in a thread of its own."""

    def __init__(self, fn: Callable[[], Awaitable[T]], backend: str) -> None:
        self._fn = fn
        self._backend = backend
        self._scope: anyio.CancelScope | None = None
        self._token: anyio.lowlevel.EventLoopToken | None = None
        self._cancelled = False
        self._values: list[T] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dsh.run_sync", daemon=True)

    def result(self) -> T:
        """Run the function and wait for it; an interrupt, whenever it comes, cancels it."""
        interrupted: BaseException | None = None
        while True:
            try:
                if self._thread.ident is None:
                    self._thread.start()
                # an interrupted join() takes the thread for finished, so an event is waited for
                self._done.wait()
                break
            except KeyboardInterrupt as error:
                if self._thread.ident is None:
                    raise
                interrupted = error
                self._cancel()
        self._thread.join()
        if interrupted is not None:
            raise interrupted
        if self._error is not None:
            raise self._error
        return self._values[0]

    def _run(self) -> None:
        try:
            anyio.run(self._main, backend=self._backend)
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
            self._error = error
        finally:
            self._done.set()

    async def _main(self) -> None:
        self._token = anyio.lowlevel.current_token()
        with anyio.CancelScope() as self._scope:
            if self._cancelled:  # interrupted before there was anything to cancel
                self._scope.cancel()
            self._values.append(await self._fn())

    def _cancel(self) -> None:
        self._cancelled = True
        scope, token = self._scope, self._token
        if scope is None or token is None:
            return
        # only an interrupted notebook cell comes here
        from anyio.from_thread import run_sync as run_in_loop

        with suppress(anyio.RunFinishedError):  # it may have just ended by itself
            run_in_loop(scope.cancel, token=token)
