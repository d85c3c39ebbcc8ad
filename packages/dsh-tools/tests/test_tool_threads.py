"""The worker threads of synchronous tools."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextvars import ContextVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from dsh.tools import tool
from dsh.tools.testing import run_tool, text_of

NAME: ContextVar[str] = ContextVar("NAME", default="nobody")

STUCK = """
import sys
import threading
import anyio
from dsh.tools import tool
from dsh.tools.testing import run_tool

started = anyio.Event()
token = None

@tool
def stuck() -> str:
    anyio.from_thread.run_sync(started.set, token=token)
    threading.Event().wait()
    return "never"

async def main():
    global token
    token = anyio.lowlevel.current_token()
    async with anyio.create_task_group() as group:
        group.start_soon(run_tool, stuck)
        await started.wait()
        group.cancel_scope.cancel()
    print("cancelled", flush=True)

import anyio.from_thread, anyio.lowlevel
anyio.run(main, backend=sys.argv[1])
print("loop ended", flush=True)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_body_that_never_returns_holds_up_neither_the_loop_nor_the_exit(backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK, backend], capture_output=True, text=True, timeout=30
    )
    assert done.stdout.splitlines() == ["cancelled", "loop ended"]
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_body_sees_the_context_variables_of_its_call_and_changes_none() -> None:
    @tool
    def who() -> str:
        seen = NAME.get()
        NAME.set("the tool")
        return seen

    NAME.set("the caller")
    assert text_of(await run_tool(who)) == "the caller"
    assert NAME.get() == "the caller"


async def test_a_body_may_run_a_loop_of_its_own_or_call_back_into_this_one() -> None:
    token = anyio.lowlevel.current_token()
    here = threading.get_ident()

    async def inner() -> str:
        await anyio.lowlevel.checkpoint()
        return "inner"

    @tool
    def own() -> str:
        return anyio.run(inner)

    @tool
    def back() -> bool:
        return anyio.from_thread.run_sync(threading.get_ident, token=token) == here

    assert text_of(await run_tool(own)) == "inner"
    assert text_of(await run_tool(back)) == "true"


async def test_calls_are_bounded_and_abandoned_ones_do_not_count() -> None:
    limiter = anyio.to_thread.current_default_thread_limiter()
    release = threading.Event()
    token = anyio.lowlevel.current_token()
    started = anyio.Event()

    @tool
    def stuck() -> str:
        anyio.from_thread.run_sync(started.set, token=token)
        release.wait(20)
        return "late"

    @tool
    def quick() -> str:
        return "quick"

    before = limiter.total_tokens
    limiter.total_tokens = 1
    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(run_tool, stuck)
                await started.wait()
                assert limiter.available_tokens == 0
                group.cancel_scope.cancel()
            assert text_of(await run_tool(quick)) == "quick"
    finally:
        limiter.total_tokens = before
        release.set()
