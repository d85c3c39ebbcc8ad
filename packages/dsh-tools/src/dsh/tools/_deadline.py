"""Time limits of calls: that of the tool itself, and those that wrappers set."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio

from dsh.llm import CancelSignal
from dsh.tools._failure import message_of
from dsh.tools.errors import ToolTimeoutError

if TYPE_CHECKING:
    from dsh.core import Context
    from dsh.tools._execution import ToolExecution
    from dsh.tools._results import ToolOutput
    from dsh.tools._tool import Tool

__all__ = ["Deadline", "run_in_time"]

_TIMED_OUT: Final = "timed out"
_GRACE_S: Final = 5
"""How long a body may go on once its signal has said that its time is up."""


class Deadline:
    """Fires a signal when time is up, or when an outer signal fires; `async with` ends it.

    It interrupts nobody: a tool that reacts to `execution.signal` stops, any other is only late.

        async with Deadline(self.ctx, execution.signal, 60_000) as deadline:
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


async def run_in_time(ctx: Context, tool: Tool, execution: ToolExecution) -> ToolOutput:
    """Run a tool for no longer than it declares.

    When its time is up the execution's signal fires. What the body still returns is its result;
    what it raises is told as the end of a call that ran out of time. A body that has not ended
    when the grace is over is cancelled, and its thread, if it has one, abandoned.

    Args:
        ctx: Owner of the timer.
        tool: The tool.
        execution: The call; its signal is another one while the tool runs.

    Raises:
        ToolTimeoutError: Time was up, and there is no result.
        Exception: What the tool raised in time.
    """
    limit_ms = tool.timeout_ms
    if limit_ms is None:
        return await tool.run(execution.arguments, execution)
    outer = execution.signal
    async with Deadline(ctx, outer, limit_ms) as deadline:
        execution.signal = deadline.signal
        try:
            with anyio.move_on_after(limit_ms / 1000 + _GRACE_S):
                return await tool.run(execution.arguments, execution)
        except Exception as error:
            if not deadline.expired:
                raise
            raise ToolTimeoutError(
                f"{tool.name} was stopped after {limit_ms:g} ms: {message_of(error)}"
            ) from error
        finally:
            # a wrapper's own signal stays, and that of a call which was given up is fixed
            if execution.signal is deadline.signal:
                with suppress(AttributeError):
                    execution.signal = outer
    raise ToolTimeoutError(
        f"{tool.name} took longer than {limit_ms:g} ms and did not stop when it was asked to; "
        "whether it did its work is unknown"
    )


def _nothing() -> None:
    """There is no callback to take back."""
