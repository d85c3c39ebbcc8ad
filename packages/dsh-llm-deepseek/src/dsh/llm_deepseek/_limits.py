"""The time limits of a request, and its cancellation, at the only place where it waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import anyio

from dsh.llm import CancelSignal

T = TypeVar("T")
Limit: TypeAlias = Literal["idle", "progress"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a request may wait for what, in seconds."""

    idle_s: float
    """See `DeepSeekConfig.idle_timeout_s`."""
    progress_s: float
    """See `DeepSeekConfig.progress_timeout_s`."""
    connect_s: float
    """See `DeepSeekConfig.connect_timeout_s`."""


class Watch:
    """Guards the reads of one request.

    A limit runs only while a read is waiting, so a consumer may take its time between two chunks.
    Any byte ends the idle limit; the progress limit adds up the waiting since the last payload, so
    comments alone cannot keep a request alive for ever.
    """

    __slots__ = (
        "_forget",
        "_limits",
        "_scope",
        "_waited_s",
        "aborted",
        "expired",
        "refusing",
    )

    def __init__(self, limits: Limits, signal: CancelSignal | None = None) -> None:
        """Start to listen to the signal; `close` ends that.

        Args:
            limits: Those of the request; `connect_s` is no concern of its reads.
            signal: Ends the wait at once when it aborts.
        """
        self.aborted = False
        """Whether the signal has aborted."""
        self.expired: Limit | None = None
        """The limit that has ended the request."""
        self.refusing = False
        """True makes every further read fail without touching the network."""
        self._limits = limits
        self._waited_s = 0.0
        self._scope: anyio.CancelScope | None = None
        self._forget = _nothing if signal is None else signal.on_abort(self._abort)

    def close(self) -> None:
        """Stop listening to the signal."""
        self._forget()

    def progressed(self) -> None:
        """Start the progress limit anew: a payload has arrived."""
        self._waited_s = 0.0

    async def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Await `work()`, such as connecting; an abort cancels it and the result is None."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            if self.aborted:
                scope.cancel()
            try:
                return await work()
            finally:
                self._scope = None
        return None

    async def read(self, receive: Callable[[], Awaitable[bytes]], limit_s: float = 0) -> bytes:
        """Await `receive()` under the limits.

        Args:
            receive: Waits for bytes.
            limit_s: A limit of its own that replaces both, 0 for none.

        Raises:
            TimeoutError: A limit has passed; `expired` says which, unless it was `limit_s`.
            anyio.ClosedResourceError: The signal has aborted, or `refusing` is set.
        """
        if self.aborted or self.refusing:
            raise anyio.ClosedResourceError
        left_s = self._limits.progress_s - self._waited_s
        wait_s = limit_s or min(self._limits.idle_s, left_s)
        started = anyio.current_time()
        outer = self._scope
        with anyio.CancelScope(deadline=started + wait_s) as scope:
            self._scope = scope
            try:
                return await receive()
            finally:
                self._scope = outer
                self._waited_s += anyio.current_time() - started
        # The time is asked first: a limit that passed counts more than an abort that came later.
        if anyio.current_time() < started + wait_s:
            raise anyio.ClosedResourceError
        if not limit_s:
            self.expired = "idle" if self._limits.idle_s <= left_s else "progress"
        raise TimeoutError

    def _abort(self) -> None:
        self.aborted = True
        if self._scope is not None:
            self._scope.cancel()


def _nothing() -> None:
    """Forget a signal that is not there."""
