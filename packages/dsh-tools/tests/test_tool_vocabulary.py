"""Blocks and sources of kinds that other wheels declare, on their way through a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dsh.core import Next, secrets
from dsh.llm import ContentBlock, TextBlock, ToolResultBlock
from dsh.session import MessageSource, OtherSource
from dsh.tools import HookContext, Tool, ToolExecutionResult
from dsh.tools.events import ToolExecute, ToolFinished
from dsh.tools.testing import call_tool, text_of, tools_app


@dataclass(frozen=True, slots=True)
class Chart(ContentBlock, type="test-tool/chart"):
    """A drawing."""

    title: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cron(MessageSource, kind="test-tool/cron"):
    """A clock says it."""

    job_name: str
    at: Mapping[str, Any]


async def test_a_tool_returns_a_declared_block() -> None:
    async with tools_app() as (app, tools):
        chart = Chart("T", {"size": [1]})
        tools.register(app.ctx, Tool("one", "d", {}, lambda arguments, execution: chart))
        tools.register(app.ctx, Tool("two", "d", {}, lambda arguments, execution: [chart, chart]))
        assert (await call_tool(tools, "one")).content == (chart,)
        assert (await call_tool(tools, "two")).content == (chart, chart)


async def test_declared_kinds_are_detached_shown_frozen_and_free_of_secrets() -> None:
    secrets.add("do-not-show")
    options: dict[str, Any] = {"size": [1], "key": "do-not-show"}
    async with tools_app() as (app, tools):
        chart = Chart("T", options)
        context = HookContext((ToolResultBlock("c", (chart,)),), Cron("nightly", {"a": [1]}))

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            return replace(await next(), content=(chart,), additional_context=(context,))

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x"))
        finished: list[ToolFinished] = []
        app.ctx.on(ToolFinished, finished.append)
        result = await call_tool(tools, "t")
        options["size"].append(2)
        masked = Chart("T", {"size": [1], "key": "[secret]"})
        assert result.content == (masked,)
        assert result.additional_context == (
            HookContext((ToolResultBlock("c", (masked,)),), Cron("nightly", {"a": [1]})),
        )
        shown: Any = finished[0].result
        for change in (
            lambda: shown.content[0].options.clear(),
            lambda: shown.content[0].options["size"].append(3),
            lambda: shown.additional_context[0].content[0].content[0].options.clear(),
            lambda: shown.additional_context[0].source.at["a"].append(3),
        ):
            with pytest.raises(TypeError, match="cannot change"):
                change()
        assert result.content == (masked,)


@pytest.mark.parametrize("where", ["block", "source"])
async def test_what_has_no_wire_form_fails_the_call(where: str) -> None:
    async with tools_app() as (app, tools):
        bad = {"a": object()}
        content = (Chart("T", bad),) if where == "block" else ()
        source = Cron("j", bad if where == "source" else {})

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            result = await next()
            return replace(result, additional_context=(HookContext(content, source),))

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x"))
        result = await call_tool(tools, "t")
        assert result.is_error
        if where == "block":
            assert "additional context holds a Chart without a wire form" in text_of(result)
        else:
            assert "source of the additional context has no wire form" in text_of(result)


async def test_blocks_of_a_context_are_checked_and_kept() -> None:
    async with tools_app() as (app, tools):
        inner = ToolResultBlock("c", (TextBlock("x"),), True)
        given: list[Any] = [inner]

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            context = HookContext(tuple(given), Cron("j", {}))
            return replace(await next(), additional_context=(context,))

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x"))
        result = await call_tool(tools, "t")
        assert result.additional_context[0].content == (inner,)
        wrong: Any = 5
        for block in (TextBlock(wrong), ToolResultBlock("c", (TextBlock(wrong),))):
            given[:] = [block]
            result = await call_tool(tools, "t")
            assert "additional context holds a block whose text is a int" in text_of(result)


async def test_observers_see_a_source_nobody_declared_and_cannot_change_it() -> None:
    async with tools_app() as (app, tools):
        source = OtherSource("far/away", {"a": [1]})

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            return replace(await next(), additional_context=(HookContext((), source),))

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x"))
        finished: list[ToolFinished] = []
        app.ctx.on(ToolFinished, finished.append)
        await call_tool(tools, "t")
        shown: Any = finished[0].result.additional_context[0].source
        assert (shown.kind, shown.data) == ("far/away", {"a": [1]})
        with pytest.raises(TypeError, match="cannot change"):
            shown.data["a"] = 2
