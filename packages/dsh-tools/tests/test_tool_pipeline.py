"""The way of a call through policies, guards, wrappers, the tool and judgement."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dsh.agent.testing import stub_agent
from dsh.core import App, DshError, JsonObject, JsonValue, Next, secrets
from dsh.llm import (
    CancelSignal,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from dsh.session import ErrorInfo, OtherSource, PluginSource, UserSource
from dsh.tools import (
    Accept,
    Allow,
    Block,
    Deny,
    ExecutionToken,
    HookContext,
    PostToolDecision,
    PreToolDecision,
    Tool,
    ToolExecution,
    ToolExecutionResult,
    ToolOutput,
    ToolRegistry,
)
from dsh.tools.events import ToolExecute, ToolFinished, ToolPostExecute, ToolPreExecute
from dsh.tools.testing import call_tool, text_of, tools_app

CONTEXT = HookContext((TextBlock("remember"),), PluginSource("tests"))


def echo(name: str = "t", text: str = "out") -> Tool:
    return Tool(name, "d", {}, lambda arguments, execution: text, inline=True)


class Teapot(DshError):
    """A harness error of the tests."""

    code = "TEAPOT"


def observe(app: App, ctx: Any = None) -> list[ToolFinished]:
    seen: list[ToolFinished] = []
    (ctx or app.ctx).on(ToolFinished, seen.append)
    return seen


def codes(result: ToolExecutionResult) -> tuple[str, str] | None:
    return None if result.error is None else (result.error.name, result.error.code)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class FancyText(str):
    __slots__ = ()


class Fancy(Exception):
    def __str__(self) -> str:
        return FancyText("fancy")


class BadCode(DshError):
    code = 5  # pyright: ignore[reportAssignmentType]


# case: T-06
@pytest.mark.parametrize(
    ("error", "text", "info"),
    [
        (ValueError("no such file"), "Error: no such file", None),
        (ValueError(), "Error: ValueError", None),
        (Teapot("short and stout"), "Error: short and stout", ("Teapot", "TEAPOT")),
        (Teapot("cold", hint="heat it"), "Error: cold; heat it", ("Teapot", "TEAPOT")),
        (Unprintable(), "Error: an error that cannot be described", None),
        (Fancy(), "Error: fancy", None),
        (BadCode("odd"), "Error: odd", None),
        (ValueError("lone \udc80"), "Error: lone \ufffd", None),
        (ExceptionGroup("g", [Teapot("in a group")]), "Error: in a group", ("Teapot", "TEAPOT")),
        (
            ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [ValueError("b")])]),
            "Error: a; b",
            None,
        ),
        (
            ExceptionGroup("g", [ValueError(str(number)) for number in range(8)]),
            "Error: 0; 1; 2; 3; 4; and 3 more",
            None,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("where", ["tool", "pre", "guard", "around", "post"])
async def test_whatever_is_raised_becomes_an_error_result(
    error: Exception, text: str, info: tuple[str, str] | None, where: str
) -> None:
    async with tools_app() as (app, tools):

        def body(arguments: JsonObject, execution: ToolExecution) -> str:
            if where == "tool":
                raise error
            return "out"

        async def listener(event: object, next: Next[Any]) -> Any:
            raise error

        def guard(execution: ToolExecution) -> str | None:
            raise error

        tools.register(app.ctx, Tool("t", "d", {}, body, inline=True))
        match where:
            case "pre":
                app.ctx.on(ToolPreExecute, listener)
            case "around":
                app.ctx.on(ToolExecute, listener)
            case "post":
                app.ctx.on(ToolPostExecute, listener)
            case "guard":
                tools.guard(app.ctx, guard)
            case _:
                pass
        if where == "pre" and info is None and not isinstance(error, DshError):
            text = text.replace("Error: ", "Error: a policy of 'root' failed: ", 1)
        result = await call_tool(tools, "t")
        assert result.is_error
        assert text_of(result) == text
        assert codes(result) == info


# case: T-06
async def test_an_unknown_tool() -> None:
    async with tools_app() as (app, tools):
        result = await call_tool(tools, "bash")
        assert text_of(result) == "Error: unknown tool 'bash'"
        assert codes(result) == ("ToolNotFoundError", "UNKNOWN_TOOL")
        tools.register(app.ctx, echo("bash"))
        result = await call_tool(tools, "bsh")
        assert text_of(result) == "Error: unknown tool 'bsh'; did you mean 'bash'?"


# case: T-07
# case: F-25
# case: F-26
@pytest.mark.parametrize(
    ("arguments", "token"),
    [
        ({"a": float("nan")}, "arguments.a is not JSON"),
        ({"a": object()}, "arguments.a is not JSON"),
        ({"a": 2**60}, "2^53"),
        ([1], '"arguments" must be an object'),
        (5, '"arguments" must be an object'),
        ("[1]", '"arguments" must be an object'),
        ('"text"', '"arguments" must be an object'),
        ("{", "not JSON"),
        ("no json", "not JSON"),
        ('{"a": NaN}', "NaN"),
        ('{"a": "x', "not JSON"),
        ('"str"', '"arguments" must be an object'),
        ("null", '"arguments" must be an object'),
        ('{"a": "raw\nbreak"}', "control character"),
        ('{"a": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "not JSON"),
    ],
    ids=lambda value: re.sub(r"\W+", ".", repr(value)[:20]),
)
@pytest.mark.parametrize("checked", [True, False])
async def test_arguments_that_are_no_json_object(arguments: Any, token: str, checked: bool) -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        other, _ = stub_agent(app.ctx, "other")
        touched: list[str] = []

        async def policy(event: object, next: Next[Any]) -> Any:
            touched.append("policy")
            return await next()

        def body(arguments: JsonObject, execution: ToolExecution) -> None:
            touched.append("body")

        tools.register(app.ctx, Tool("t", "d", {}, body, check_arguments=checked))
        app.ctx.on(ToolPreExecute, policy)
        app.ctx.on(ToolPostExecute, policy)
        tools.guard(app.ctx, lambda execution: touched.append("guard"))
        globally, mine, foreign = observe(app), observe(app, agent.ctx), observe(app, other.ctx)
        result = await call_tool(tools, "t", arguments, agent=agent)
        assert result.is_error
        assert codes(result) == ("ToolArgsError", "INVALID_ARGS")
        assert text_of(result).startswith("Error: invalid arguments: ")
        assert token in text_of(result)
        assert {event.execution.call_id for event in globally} == {result.call_id}
        assert touched == []
        assert len(globally) == len(mine) == 1
        assert foreign == []
        assert globally[0].execution.malformed
        assert globally[0].execution.arguments == {}
        assert globally[0].execution.agent is agent
        assert globally[0].result == result


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
async def test_no_arguments_are_an_empty_object(text: str) -> None:
    async with tools_app() as (app, tools):
        seen: list[JsonObject] = []
        made = Tool("t", "d", {}, lambda arguments, execution: seen.append(arguments))
        tools.register(app.ctx, made)
        assert not (await call_tool(tools, "t", text)).is_error
        assert seen == [{}]


# case: T-08
async def test_nothing_of_a_call_can_be_changed() -> None:
    async with tools_app() as (app, tools):
        refused: list[str] = []

        def meddle(execution: ToolExecution) -> None:
            nested: Any = execution.arguments["list"]
            with pytest.raises(TypeError):
                nested.append("spoiled")
            with pytest.raises(TypeError):
                execution.arguments["more"] = True
            for name in ("name", "call_id", "arguments", "agent", "parent", "token", "extra"):
                with pytest.raises(AttributeError):
                    setattr(execution, name, "spoiled")
            refused.append("all")

        async def around(event: Any, next: Next[Any]) -> Any:
            meddle(event.execution)
            result = await next()
            meddle(event.execution)
            return result

        def body(arguments: JsonObject, execution: ToolExecution) -> str:
            seen = str(arguments)
            meddle(execution)
            mine: Any = arguments["list"]
            mine.append("by the tool")
            return seen

        for event in (ToolPreExecute, ToolExecute, ToolPostExecute):
            app.ctx.on(event, around)
        tools.guard(app.ctx, meddle)
        tools.register(app.ctx, Tool("t", "d", {}, body, inline=True))
        finished = observe(app)
        arguments: dict[str, JsonValue] = {"list": [1]}
        result = await call_tool(tools, "t", arguments)
        assert text_of(result) == "{'list': [1]}"
        assert len(refused) == 8
        assert arguments == {"list": [1]}
        inner: Any = arguments["list"]
        inner.append("by the caller")
        assert finished[0].execution.arguments == {"list": [1]}


# case: T-09
async def test_a_parent_has_to_be_an_execution_of_the_registry() -> None:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, echo("inner"))
        finished = observe(app)
        forged: list[Any] = [
            ExecutionToken(),
            ToolExecution("c", "t", {}).token,
            object(),
            "token",
        ]
        for parent in forged:
            result = await call_tool(tools, "inner", parent=parent)
            assert codes(result) == ("ToolCallError", "UNKNOWN_PARENT")
        assert [event.execution.parent for event in finished] == [None] * len(forged)
        assert all(event.execution.malformed for event in finished)
        finished.clear()

        async def outer(arguments: JsonObject, execution: ToolExecution) -> str:
            inner = await call_tool(tools, "inner", call_id="c:1", parent=execution.token)
            return text_of(inner)

        tools.register(app.ctx, Tool("outer", "d", {}, outer))
        assert text_of(await call_tool(tools, "outer")) == "out"
        inner, outer_event = finished
        assert inner.execution.parent is outer_event.execution.token


# case: T-10
async def test_the_order_of_the_stages() -> None:
    async with tools_app() as (app, tools):
        trace: list[str] = []
        deny = False

        async def pre(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            trace.append("pre")
            return Deny("no") if deny else await next()

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            trace.append("around")
            result = await next()
            trace.append("around-after")
            return result

        async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            trace.append("post")
            return await next()

        made = Tool("t", "d", {}, lambda arguments, execution: trace.append("body"))
        tools.register(app.ctx, made)
        app.ctx.on(ToolPreExecute, pre)
        app.ctx.on(ToolExecute, around)
        app.ctx.on(ToolPostExecute, post)
        app.ctx.on(ToolFinished, lambda event: trace.append("result"))
        tools.guard(app.ctx, lambda execution: trace.append("guard"))
        await call_tool(tools, "t")
        stages = ["pre", "guard", "around", "body", "around-after", "post", "result"]
        assert trace == stages
        trace.clear()
        deny = True
        result = await call_tool(tools, "t")
        assert trace == ["pre", "post", "result"]
        assert (result.is_error, text_of(result), result.error) == (True, "Error: no", None)


@pytest.mark.parametrize(
    "decision",
    [None, True, "allow", {"kind": "allow"}, Allow, Deny(5), Deny(None), Accept()],  # pyright: ignore[reportArgumentType]
    ids=repr,
)
async def test_a_policy_that_decides_nothing_refuses_the_call(decision: Any) -> None:
    async with tools_app() as (app, tools):
        ran: list[str] = []

        async def pre(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            return decision

        made = Tool("t", "d", {}, lambda arguments, execution: ran.append("body"))
        tools.register(app.ctx, made)
        app.ctx.on(ToolPreExecute, pre)
        result = await call_tool(tools, "t")
        assert codes(result) == ("ToolDecisionError", "INVALID_PRE_DECISION")
        assert result.is_error
        assert ran == []


async def test_an_empty_reason_is_still_a_denial() -> None:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, echo())
        guard = tools.guard(app.ctx, lambda execution: "")
        assert text_of(await call_tool(tools, "t")) == "Error: no reason was given"
        guard.dispose_nowait()

        async def pre(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            return Deny("")

        app.ctx.on(ToolPreExecute, pre)
        assert text_of(await call_tool(tools, "t")) == "Error: no reason was given"


# case: T-12
async def test_guards_abstain_or_deny() -> None:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, echo())
        tools.guard(app.ctx, lambda execution: None)
        denying = tools.guard(app.ctx, lambda execution: "denied here")
        assert text_of(await call_tool(tools, "t")) == "Error: denied here"
        denying.dispose_nowait()

        async def later() -> str | None:
            return None

        wrong: list[Any] = [True, 0, b"no", Deny("x"), later()]
        for value in wrong:
            guard = tools.guard(app.ctx, lambda execution, value=value: value)
            result = await call_tool(tools, "t")
            assert codes(result) == ("ToolDecisionError", "INVALID_GUARD_RESULT")
            guard.dispose_nowait()
        assert not (await call_tool(tools, "t")).is_error


# case: T-15
async def test_a_wrapper_sees_the_error_result_of_a_raising_tool() -> None:
    async with tools_app() as (app, tools):
        seen: list[ToolExecutionResult] = []

        def body(arguments: JsonObject, execution: ToolExecution) -> str:
            raise Teapot("tipped over")

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            seen.append(result := await next())
            return result

        async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            seen.append(event.result)
            return await next()

        tools.register(app.ctx, Tool("t", "d", {}, body))
        app.ctx.on(ToolExecute, around)
        app.ctx.on(ToolPostExecute, post)
        result = await call_tool(tools, "t")
        assert seen == [result, result]
        assert codes(result) == ("Teapot", "TEAPOT")


# case: T-16
async def test_a_wrapper_replaces_the_signal() -> None:
    async with tools_app() as (app, tools):
        original, replaced = CancelSignal(), CancelSignal()
        seen: list[CancelSignal | None] = []

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            seen.append(event.execution.signal)
            event.execution.signal = replaced
            result = await next()
            event.execution.signal = None
            return result

        async def body(arguments: JsonObject, execution: ToolExecution) -> None:
            seen.append(execution.signal)

        tools.register(app.ctx, Tool("t", "d", {}, body))
        app.ctx.on(ToolExecute, around)
        finished = observe(app)
        await call_tool(tools, "t", signal=original)
        assert seen == [original, replaced]
        execution = finished[0].execution
        assert execution.signal is None
        with pytest.raises(AttributeError, match="over"):
            execution.signal = original


# case: T-16
async def test_a_wrapper_skips_the_tool_and_attaches_context() -> None:
    async with tools_app() as (app, tools):
        ran: list[str] = []

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            return ToolExecutionResult(
                event.execution.call_id, (TextBlock("cached"),), additional_context=(CONTEXT,)
            )

        async def accept(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            return Accept()

        made = Tool("t", "d", {}, lambda arguments, execution: ran.append("body"))
        tools.register(app.ctx, made)
        app.ctx.on(ToolExecute, around)
        app.ctx.on(ToolPostExecute, accept)
        result = await call_tool(tools, "t")
        assert text_of(result) == "cached"
        assert result.additional_context == (CONTEXT,)
        assert ran == []


async def test_a_wrapper_runs_the_tool_again() -> None:
    async with tools_app() as (app, tools):
        runs: list[str] = []

        def body(arguments: JsonObject, execution: ToolExecution) -> str:
            runs.append("run")
            if len(runs) < 3:
                raise ValueError("flaky")
            return "done"

        async def retry(event: ToolExecute, next: Next[ToolExecutionResult]) -> ToolExecutionResult:
            result = await next()
            while result.is_error:
                result = await next.again()
            return result

        tools.register(app.ctx, Tool("t", "d", {}, body))
        app.ctx.on(ToolExecute, retry)
        assert text_of(await call_tool(tools, "t")) == "done"
        assert len(runs) == 3


async def test_a_wrapper_runs_the_tool_with_other_arguments() -> None:
    async with tools_app() as (app, tools):
        replaced = CancelSignal()

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            view = event.execution.with_arguments({"path": "/safe"})
            view.signal = replaced
            assert event.execution.signal is replaced
            return await next(ToolExecute(view))

        schema: Any = {"properties": {"path": {"type": "string"}}, "required": ["path"]}

        def body(arguments: JsonObject, execution: ToolExecution) -> str:
            assert execution.arguments == arguments
            return str(arguments["path"])

        tools.register(app.ctx, Tool("t", "d", schema, body))
        app.ctx.on(ToolExecute, around)
        finished = observe(app)
        assert text_of(await call_tool(tools, "t", {"path": "/etc"})) == "/safe"
        # the log, and whoever watches, keep what the model asked for
        assert finished[0].execution.arguments == {"path": "/etc"}
        for wrong in ({"a": object()}, [1]):
            with pytest.raises(ValueError, match="arguments"):
                finished[0].execution.with_arguments(wrong)  # pyright: ignore[reportArgumentType]


async def test_a_wrapper_cannot_pass_on_another_execution() -> None:
    async with tools_app() as (app, tools):

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            return await next(ToolExecute(ToolExecution("call-1", "t", {})))

        tools.register(app.ctx, echo())
        app.ctx.on(ToolExecute, around)
        result = await call_tool(tools, "t")
        assert codes(result) == ("ToolOutputError", "INVALID_RESULT")


def _wrong_results() -> dict[str, Any]:
    good = ToolExecutionResult("call-1", (TextBlock("x"),))
    return {
        "nothing": None,
        "mapping": {"call_id": "call-1", "content": [], "is_error": False},
        "other call": replace(good, call_id="call-2"),
        "text as content": replace(good, content="x"),
        "no content": replace(good, content=None),
        "no block": replace(good, content=("x",)),
        "text of a number": replace(good, content=(TextBlock(5),)),  # pyright: ignore[reportArgumentType]
        "nested": replace(good, content=(ToolResultBlock("c", ("x",)),)),  # pyright: ignore[reportArgumentType]
        "no flag": replace(good, is_error=1),
        "lossy meta": replace(good, meta={"a": object()}),
        "list as meta": replace(good, meta=[1]),
        "odd error": replace(good, error=ErrorInfo("x", 5)),  # pyright: ignore[reportArgumentType]
        "odd context": replace(good, additional_context=("x",)),
        "text as context": replace(good, additional_context="x"),
        "odd source": replace(good, additional_context=(HookContext((), "tests"),)),  # pyright: ignore[reportArgumentType]
        "lossy source": replace(
            good, additional_context=(HookContext((), OtherSource("x", {"a": object()})),)
        ),
        "lossy block": replace(good, content=(UnknownBlock("x", {"a": object()}),)),  # pyright: ignore[reportArgumentType]
    }


# case: T-17
@pytest.mark.parametrize("name", _wrong_results())
async def test_a_wrapper_that_returns_no_result(name: str) -> None:
    async with tools_app() as (app, tools):
        posts: list[str] = []

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            await next()
            return _wrong_results()[name]

        async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            posts.append("post")
            return await next()

        tools.register(app.ctx, echo())
        app.ctx.on(ToolExecute, around)
        app.ctx.on(ToolPostExecute, post)
        finished = observe(app)
        result = await call_tool(tools, "t")
        assert codes(result) == ("ToolOutputError", "INVALID_RESULT")
        assert result.call_id == "call-1"
        assert result.is_error
        assert result.meta is None
        assert [event.result for event in finished] == [result]
        assert posts == []


# case: T-18
async def test_what_a_judge_does_to_the_result_does_not_show() -> None:
    async with tools_app() as (app, tools):

        async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            shown: Any = event.result
            with pytest.raises(TypeError):
                shown.meta["rows"].append("spoiled")
            with pytest.raises(TypeError):
                shown.meta["more"] = True
            for name, value in (
                ("call_id", "other"),
                ("is_error", True),
                ("error", ErrorInfo("a", "b")),
                ("content", ()),
                ("meta", None),
            ):
                object.__setattr__(shown, name, value)
            return await next()

        output = ToolOutput((TextBlock("x"),), {"rows": [1]})
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: output))
        app.ctx.on(ToolPostExecute, post)
        result = await call_tool(tools, "t")
        assert result == ToolExecutionResult("call-1", (TextBlock("x"),), meta={"rows": [1]})
        assert output.meta == {"rows": [1]}


def judge(app: App, decision: Any) -> None:
    async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
        return decision

    app.ctx.on(ToolPostExecute, post, prepend=True)


# case: T-19
async def test_decisions_about_a_result() -> None:
    async with tools_app() as (app, tools):
        output = ToolOutput((TextBlock("x"),), {"rows": 1})

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            return replace(await next(), additional_context=(CONTEXT,))

        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: output))
        app.ctx.on(ToolExecute, around)
        other = HookContext((TextBlock("other"),), PluginSource("tests"))
        base = ToolExecutionResult(
            "call-1", (TextBlock("x"),), additional_context=(CONTEXT,), meta={"rows": 1}
        )
        new: Sequence[TextBlock] = [TextBlock("new")]
        blocked = ToolExecutionResult("call-1", (TextBlock("new"),), is_error=True)
        cases: list[tuple[PostToolDecision, ToolExecutionResult]] = [
            (Accept(), base),
            (Accept(content=new), replace(base, content=(TextBlock("new"),))),
            (Accept(content=()), replace(base, content=())),
            (Accept(additional_context=other), replace(base, additional_context=(other,))),
            (Accept(additional_context=()), replace(base, additional_context=())),
            (Block(new), blocked),
            (Block(new, other), replace(blocked, additional_context=(other,))),
            (
                Block(new, [other, CONTEXT]),
                replace(blocked, additional_context=(other, CONTEXT)),
            ),
        ]
        for decision, expected in cases:
            judge(app, decision)
            assert await call_tool(tools, "t") == expected


# case: T-19
@pytest.mark.parametrize(
    "decision",
    [
        None,
        "accept",
        Allow(),
        Accept,
        Accept(content="text"),  # pyright: ignore[reportArgumentType]
        Accept(content=["text"]),  # pyright: ignore[reportArgumentType]
        Accept(additional_context="x"),  # pyright: ignore[reportArgumentType]
        Block(None),  # pyright: ignore[reportArgumentType]
        Block("text"),  # pyright: ignore[reportArgumentType]
        Block([], 5),  # pyright: ignore[reportArgumentType]
    ],
    ids=repr,
)
async def test_decisions_that_are_none(decision: Any) -> None:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, echo())
        judge(app, decision)
        finished = observe(app)
        result = await call_tool(tools, "t")
        assert result.is_error
        assert codes(result) in (
            ("ToolDecisionError", "INVALID_POST_DECISION"),
            ("ToolOutputError", "INVALID_RESULT"),
        )
        assert [event.result for event in finished] == [result]


# case: T-20
async def test_accepting_a_denial_keeps_it_an_error() -> None:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, echo())
        tools.guard(app.ctx, lambda execution: "no")
        judge(app, Accept(content=[TextBlock("softer words")]))
        result = await call_tool(tools, "t")
        assert (result.is_error, text_of(result)) == (True, "softer words")


# case: T-21
@pytest.mark.parametrize("event", [ToolPreExecute, ToolExecute, ToolPostExecute])
async def test_raising_listeners_stop_the_call(event: Any) -> None:
    async with tools_app() as (app, tools):
        ran: list[str] = []

        async def listener(event: object, next: Next[Any]) -> Any:
            await next()
            raise Teapot("listener")

        made = Tool("t", "d", {}, lambda arguments, execution: ran.append("body"))
        tools.register(app.ctx, made)
        app.ctx.on(event, listener)
        finished = observe(app)
        result = await call_tool(tools, "t")
        assert codes(result) == ("Teapot", "TEAPOT")
        assert text_of(result) == "Error: listener"
        assert [seen.result for seen in finished] == [result]
        assert ran == ([] if event is ToolPreExecute else ["body"])


# case: T-22
async def test_observers_are_contained_and_see_one_frozen_outcome() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        seen: list[ToolFinished] = []
        failures: list[Exception] = []

        def meddle(event: ToolFinished) -> None:
            shown: Any = event.result
            for change in (
                lambda: shown.meta.update(x=1),
                lambda: shown.meta.__setitem__("x", 1),
                lambda: shown.meta["rows"].append(2),
                lambda: shown.meta["inner"].clear(),
                lambda: setattr(shown, "is_error", True),
                lambda: shown.content.append(1),
            ):
                try:
                    change()
                except (TypeError, AttributeError) as error:
                    failures.append(error)
            seen.append(event)
            raise RuntimeError("observer")

        reported: list[object] = []
        app.on_error(app.ctx, reported.append)
        app.ctx.on(ToolFinished, meddle)
        agent.ctx.on(ToolFinished, meddle)
        app.ctx.on(ToolFinished, seen.append)
        output = ToolOutput((TextBlock("x"),), {"rows": [1], "inner": {"a": 1}})
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: output))
        result = await call_tool(tools, "t", agent=agent)
        assert result.meta == {"rows": [1], "inner": {"a": 1}}
        assert len(seen) == 3
        assert len({id(event.result) for event in seen}) == 1
        assert len(failures) == 12
        assert len(reported) == 2
        assert dict(seen[0].result.meta or {}) == {"rows": [1], "inner": {"a": 1}}


# case: T-27
async def test_bad_arguments_list_every_violation_unless_unchecked() -> None:
    schema: Any = {
        "properties": {"a": {"type": "string"}, "b": {"enum": ["x"]}},
        "required": ["a"],
    }
    async with tools_app() as (app, tools):
        seen: list[JsonObject] = []

        def body(arguments: JsonObject, execution: ToolExecution) -> None:
            seen.append(arguments)

        tools.register(app.ctx, Tool("strict", "d", schema, body))
        tools.register(app.ctx, Tool("raw", "d", schema, body, check_arguments=False))
        policies: list[str] = []
        tools.guard(app.ctx, lambda execution: policies.append(execution.name))
        result = await call_tool(tools, "strict", {"b": "y"})
        assert codes(result) == ("ToolArgsError", "INVALID_ARGS")
        assert text_of(result) == (
            'Error: invalid arguments: missing required property "a"; "b" must be one of ["x"]'
        )
        # the check belongs to the tool, so policies have seen the call
        assert policies == ["strict"]
        assert not (await call_tool(tools, "raw", {"b": "y"})).is_error
        assert seen == [{"b": "y"}]


async def test_secrets_never_reach_the_model() -> None:
    secrets.add("sk-test-do-not-show-0001")
    async with tools_app() as (app, tools):
        text = "key sk-test-do-not-show-0001"

        def body(arguments: JsonObject, execution: ToolExecution) -> object:
            if arguments:
                raise ValueError(text)
            return ToolOutput([TextBlock(text), ReasoningBlock(text)], {"seen": [text]})

        tools.register(app.ctx, Tool("t", "d", {}, body))
        cases: list[JsonValue] = [{}, {"fail": True}]
        for arguments in cases:
            result = await call_tool(tools, "t", arguments)
            assert "[secret]" in str(result)
            assert "do-not-show" not in str(result)


async def test_every_kind_of_content_is_shown_frozen() -> None:
    async with tools_app() as (app, tools):
        blocks = (
            UnknownBlock("image", {"size": [1]}),
            ToolResultBlock("c", (UnknownBlock("image", {"size": [1]}),)),
            ToolCallBlock("c", "n", "{}"),
        )
        contexts = (
            HookContext(blocks, OtherSource("cron", {"at": ["noon"]})),
            HookContext((), UserSource()),
        )

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            return replace(await next(), additional_context=contexts)

        app.ctx.on(ToolExecute, around)
        tools.register(app.ctx, Tool("t", "d", {}, lambda arguments, execution: list(blocks)))
        finished = observe(app)
        result = await call_tool(tools, "t")
        assert result.content == blocks
        assert result.additional_context == contexts
        shown: Any = finished[0].result
        changes = (
            lambda: shown.content[0].data["size"].append(2),
            lambda: shown.content[0].data.clear(),
            lambda: shown.content[1].content[0].data.update(a=1),
            lambda: shown.additional_context[0].source.data.popitem(),
            lambda: shown.additional_context[0].content[0].data.__ior__({"a": 1}),
            lambda: shown.additional_context[0].content[0].data.setdefault("a", 1),
        )
        for change in changes:
            with pytest.raises((TypeError, AttributeError)):
                change()
        assert dict(shown.content[0].data) | {"a": 1} == {"size": [1], "a": 1}


# case: F-28
async def test_control_characters_are_carried() -> None:
    text = "".join(map(chr, range(32))) + "\x7f\u2028\ufeff"
    async with tools_app() as (app, tools):
        made = Tool("t", "d", {}, lambda arguments, execution: arguments["text"])
        tools.register(app.ctx, made)
        finished = observe(app)
        arguments = json.dumps({"text": text})
        assert text_of(await call_tool(tools, "t", arguments)) == text
        assert finished[0].execution.arguments == {"text": text}
        # unescaped they are no JSON, and the model is told so
        raw = await call_tool(tools, "t", '{"text": "\x00"}')
        assert codes(raw) == ("ToolArgsError", "INVALID_ARGS")


async def test_a_call_survives_the_registration_of_its_tool() -> None:
    async with tools_app() as (app, tools):
        registration = tools.register(app.ctx, echo())

        async def around(
            event: ToolExecute, next: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            await registration.dispose()
            return await next()

        app.ctx.on(ToolExecute, around)
        result = await call_tool(tools, "t")
        assert codes(result) == ("ToolNotFoundError", "UNKNOWN_TOOL")
        assert isinstance(tools, ToolRegistry)
