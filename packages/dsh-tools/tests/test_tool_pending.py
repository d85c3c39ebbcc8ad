"""Calls in two halves: what a loop needs to let calls overlap."""

from __future__ import annotations

import copy
import logging
from typing import Any

import anyio
import pytest

from dsh.agent.testing import stub_agent
from dsh.core import JsonObject, JsonValue, Next
from dsh.llm import TextBlock
from dsh.session import ErrorInfo
from dsh.tools import (
    Deny,
    InvalidArguments,
    PendingCall,
    PostToolDecision,
    PreToolDecision,
    Tool,
    ToolCallInput,
    ToolExecution,
    ToolExecutionResult,
    ToolOutput,
    parse_arguments,
)
from dsh.tools.events import ToolExecute, ToolFinished, ToolPostExecute, ToolPreExecute
from dsh.tools.testing import text_of, tools_app


def call(number: int, name: str = "t", **arguments: Any) -> ToolCallInput:
    return ToolCallInput(f"c{number}", name, arguments)


async def test_policies_run_in_call_order_and_bodies_overlap() -> None:
    async with tools_app() as (app, tools):
        trace: list[str] = []
        gates = {"c1": anyio.Event(), "c2": anyio.Event()}
        started = anyio.Event()

        async def pre(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            trace.append(f"pre {event.execution.call_id}")
            return await next()

        async def body(arguments: JsonObject, execution: ToolExecution) -> str:
            trace.append(f"body {execution.call_id}")
            if len(trace) == 4:
                started.set()
            await gates[execution.call_id].wait()
            return execution.call_id

        app.ctx.on(ToolPreExecute, pre)
        app.ctx.on(ToolFinished, lambda event: trace.append(f"result {event.result.call_id}"))
        tools.register(app.ctx, Tool("t", "d", {}, body, concurrent=True))
        pending = [await tools.begin(call(number)) for number in (1, 2)]
        assert trace == ["pre c1", "pre c2"]
        assert [one.refused for one in pending] == [False, False]
        results: dict[str, ToolExecutionResult] = {}

        async def run(one: PendingCall) -> None:
            results[one.execution.call_id] = await one.run(notify=False)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for one in pending:
                    group.start_soon(run, one)
                await started.wait()
                gates["c2"].set()
                await anyio.wait_all_tasks_blocked()
                assert list(results) == ["c2"]
                assert pending[0].result is None
                gates["c1"].set()
        assert sorted(trace[2:]) == ["body c1", "body c2"]
        for one in pending:
            one.notify()
            one.notify()
        assert trace[4:] == ["result c1", "result c2"]
        assert [text_of(results[name]) for name in ("c1", "c2")] == ["c1", "c2"]
        assert pending[0].result == results["c1"]


async def test_a_refused_call_still_meets_its_judges() -> None:
    async with tools_app() as (app, tools):
        trace: list[str] = []

        async def pre(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            return Deny("no")

        async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            trace.append("post")
            return await next()

        app.ctx.on(ToolPreExecute, pre)
        app.ctx.on(ToolPostExecute, post)
        app.ctx.on(ToolFinished, lambda event: trace.append("result"))
        pending = await tools.begin(call(1))
        assert pending.refused
        assert pending.result is None
        assert trace == []
        assert text_of(await pending.run()) == "Error: no"
        assert trace == ["post", "result"]
        assert text_of(await pending.run()) == "Error: no"
        assert trace == ["post", "result"]


async def test_a_malformed_call_is_settled_and_not_yet_told() -> None:
    async with tools_app() as (app, tools):
        seen: list[ToolFinished] = []
        app.ctx.on(ToolFinished, seen.append)
        pending = await tools.begin(ToolCallInput("c1", "t", InvalidArguments("not JSON", "{")))
        assert pending.refused
        assert pending.result is not None
        assert seen == []
        result = await pending.run()
        assert result == pending.result
        assert len(seen) == 1


async def test_an_abandoned_call_keeps_its_outcome() -> None:
    async with tools_app() as (app, tools):
        seen: list[ToolFinished] = []
        app.ctx.on(ToolFinished, seen.append)
        never = await tools.begin(call(1))
        result = never.abandon("cancelled before it started", "ABORTED")
        assert result.is_error
        assert text_of(result) == "Error: cancelled before it started"
        assert result.error is not None
        assert result.error == ErrorInfo("ToolCallAbandoned", "ABORTED")
        assert result.call_id == "c1"
        assert await never.run() == result
        assert [event.result for event in seen] == [result]

        gate, started = anyio.Event(), anyio.Event()

        async def body(arguments: JsonObject, execution: ToolExecution) -> str:
            started.set()
            await gate.wait()
            return "late"

        tools.register(app.ctx, Tool("slow", "d", {}, body))
        running = await tools.begin(call(2, "slow"))
        results: list[ToolExecutionResult] = []

        async def run() -> None:
            results.append(await running.run())

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await started.wait()
                result = running.abandon("nobody waits", "TOOL_OUTCOME_UNKNOWN", notify=False)
                assert len(seen) == 1
                with pytest.raises(AttributeError):
                    running.execution.signal = None
                gate.set()
        assert results == [result]
        assert len(seen) == 2
        assert running.abandon("again", "OTHER") == result


async def test_an_abandoned_call_is_told_at_once_or_when_asked() -> None:
    async with tools_app() as (app, tools):
        seen: list[str] = []
        app.ctx.on(ToolFinished, lambda event: seen.append(event.execution.call_id))
        (await tools.begin(call(1))).abandon("no", "ABORTED")
        assert seen == ["c1"]
        pending = await tools.begin(call(2))
        pending.abandon("no", "ABORTED", notify=False)
        assert seen == ["c1"]
        pending.notify()
        assert seen == ["c1", "c2"]


async def test_cancelling_the_task_cancels_the_tool_and_leaves_the_call_open() -> None:
    async with tools_app() as (app, tools):
        started, ended = anyio.Event(), anyio.Event()

        async def body(arguments: JsonObject, execution: ToolExecution) -> str:
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()
            return "never"

        tools.register(app.ctx, Tool("t", "d", {}, body))
        pending = await tools.begin(call(1))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(pending.run)
                await started.wait()
                group.cancel_scope.cancel()
        assert ended.is_set()
        assert pending.result is None
        assert pending.abandon("cancelled", "TOOL_OUTCOME_UNKNOWN").is_error


async def test_the_outcome_handed_out_cannot_change() -> None:
    async with tools_app() as (app, tools):
        rows: list[JsonValue] = [1]
        output = ToolOutput((TextBlock("x"),), {"rows": rows})
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: output))
        pending = await tools.begin(call(1))
        first: Any = await pending.run()
        with pytest.raises(TypeError, match="cannot change"):
            first.meta["rows"].append(2)
        assert pending.result is first
        assert copy.deepcopy(first.meta) == {"rows": [1]}
        copy.deepcopy(first.meta)["rows"].append(2)
        rows.append(2)
        assert first.meta == {"rows": [1]}


