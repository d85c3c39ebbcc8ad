"""Loop contract: every tool call has its one result, whatever happens."""

from __future__ import annotations

import anyio

from dsh.agent import HookContext
from dsh.core import Next
from dsh.llm import TextBlock
from dsh.llm_replay import text, tool_call, tool_calls
from dsh.session import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Aborted,
    Completed,
    ToolCall,
    ToolResult,
)
from dsh.session.testing import types_of
from dsh.testkit._loop_bench import NOTE, LoopBench, cases_of, context_texts, of_type
from dsh.testkit._trace import assert_paired_request, soon, tool_results, turn_reasons
from dsh.tools import Accept, PostToolDecision, ToolExecution, ToolPostExecute

__all__ = ["TOOLS"]


def _codes(results: list[ToolResult]) -> list[str | None]:
    return [None if result.error is None else result.error.code for result in results]


async def calls_are_answered_once_and_in_order(bench: LoopBench) -> None:
    """Each call of a reply has one result, in the order of the calls, before the step ends."""
    calls = [(f"c{number}", "look", "{}") for number in range(1, 4)]
    async with bench.open([tool_calls(calls), text("ok")]) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).ok
            results = tool_results(agent.session.events)
            assert [result.call_id for result in results] == ["c1", "c2", "c3"]
            assert [result.content for result in results] == [
                (TextBlock(f"ran c{number}"),) for number in range(1, 4)
            ]
            last = max(i for i, kind in enumerate(types_of(agent.session.events)) if "tool" in kind)
            assert types_of(agent.session.events)[last + 1] == "step/end"


async def a_raising_tool_is_an_error_result(bench: LoopBench) -> None:
    """What a tool raises is what the model reads; the turn goes on."""

    async def broken(execution: ToolExecution) -> str:
        raise ValueError("no such file")

    async with bench.open([tool_call("c1", "broken"), text("sorry")]) as opened:
        opened.tool("broken", broken)
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).text == "sorry"
            (result,) = tool_results(agent.session.events)
            assert result.is_error
            assert "no such file" in str(result.content)
        assert opened.errors == []


async def arguments_are_parsed_and_logged_raw(bench: LoopBench) -> None:
    """Empty arguments are an empty object; what is no object is answered and never run."""
    ran: list[str] = []

    async def look(execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        return str(execution.arguments)

    written = ["", "{broken", "[1]"]
    calls = [(f"c{number}", "look", arguments) for number, arguments in enumerate(written)]
    async with bench.open([tool_calls(calls), text("ok")]) as opened:
        opened.tool("look", look)
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).ok
            assert ran == ["c0"]
            assert _codes(tool_results(agent.session.events)) == [
                None,
                "INVALID_ARGS",
                "INVALID_ARGS",
            ]
            assert [call.arguments for call in of_type(agent.session, ToolCall)] == written


async def an_unknown_tool_is_answered(bench: LoopBench) -> None:
    """A call of a tool that does not exist has an error result."""
    script = [tool_call("c1", "nothing"), text("ok")]
    async with bench.open(script) as opened, opened.agent() as agent:
        assert (await soon(agent.ask("a"))).ok
        assert _codes(tool_results(agent.session.events)) == ["UNKNOWN_TOOL"]


async def ids_and_names_are_mended(bench: LoopBench) -> None:
    """Empty or used call ids are made new and bad names cleaned, so that a provider takes them."""
    script = [
        tool_calls([("", "look", "{}"), ("same", "look", "{}"), ("same", "look", "{}")]),
        tool_calls([("same", "functions.look", "{}"), ("x", "", "{}")]),
        text("ok"),
    ]
    async with bench.open(script) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).ok
            ids = [result.call_id for result in tool_results(agent.session.events)]
            assert len(ids) == len(set(ids)) == 5
            assert all(ids)
            for request in opened.requests:
                assert_paired_request(request)
            names = [call.name for call in of_type(agent.session, ToolCall)]
            assert names == ["look", "look", "look", "functions_look", "unknown_tool"]


