"""Time limits of calls."""

from __future__ import annotations

import threading

import anyio
import pytest
from trio.testing import MockClock

from dsh.core import JsonObject, Next
from dsh.llm import CancelSignal
from dsh.session import ErrorInfo
from dsh.tools import Deadline, PreToolDecision, Tool, ToolExecution, ToolExecutionResult
from dsh.tools.events import ToolExecute, ToolPreExecute
from dsh.tools.testing import call_tool, text_of, tools_app

virtual_time = pytest.mark.parametrize(
    "anyio_backend",
    [pytest.param(("trio", {"clock": MockClock(autojump_threshold=0)}), id="virtual")],
)


async def wait_for_signal(arguments: JsonObject, execution: ToolExecution) -> str:
    assert execution.signal is not None
    return f"stopped: {await execution.signal.wait()}"


# --- what a tool declares ---------------------------------------------------------------------


@virtual_time
async def test_time_is_up_when_the_tool_says() -> None:
    async with tools_app() as (app, tools):
        seen: list[ToolExecutionResult] = []

        async def gives_up(arguments: JsonObject, execution: ToolExecution) -> str:
            await wait_for_signal(arguments, execution)
            raise ValueError("half the rows were read")

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            seen.append(await next())
            assert event.execution.signal is outer
            return seen[-1]

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("tidy", "d", {}, wait_for_signal, timeout_ms=5_000))
        tools.register(app.ctx, Tool("slow", "d", {}, gives_up, timeout_ms=2_500))
        outer = CancelSignal()
        before = anyio.current_time()
        # what a tool makes of its signal is its result, also when it comes late
        result = await call_tool(tools, "tidy", signal=outer)
        assert anyio.current_time() - before == pytest.approx(5)
        assert (text_of(result), result.is_error) == ("stopped: timed out", False)
        result = await call_tool(tools, "slow", signal=outer)
        assert anyio.current_time() - before == pytest.approx(7.5)
        assert text_of(result) == "Error: slow was stopped after 2500 ms: half the rows were read"
        assert result.error == ErrorInfo("ToolTimeoutError", "TOOL_TIMEOUT")
        assert text_of(seen[-1]) == text_of(result)
        assert not outer.aborted


@virtual_time
@pytest.mark.parametrize("in_a_thread", [False, True])
async def test_a_tool_that_does_not_stop_is_given_up(in_a_thread: bool) -> None:
    async with tools_app() as (app, tools):
        ended: list[str] = []
        released = threading.Event()

        async def sleeping(arguments: JsonObject, execution: ToolExecution) -> str:
            try:
                await anyio.sleep(3600)
            finally:
                ended.append("cancelled")
            return "late"

        def blocking(arguments: JsonObject, execution: ToolExecution) -> str:
            released.wait()
            return "late"

        body = blocking if in_a_thread else sleeping
        tools.register(app.ctx, Tool("deaf", "d", {}, body, timeout_ms=1_000))
        before = anyio.current_time()
        try:
            result = await call_tool(tools, "deaf")
        finally:
            released.set()
        assert anyio.current_time() - before == pytest.approx(6)
        assert text_of(result) == (
            "Error: deaf took longer than 1000 ms and did not stop when it was asked to; "
            "whether it did its work is unknown"
        )
        assert result.error == ErrorInfo("ToolTimeoutError", "TOOL_TIMEOUT")
        assert ended == ([] if in_a_thread else ["cancelled"])


@virtual_time
async def test_a_call_that_is_in_time_keeps_its_result() -> None:
    async with tools_app() as (app, tools):

        async def quick(arguments: JsonObject, execution: ToolExecution) -> str:
            await anyio.sleep(1)
            if arguments:
                raise ValueError("no such row")
            return "done"

        tools.register(app.ctx, Tool("quick", "d", {}, quick, timeout_ms=5_000))
        tools.register(app.ctx, Tool("unlimited", "d", {}, quick))
        assert text_of(await call_tool(tools, "quick")) == "done"
        assert text_of(await call_tool(tools, "quick", {"fail": True})) == "Error: no such row"
        before = anyio.current_time()
        assert text_of(await call_tool(tools, "unlimited")) == "done"
        assert anyio.current_time() - before == pytest.approx(1)


@virtual_time
async def test_waiting_for_policies_is_not_the_tools_time() -> None:
    async with tools_app() as (app, tools):

        async def slow_policy(
            event: ToolPreExecute, next: Next[PreToolDecision]
        ) -> PreToolDecision:
            await anyio.sleep(60)
            return await next()

        app.ctx.on(ToolPreExecute, slow_policy)
        tools.register(
            app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x", timeout_ms=1, inline=True)
        )
        assert text_of(await call_tool(tools, "t")) == "x"


# --- what a wrapper sets ----------------------------------------------------------------------


@virtual_time
async def test_a_wrapper_limits_any_tool() -> None:
    async with tools_app() as (app, tools):
        expired: list[bool] = []

        async def limit(event: ToolExecute, next: Next[ToolExecutionResult]) -> ToolExecutionResult:
            execution = event.execution
            async with Deadline(app.ctx, execution.signal, 3_000, "enough") as deadline:
                execution.signal = deadline.signal
                result = await next()
            expired.append(deadline.expired)
            return result

        app.ctx.on(ToolExecute, limit)
        tools.register(app.ctx, Tool("unlimited", "d", {}, wait_for_signal))
        tools.register(app.ctx, Tool("longer", "d", {}, wait_for_signal, timeout_ms=5_000))
        tools.register(app.ctx, Tool("shorter", "d", {}, wait_for_signal, timeout_ms=1_000))
        before = anyio.current_time()
        assert text_of(await call_tool(tools, "unlimited")) == "stopped: enough"
        assert text_of(await call_tool(tools, "longer")) == "stopped: enough"
        assert text_of(await call_tool(tools, "shorter")) == "stopped: timed out"
        assert anyio.current_time() - before == pytest.approx(7)
        assert expired == [True, True, False]


async def test_the_outer_signal_passes_through() -> None:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, Tool("slow", "d", {}, wait_for_signal, timeout_ms=600_000))
        signal = CancelSignal()
        results: list[str] = []

        async def run() -> None:
            results.append(text_of(await call_tool(tools, "slow", signal=signal)))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await anyio.wait_all_tasks_blocked()
                signal.abort("the user pressed escape")
        assert results == ["stopped: the user pressed escape"]
        async with Deadline(app.ctx, signal, 1000) as deadline:
            assert deadline.signal.aborted
            assert not deadline.expired


@virtual_time
async def test_the_signal_says_that_time_is_up() -> None:
    async with tools_app() as (app, _tools):
        async with Deadline(app.ctx, None, 1_000) as deadline:
            assert await deadline.signal.wait() == "timed out"
            assert deadline.expired
        async with Deadline(app.ctx, None, 1_000, "too slow") as deadline:
            assert await deadline.signal.wait() == "too slow"


async def test_a_limit_is_positive() -> None:
    async with tools_app() as (app, _tools):
        for wrong in (0, -1, float("nan")):
            with pytest.raises(ValueError, match="timeout_ms"):
                Deadline(app.ctx, None, wrong)
        async with Deadline(app.ctx, None, 0.5) as deadline:
            assert not deadline.signal.aborted
