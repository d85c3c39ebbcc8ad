"""A policy that breaks down refuses the call, and it is told whose it was."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dsh.core import App, DshError, Failure, Next, Plugin, on
from dsh.tools import Deny, PreToolDecision, Tool, ToolRegistry
from dsh.tools.events import ToolPreExecute
from dsh.tools.testing import call_tool, text_of, tools_app


class Passing(Plugin):
    @on(ToolPreExecute)
    async def gate(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        return await next()


class Careful(Plugin):
    @on(ToolPreExecute)
    async def gate(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        try:
            return await next()
        except ValueError:
            return Deny("not today")


class Broken(Plugin):
    @on(ToolPreExecute)
    async def gate(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        raise ValueError("no such file")


class Coded(Plugin):
    @on(ToolPreExecute)
    async def gate(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        raise DshError("out of order", code="OUT_OF_ORDER")


async def mounted(app: App, tools: ToolRegistry, *plugins: type[Plugin]) -> list[Failure]:
    def body(arguments: object, execution: object) -> str:
        raise AssertionError("a refused call ran")

    tools.register(app.ctx, Tool("t", "d", {}, body, inline=True))
    failures: list[Failure] = []
    app.on_error(app.ctx, failures.append)
    for plugin in plugins:
        await app.mount(plugin).settled()
    return failures


async def test_a_policy_that_breaks_down_is_named_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with tools_app() as (app, tools):
        failures = await mounted(app, tools, Passing, Broken, Passing)
        with caplog.at_level(logging.ERROR):
            result = await call_tool(tools, "t")
        assert result.is_error
        assert result.error is None
        assert text_of(result) == "Error: a policy of 'broken' failed: no such file"
        (failure,) = failures
        assert (failure.plugin, failure.where) == ("broken", "listener of tools/pre-execute")
        assert isinstance(failure.error, ValueError)
        assert [record.name for record in caplog.records] == ["dsh.broken"]


async def test_a_policy_that_breaks_down_is_reported_where_another_decides() -> None:
    async with tools_app() as (app, tools):
        failures = await mounted(app, tools, Careful, Broken)
        assert text_of(await call_tool(tools, "t")) == "Error: not today"
        assert [failure.plugin for failure in failures] == ["broken"]


async def test_a_harness_error_of_a_policy_speaks_for_itself() -> None:
    async with tools_app() as (app, tools):
        failures = await mounted(app, tools, Passing, Coded)
        result = await call_tool(tools, "t")
        assert text_of(result) == "Error: out of order"
        assert result.error is not None
        assert result.error.code == "OUT_OF_ORDER"
        assert failures == []


async def test_a_guard_that_breaks_down_is_no_policy() -> None:
    def guard(execution: Any) -> str | None:
        raise ValueError("no guard")

    async with tools_app() as (app, tools):
        failures = await mounted(app, tools, Passing)
        tools.guard(app.ctx, guard)
        assert text_of(await call_tool(tools, "t")) == "Error: no guard"
        assert failures == []