async def context_follows_the_results(bench: LoopBench) -> None:
    """Context that comes up while tools run is logged after all results of the reply."""

    async def look(execution: ToolExecution) -> str:
        assert execution.agent is not None
        execution.agent.inject(f"injected by {execution.call_id}", NOTE)
        return "ok"

    async def audit(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
        return Accept(additional_context=HookContext((TextBlock("audited"),), NOTE))

    calls = [("c1", "look", "{}"), ("c2", "look", "{}")]
    async with bench.open([tool_calls(calls), text("ok")]) as opened:
        opened.tool("look", look)
        opened.on(ToolPostExecute, audit)
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).ok
            kinds = types_of(agent.session.events)
            last_result = max(i for i, kind in enumerate(kinds) if kind == "tool/result")
            assert kinds[last_result + 1 : last_result + 5] == ["context/message"] * 4
            assert sorted(context_texts(agent.session)) == [
                "audited",
                "audited",
                "injected by c1",
                "injected by c2",
            ]


async def a_cancel_answers_the_calls_that_did_not_run(bench: LoopBench) -> None:
    """A call that came back keeps its result, the others say that they never started."""

    async def stop(execution: ToolExecution) -> str:
        assert execution.agent is not None
        execution.agent.cancel("enough")
        return "stopped"

    calls = [("c1", "stop", "{}"), ("c2", "stop", "{}"), ("c3", "stop", "{}")]
    async with bench.open([tool_calls(calls), text("ok")]) as opened:
        opened.tool("stop", stop)
        async with opened.agent() as agent:
            outcome = await soon(agent.ask("a", check=False))
            assert outcome.reason == Aborted("enough")
            results = tool_results(agent.session.events)
            assert [result.call_id for result in results] == ["c1", "c2", "c3"]
            assert results[0].content == (TextBlock("stopped"),)
            assert _codes(results) == [None, TOOL_NOT_STARTED, TOOL_NOT_STARTED]
            assert (await soon(agent.ask("b"))).ok


async def a_tool_hears_the_cancel(bench: LoopBench) -> None:
    """The signal of the execution fires, and what the tool then says is its result."""
    running = anyio.Event()

    async def wait(execution: ToolExecution) -> str:
        assert execution.signal is not None
        running.set()
        return f"left: {await execution.signal.wait()}"

    async with bench.open([tool_call("c1", "wait"), text("ok")]) as opened:
        opened.tool("wait", wait)
        async with opened.agent() as agent:
            receipt = agent.send("a")
            await soon(running.wait())
            agent.cancel("enough")
            assert (await soon(receipt.done())).reason == Aborted("enough")
            (result,) = tool_results(agent.session.events)
            assert result.content == (TextBlock("left: enough"),)


async def a_tool_that_ignores_a_cancel_is_left_behind(bench: LoopBench) -> None:
    """After a grace the turn ends without it, and its result says that the outcome is unknown."""
    running = anyio.Event()

    async def sleep(execution: ToolExecution) -> str:
        running.set()
        await anyio.sleep_forever()
        return "never"

    async with bench.open([tool_call("c1", "sleep"), text("ok")], impatient=True) as opened:
        opened.tool("sleep", sleep)
        async with opened.agent() as agent:
            receipt = agent.send("a")
            await soon(running.wait())
            agent.cancel("enough")
            assert (await soon(receipt.done(), 30)).reason == Aborted("enough")
            (result,) = tool_results(agent.session.events)
            assert _codes([result]) == [TOOL_OUTCOME_UNKNOWN]
            assert (await soon(agent.ask("b"))).ok


async def a_fired_signal_ends_the_turn_and_drops_nothing(bench: LoopBench) -> None:
    """Who was given the signal may fire it: the turn is aborted, what is queued still runs."""

    async def abort(execution: ToolExecution) -> str:
        assert execution.signal is not None
        assert execution.agent is not None
        execution.agent.send("meanwhile")
        execution.signal.abort("the tool said so")
        return "done"

    async with bench.open([tool_call("c1", "abort"), text("ok")]) as opened:
        opened.tool("abort", abort)
        async with opened.agent() as agent:
            outcome = await soon(agent.ask("a", check=False))
            assert outcome.reason == Aborted("the tool said so")
            await soon(agent.when_idle())
            assert turn_reasons(agent.session.events) == [
                Aborted("the tool said so"),
                Completed(),
            ]


TOOLS = cases_of(
    calls_are_answered_once_and_in_order,
    a_raising_tool_is_an_error_result,
    arguments_are_parsed_and_logged_raw,
    an_unknown_tool_is_answered,
    ids_and_names_are_mended,
    context_follows_the_results,
    a_cancel_answers_the_calls_that_did_not_run,
    a_tool_hears_the_cancel,
    a_tool_that_ignores_a_cancel_is_left_behind,
    a_fired_signal_ends_the_turn_and_drops_nothing,
)
"""The cases of this subject."""
