"""What is looked at by many is made once, and nobody can change it for the others."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any, cast

import pytest

from dsh.core import Next, secrets
from dsh.llm import TextBlock, UnknownBlock
from dsh.session import APPEND, Session, ToolResult
from dsh.tools import (
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
from dsh.tools.testing import call_tool, tools_app


async def test_the_parsed_arguments_serve_everybody_but_the_body() -> None:
    async with tools_app() as (app, tools):
        seen: list[object] = []

        async def pre(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            seen.append(event.execution.arguments)
            return await next()

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            seen.append(event.execution.arguments)
            return await next()

        def body(arguments: Any, execution: ToolExecution) -> str:
            seen.append(execution.arguments)
            arguments["rows"].append(2)
            return str(arguments)

        app.ctx.on(ToolPreExecute, pre)
        app.ctx.on(ToolExecute, around)
        app.ctx.on(ToolFinished, lambda event: seen.append(event.execution.arguments))
        tools.guard(app.ctx, lambda execution: seen.append(execution.arguments))
        tools.register(app.ctx, Tool("t", "d", {}, body))
        arguments = parse_arguments('{"rows": [1]}')
        result = await tools.execute(ToolCallInput("c1", "t", arguments))
        assert result.content == (TextBlock("{'rows': [1, 2]}"),)
        assert len(seen) == 5
        assert all(one is arguments for one in seen)
        assert arguments == {"rows": [1]}


async def test_one_result_is_cleaned_once_and_shared() -> None:
    secrets.add("sk-shared-0001")
    async with tools_app() as (app, tools):
        seen: list[ToolExecutionResult] = []

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            seen.append(await next())
            return seen[-1]

        async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            seen.append(event.result)
            return await next()

        app.ctx.on(ToolExecute, around)
        app.ctx.on(ToolPostExecute, post)
        app.ctx.on(ToolFinished, lambda event: seen.append(event.result))
        block = UnknownBlock("image", {"size": [1], "note": "sk-shared-0001"})
        output = ToolOutput((block,), {"rows": [1], "key": ["sk-shared-0001"]})
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: output))
        result = await call_tool(tools, "t")
        assert result.content == (UnknownBlock("image", {"size": [1], "note": "[secret]"}),)
        assert result.meta == {"rows": [1], "key": ["[secret]"]}
        # the log takes it as it is, too
        session = Session("s", enclosed=False)
        data = ToolResult(1, 1, "call-1", result.content, meta=result.meta)
        logged = cast("ToolResult", session.append(data, APPEND).data)
        assert logged.meta is result.meta
        assert logged.content[0] is result.content[0]
        assert len(seen) == 3
        for one in seen:
            assert one.content[0] is result.content[0]
            assert one.meta is result.meta
        with pytest.raises(TypeError):
            cast("Any", result.content[0]).data["size"].append(2)


async def test_what_a_wrapper_makes_itself_is_cleaned_too() -> None:
    secrets.add("sk-shared-0002")
    async with tools_app() as (app, tools):
        meta: dict[str, Any] = {"rows": [1], "key": "sk-shared-0002"}

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            text = TextBlock("it was sk-shared-0002")
            return replace(await next(), content=(text,), meta=meta)

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: "x"))
        result = await call_tool(tools, "t")
        meta["rows"].append(2)
        assert result.content == (TextBlock("it was [secret]"),)
        assert result.meta == {"rows": [1], "key": "[secret]"}
        with pytest.raises(TypeError):
            cast("Any", result.meta)["rows"] = 2


class Mood(StrEnum):
    """A text that is more than a text."""

    CALM = "calm"


async def test_a_text_of_another_class_becomes_a_plain_one() -> None:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: Mood.CALM))
        result = await call_tool(tools, "t")
        assert result.content == (TextBlock("calm"),)
        assert type(cast("TextBlock", result.content[0]).text) is str
