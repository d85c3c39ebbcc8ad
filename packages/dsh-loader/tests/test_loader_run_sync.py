"""Scripts and notebooks: async code from a plain function."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading

import anyio.lowlevel
import pytest

from dsh.loader import run_sync

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


async def work(a: int, b: int) -> tuple[int, str, str]:
    await anyio.lowlevel.checkpoint()
    return a + b, threading.current_thread().name, NAME.get()


async def fail() -> None:
    await anyio.lowlevel.checkpoint()
    raise ValueError("no")


def test_a_script_runs_in_its_own_thread() -> None:
    NAME.set("script")
    assert run_sync(work, 1, 2) == (3, threading.current_thread().name, "script")
    assert run_sync(work, 1, 2, backend="trio")[0] == 3


def test_errors_come_through() -> None:
    with pytest.raises(ValueError, match="no"):
        run_sync(fail)
    with pytest.raises(LookupError):
        run_sync(fail, backend="curio")


async def test_a_running_loop_is_no_obstacle() -> None:
    NAME.set("notebook")
    total, thread, name = run_sync(work, 3, 4)
    assert (total, name) == (7, "nobody")
    assert thread != threading.current_thread().name
    with pytest.raises(ValueError, match="no"):
        run_sync(fail)


INTERRUPTED = """
import asyncio, os, signal
import anyio
from dsh.loader import run_sync

async def slow():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()
    finally:
        print("ended")

async def cell():
    try:
        run_sync(slow)
    except KeyboardInterrupt:
        print("interrupted")

signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.new_event_loop().run_until_complete(cell())
"""


def test_an_interrupt_cancels_the_work_and_comes_through() -> None:
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout.split() == ["ended", "interrupted"], result.stderr
