"""A signal with a time limit, for wrappers that enforce one."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from dsh.llm import CancelSignal

if TYPE_CHECKING:
    from dsh.core import Context

__all__ = ["Deadline"]

_TIMED_OUT: Final = "timed out"


class Deadline:
    """Fires a signal when time is up, or when an outer signal fires; `async with` ends it.

    It interrupts nobody: a tool that reacts to `execution.signal` stops, any other is only late.

        async with Deadline(self.ctx, execution.signal, tool.timeout_ms) as deadline:
            execution.signal = deadline.signal
            result = await next()

    Args:
        ctx: Owner of the timer; it ends with the owner at the latest.
        outer: A signal to pass on; None when there is none.
        timeout_ms: Time limit in milliseconds.
        reason: Reason of the signal when time is up.

    Raises:
        ValueError: The limit is not positive.
    """

    def __init__(
        self,
        ctx: Context,
        outer: CancelSignal | None,
        timeout_ms: float,
        reason: str = _TIMED_OUT,
    ) -> None:
        if not timeout_ms > 0:
            raise ValueError(f"timeout_ms is {timeout_ms!r}, not a positive number")
        self.signal = CancelSignal()
        """The limited signal."""
        self._reason = reason
        self._expired = False
        self._timer = ctx.timeout(timeout_ms / 1000, self._expire)
        self._outer = outer
        self._forget = _nothing if outer is None else outer.on_abort(self._follow)

    @property
    def expired(self) -> bool:
        """Whether the limit, and not the outer signal, fired first."""
        return self._expired

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forget()
        await self._timer.dispose()

    def _follow(self) -> None:
        self.signal.abort(None if self._outer is None else self._outer.reason)

    def _expire(self) -> None:
        self._expired = self.signal.abort(self._reason)


def _nothing() -> None:
    """There is no callback to take back."""
