"""Time limits of calls."""

from __future__ import annotations

import anyio
import pytest
from trio.testing import MockClock

from dsh.core import Context, JsonObject, Next
from dsh.llm import CancelSignal, TextBlock
from dsh.session import ErrorInfo
from dsh.tools import Deadline, Tool, ToolExecution, ToolExecutionResult, ToolRegistry
from dsh.tools.events import ToolExecute
from dsh.tools.testing import call_tool, text_of, tools_app

virtual_time = pytest.mark.parametrize(
    "anyio_backend",
    [pytest.param(("trio", {"clock": MockClock(autojump_threshold=0)}), id="virtual")],
)


def enforce(ctx: Context, tools: ToolRegistry) -> None:
    """What a plugin that enforces declared time budgets does."""

    async def limit(event: ToolExecute, next: Next[ToolExecutionResult]) -> ToolExecutionResult:
        execution = event.execution
        tool = tools.get(execution.name, execution.agent)
        if tool is None or tool.timeout_ms is None:
            return await next()
        outer = execution.signal
        async with Deadline(ctx, outer, tool.timeout_ms) as deadline:
            execution.signal = deadline.signal
            result = await next()
        execution.signal = outer
        if not deadline.expired:
            return result
        text = f"Error: timed out after {tool.timeout_ms} ms"
        error = ErrorInfo("ToolTimeout", "TOOL_TIMEOUT")
        return ToolExecutionResult(execution.call_id, (TextBlock(text),), True, error)

    ctx.on(ToolExecute, limit)


async def wait_for_signal(arguments: JsonObject, execution: ToolExecution) -> str:
    assert execution.signal is not None
    return f"stopped: {await execution.signal.wait()}"


@virtual_time
async def test_a_declared_budget_can_be_enforced() -> None:
    async with tools_app() as (app, tools):
        enforce(app.ctx, tools)
        tools.register(app.ctx, Tool("slow", "d", {}, wait_for_signal, timeout_ms=5_000))
        before = anyio.current_time()
        result = await call_tool(tools, "slow")
        assert anyio.current_time() - before == pytest.approx(5)
        assert text_of(result) == "Error: timed out after 5000 ms"


@virtual_time
async def test_a_call_that_is_in_time_keeps_its_result() -> None:
    async with tools_app() as (app, tools):

        async def quick(arguments: JsonObject, execution: ToolExecution) -> str:
            await anyio.sleep(1)
            return "done"

        enforce(app.ctx, tools)
        tools.register(app.ctx, Tool("quick", "d", {}, quick, timeout_ms=5_000))
        tools.register(app.ctx, Tool("unlimited", "d", {}, quick))
        assert text_of(await call_tool(tools, "quick")) == "done"
        assert text_of(await call_tool(tools, "unlimited")) == "done"


async def test_the_outer_signal_passes_through() -> None:
    async with tools_app() as (app, tools):
        enforce(app.ctx, tools)
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