def truthy(arguments: Any) -> Any:
    return 1


def nothing(arguments: Any) -> Any:
    return None


def raising(arguments: Any) -> Any:
    return arguments["missing"]


def always(arguments: JsonObject) -> bool:
    return True


def deciding(arguments: JsonObject) -> bool:
    return arguments["path"] == "a"


def meddling(arguments: Any) -> bool:
    arguments.clear()
    return True


# case: U-10
@pytest.mark.parametrize(
    ("concurrent", "expected"),
    [
        (True, True),
        (False, False),
        (1, False),
        ("yes", False),
        (always, True),
        (truthy, False),
        (nothing, False),
        (raising, False),
        (deciding, True),
        (meddling, True),
    ],
)
async def test_only_an_exact_true_lets_calls_overlap(concurrent: Any, expected: bool) -> None:
    logging.getLogger("dsh.tools").setLevel(logging.ERROR)
    schema: Any = {"properties": {"path": {"type": "string"}}, "required": ["path"]}
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        made = Tool("t", "d", schema, lambda arguments, execution: "x", concurrent=concurrent)
        tools.register(agent.ctx, made)
        good = ToolCallInput("c1", "t", {"path": "a"}, agent)
        assert tools.concurrent(good) is expected
        assert good.arguments == {"path": "a"}
        # arguments that do not fit, unknown tools and other views are exclusive
        assert not tools.concurrent(ToolCallInput("c1", "t", {"path": 1}, agent))
        assert not tools.concurrent(ToolCallInput("c1", "t", "text", agent))
        assert not tools.concurrent(ToolCallInput("c1", "t", parse_arguments("{"), agent))
        assert not tools.concurrent(ToolCallInput("c1", "u", {"path": "a"}, agent))
        assert not tools.concurrent(ToolCallInput("c1", "t", {"path": "a"}))


async def test_wrappers_run_in_the_second_half() -> None:
    async with tools_app() as (app, tools):
        trace: list[str] = []

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            trace.append("around")
            return await next()

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x"))
        pending = await tools.begin(call(1))
        assert trace == []
        await pending.run()
        assert trace == ["around"]


async def test_a_veto_of_the_dispatch_itself_is_loud() -> None:
    async with tools_app() as (app, tools):

        def veto(event: object, key: object, mode: object) -> None:
            if isinstance(event, ToolFinished):
                raise RuntimeError("broken rule")

        app.on_dispatch(app.ctx, veto)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x"))
        assert text_of(await tools.execute(call(1))) == "Error: broken rule"
        pending = await tools.begin(call(2))
        assert text_of(await pending.run(notify=False)) == "x"
        with pytest.raises(RuntimeError, match="broken rule"):
            pending.notify()
        pending.notify()
