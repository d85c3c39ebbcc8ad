"""Seeing a command through: its exit, its deadline, the rest of its output."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import anyio

from dsh.process._child import KILL_MARGIN_S, Child

__all__ = ["CANCELLED", "TIMED_OUT", "CancelLike", "Ending", "finish"]

TIMED_OUT: Final = "timeout"
CANCELLED: Final = "cancel"


class CancelLike(Protocol):
    """A cancel signal, e.g. `dsh.llm.CancelSignal`."""

    def on_abort(self, fn: Callable[[], object], /) -> Callable[[], object]:
        """Call `fn` when it fires, at once if it has; returns what removes `fn`."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended. The facts are independent of each other."""

    exit_code: int | None
    """Exit code; None when it died of a signal."""
    signal: str | None
    """Name of the signal it died of."""
    timed_out: bool
    """Whether it ended because its time was up."""
    cancelled: bool
    """Whether it ended because the cancel signal fired; never together with `timed_out`."""
    left: int
    """Processes it started that still run."""


async def finish(
    child: Child,
    *,
    timeout_ms: float | None = None,
    cancel: CancelLike | None = None,
    drain_ms: float = 200.0,
) -> Ending:
    """Wait for a child that was started with collectors, within its limits.

    When it is killed here, by the timeout or the signal, the return waits until nothing of it is
    left. Being cancelled from outside kills it too.

    Args:
        child: What to wait for.
        timeout_ms: Milliseconds until it is killed; None for no limit.
        cancel: Signal that kills it.
        drain_ms: Milliseconds to wait for the end of its output once it has exited.

    Raises:
        MonitorLostError: How it ended is unknown.
    """
    remove = None if cancel is None else cancel.on_abort(lambda: child.kill(CANCELLED))
    try:
        limit = math.inf if timeout_ms is None else timeout_ms / 1000
        with anyio.move_on_after(limit) as deadline:
            await child.wait()
        if deadline.cancelled_caught:
            child.kill(TIMED_OUT)
        if child.killed:
            with anyio.move_on_after(child.grace_ms / 1000 + KILL_MARGIN_S):
                await child.wait_gone()
                await child.wait()
        with anyio.move_on_after(drain_ms / 1000):
            await child.wait_drained()
        for pump in child.pumps:
            pump.sweep()
        with anyio.move_on_after(KILL_MARGIN_S):
            await child.count()
    except BaseException:
        await child.kill_and_wait("abandoned")
        raise
    finally:
        if remove is not None:
            remove()
    status = child.status
    return Ending(
        exit_code=None if status is None else status.code,
        signal=None if status is None else status.signal,
        timed_out=child.ended_by == TIMED_OUT,
        cancelled=child.ended_by == CANCELLED,
        left=child.left,
    )
