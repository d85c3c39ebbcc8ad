"""Helpers for tests that start real processes: look at them, and wait until they are dead."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from dsh.process._helper._process_table import MARK, alive, descendants, marked, parent_of
from dsh.process._output import DEFAULT_MAX_BYTES, OutputCollector
from dsh.process._run import CancelLike, Ending, finish
from dsh.process._supervisor import Supervisor

__all__ = [
    "MARK",
    "Finished",
    "descendants",
    "eventually",
    "is_alive",
    "marked",
    "parent_of",
    "run",
    "wait_dead",
    "zombies",
]


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished command with its output."""

    ending: Ending
    """How it ended."""
    stdout: OutputCollector
    """Standard output; may still grow while `ending.left` is not 0."""
    stderr: OutputCollector
    """Standard error; empty when it was merged into `stdout`."""


async def run(
    supervisor: Supervisor,
    argv: Sequence[str],
    *,
    merge: bool = False,
    timeout_ms: float | None = None,
    cancel: CancelLike | None = None,
    drain_ms: float = 200.0,
    max_output_bytes: int = DEFAULT_MAX_BYTES,
    **options: Any,
) -> Finished:
    """Run a command to its end and collect its output.

    Args:
        supervisor: Starts it.
        argv: As for `Supervisor.spawn`.
        merge: Send standard error where standard output goes.
        timeout_ms: As for `finish`.
        cancel: As for `finish`.
        drain_ms: As for `finish`.
        max_output_bytes: Bytes of each stream kept in memory.
        options: The other arguments of `Supervisor.spawn`.
    """
    out = supervisor.collector("stdout", max_bytes=max_output_bytes)
    err = supervisor.collector("stderr", max_bytes=max_output_bytes)
    child = await supervisor.spawn(argv, stdout=out, stderr="stdout" if merge else err, **options)
    ending = await finish(child, timeout_ms=timeout_ms, cancel=cancel, drain_ms=drain_ms)
    return Finished(ending, out, err)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return alive([pid]) == 1


async def wait_dead(pids: Iterable[int], *, within_s: float = 5.0) -> None:
    """Wait until none of `pids` runs any more.

    Args:
        pids: Processes, children of this one or not. Ones that are gone already are fine.
        within_s: Seconds to wait at most.

    Raises:
        TimeoutError: Some still run; the message names them.
    """
    wanted = list(pids)
    with anyio.move_on_after(within_s):
        for pid in wanted:
            await _dead(pid)
        return
    left = [pid for pid in wanted if is_alive(pid)]
    if left:
        raise TimeoutError(f"still running after {within_s} s: {left}")


async def _dead(pid: int) -> None:
    with contextlib.suppress(AttributeError, PermissionError):  # not Linux, or not allowed
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            await anyio.wait_readable(handle)
        finally:
            anyio.notify_closing(handle)
            os.close(handle)
        return
    await eventually(lambda: not is_alive(pid), within_s=math.inf)


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], *, within_s: float = 5.0
) -> None:
    """Wait for something that announces itself by no event, such as an entry of `/proc`.

    Args:
        condition: Looked at every few milliseconds; sync or async.
        within_s: Seconds to wait at most.

    Raises:
        TimeoutError: It did not become true.
    """
    with anyio.fail_after(within_s):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await anyio.sleep(0.005)


def zombies(parent: int) -> list[int]:
    """Ended children of `parent` that it has not reaped."""
    return [pid for pid in descendants(parent) if not is_alive(pid)]
