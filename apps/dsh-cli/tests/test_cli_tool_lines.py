"""The line of a call and the line of what it came to."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.agent.testing import stub_agent
from dsh.cli._tool_lines import ToolLines
from dsh.core import JsonObject
from dsh.llm import TextBlock
from dsh.session import ErrorInfo, ToolCall, ToolResult
from dsh.tools import (
    CallView,
    GenericCard,
    GenericResult,
    ResultView,
    TerminalCard,
    TerminalResult,
    Tool,
    ToolOutcome,
)
from dsh.tools.testing import tools_app

SCHEMA: dict[str, Any] = {"properties": {"n": {"type": "integer"}}}


def nothing(arguments: JsonObject) -> CallView | None:
    return None


def card(arguments: JsonObject) -> CallView | None:
    return GenericCard(f"Count to {arguments.get('n')}")


def terminal(arguments: JsonObject) -> CallView | None:
    return TerminalCard("ls\n-l")


@pytest.mark.parametrize(
    ("present", "arguments", "line"),
    [
        (nothing, '{"n": 1, "deep": {"a": [1]}}', '> t n=1 deep={"a":[1]}'),
        (nothing, "", "> t"),
        (nothing, '{"n": ', '> t {"n":'),
        (nothing, "[1]", "> t [1]"),
        (card, '{"n": 3}', "> Count to 3"),
        (card, '{"n": "3"}', "> t n=3"),
        (terminal, "{}", "$ ls -l"),
    ],
)
async def test_the_line_of_a_call(present: Any, arguments: str, line: str) -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        # the agent's own tool counts
        tools.register(app.ctx, Tool("t", "d", SCHEMA, lambda arguments, execution: "x"))
        tools.register(agent.ctx, Tool("t", "d", SCHEMA, body, present_call=present))
        lines = ToolLines(tools, agent)
        assert lines.call(ToolCall(1, 1, "c", "t", arguments)) == line


def body(arguments: JsonObject, execution: object) -> str:
    return "x"


async def test_the_line_of_an_unknown_tool() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        assert ToolLines(tools, agent).call(ToolCall(1, 1, "c", "gone", '{"a": 1}')) == "> gone a=1"
    assert ToolLines().call(ToolCall(1, 1, "c", "gone", '{"a": 1}')) == '> gone {"a": 1}'


@pytest.mark.parametrize(
    ("view", "line"),
    [
        (None, "  ok, 2 lines: one"),
        (GenericResult("counted"), "  counted"),
        (TerminalResult(output="a\nb\n", exit_code=3), "  exit 3, 2 lines: b"),
        (TerminalResult(output="(no output)\n", exit_code=0), "  exit 0"),
        (TerminalResult(exit_code=0), "  exit 0, 2 lines: two"),
        (TerminalResult(output="", signal="SIGTERM"), "  killed by SIGTERM"),
        (
            TerminalResult(output="x", signal="SIGTERM", timed_out_ms=1500),
            "  timed out after 1500 ms, 1 line: x",
        ),
        (TerminalResult(output=""), "  ok"),
    ],
)
async def test_the_line_of_a_result(view: ResultView | None, line: str) -> None:
    seen: list[ToolOutcome] = []

    def present(arguments: JsonObject, outcome: ToolOutcome) -> ResultView | None:
        seen.append(outcome)
        return view

    content = (TextBlock("one\ntwo"),)
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        tools.register(agent.ctx, Tool("t", "d", SCHEMA, body, present_result=present))
        lines = ToolLines(tools, agent)
        lines.call(ToolCall(1, 1, "c", "t", "{}"))
        assert lines.result(ToolResult(1, 1, "c", content, meta={"a": 1})) == line
        assert seen == [ToolOutcome(content, False, {"a": 1})]
        # nobody asked for this one
        assert lines.result(ToolResult(1, 1, "c", content)) == "  ok, 2 lines: one"


def test_the_line_of_a_failure() -> None:
    failed = ToolResult(
        1, 1, "c", (TextBlock("\nError: no\nmore"),), is_error=True, error=ErrorInfo("E", "BAD")
    )
    assert ToolLines().result(failed) == "  failed [BAD]: Error: no"
    assert ToolLines().result(ToolResult(1, 1, "c", (), is_error=True)) == "  failed: no message"
    assert ToolLines().result(ToolResult(1, 1, "c", (TextBlock("(no output)"),))) == "  ok"
