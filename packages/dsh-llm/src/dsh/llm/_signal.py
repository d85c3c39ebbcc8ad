"""The cancellation signal that travels with a request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

_log = logging.getLogger("dsh.llm")


class CancelSignal:
    """Says once, to everybody who holds it, that the work it belongs to is no longer wanted.

    A signal is not a cancel scope: aborting it interrupts nobody, so whoever works for the request
    can still finish its records. Code that waits does so inside `cancel_scope`, or is told by a
    callback of `on_abort`. All methods belong to the event loop's thread.
    """

    __slots__ = ("_aborted", "_callbacks", "_reason")

    def __init__(self) -> None:
        self._aborted = False
        self._reason: str | None = None
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def aborted(self) -> bool:
        """Whether `abort` has been called."""
        return self._aborted

    @property
    def reason(self) -> str | None:
        """Why, as given to the first `abort`; None before it, or when it gave no reason."""
        return self._reason

    def abort(self, reason: str | None = None) -> bool:
        """Abort, and run every registered callback in the order of registration.

        A callback that raises is logged and does not keep the others from running.

        Returns:
            True for the call that aborted, False for every later one, which changes nothing.
        """
        if self._aborted:
            return False
        self._aborted = True
        self._reason = reason
        while self._callbacks:
            callback = self._callbacks.pop(next(iter(self._callbacks)))
            try:
                callback()
            except Exception:  # noqa: BLE001 - one broken callback must not keep the others waiting
                _log.exception("a callback of an aborted signal failed")
        return True

    def on_abort(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Run `callback()` once when the signal aborts, or at once if it already has.

        Returns:
            A function that takes the callback back; calling it late or twice does nothing.
        """
        if self._aborted:
            callback()
            return _nothing
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    @contextmanager
    def cancel_scope(self, grace_s: float = 0) -> Generator[anyio.CancelScope]:
        """Run a block that is left once the signal has aborted.

        The block is cancelled, nobody else is, and the code behind it goes on: look at `aborted`
        there. Like every cancel scope it may hold no `yield` of an async generator.

        Args:
            grace_s: Seconds the block may still take once the signal has aborted.

        Yields:
            The scope of the block.
        """
        with anyio.CancelScope() as scope:

            def expire() -> None:
                if grace_s > 0:
                    scope.deadline = anyio.current_time() + grace_s
                else:
                    # a deadline that is due is noticed one round of the event loop later
                    scope.cancel()

            remove = self.on_abort(expire)
            try:
                yield scope
            finally:
                remove()

    async def wait(self) -> str | None:
        """Wait until the signal aborts and return the reason."""
        event = anyio.Event()
        remove = self.on_abort(event.set)
        try:
            await event.wait()
        finally:
            remove()
        return self._reason

    def __repr__(self) -> str:
        state = f"aborted, reason={self._reason!r}" if self._aborted else "not aborted"
        return f"<CancelSignal {state}>"


def _nothing() -> None:
    """Take back a callback that has already run."""
