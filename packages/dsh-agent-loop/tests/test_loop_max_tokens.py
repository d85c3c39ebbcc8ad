"""Replies that were cut off, refused or empty."""

from __future__ import annotations

from dsh.agent import ContinuationDecision, Continue, open_agent
from dsh.agent.events import StepResult, TurnContinuation
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next
from dsh.llm import Message, TextBlock, ToolCallBlock
from dsh.llm_replay import ScriptedAdapter, answer, max_tokens, text, tool_calls
from dsh.session import AssistantMessage, Completed, MaxTokens, Refusal
from dsh.session.testing import types_of
from dsh.testkit import assert_paired_request, soon, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


def recorder(ran: list[str]) -> Tool:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        return "ran"

    return Tool("probe", "Note the call.", {"type": "object"}, run)


async def once_more(
    event: TurnContinuation, next: Next[ContinuationDecision]
) -> ContinuationDecision:
    return Continue() if event.agent.session.last_step == 1 else await next()


# case: M-01
async def test_a_cut_off_step_marks_the_turn() -> None:
    adapter = ScriptedAdapter([max_tokens("part"), max_tokens("half"), text("whole"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        await soon(agent.ask("a", check=False))
        forcing = app.ctx.on(TurnContinuation, once_more)
        await soon(agent.ask("b", check=False))
        forcing.dispose_nowait()
        await soon(agent.ask("c"))
        assert turn_reasons(agent.session.events) == [MaxTokens(), MaxTokens(), Completed()]
        assert "half" in str(adapter.requests[2].messages)


# case: M-02
async def test_a_complete_call_of_a_cut_off_step_is_never_run() -> None:
    ran: list[str] = []
    adapter = ScriptedAdapter([tool_calls([("c1", "probe", "{}")], finish="max-tokens"), text("x")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, recorder(ran))
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, MaxTokens)
        assert ran == []
        assert "tool/call" not in types_of(agent.session.events)
        logged = [e.data for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        assert [message.content for message in logged] == [()]
        assert logged[0].usage is not None
        assert [m.role for m in agent.session.derive_messages()] == ["user"]
        await soon(agent.ask("b"))
        assert_paired_request(adapter.requests[1])


# case: M-03
async def test_without_usage_nothing_is_logged_for_it() -> None:
    chunks = tuple(
        chunk
        for chunk in tool_calls([("c1", "probe", "{}")], finish="max-tokens")
        if getattr(chunk, "type", "") != "usage"
    )
    async with (
        loop_app(AgentLoop, ScriptedAdapter([chunks])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, MaxTokens)
        assert "assistant/message" not in types_of(agent.session.events)


# case: M-04
async def test_step_result_sees_only_the_text_of_a_cut_off_step() -> None:
    seen: list[Message] = []

    async def look(event: StepResult, next: Next[Message]) -> Message:
        seen.append(await next())
        return seen[-1]

    half = answer(text="so far", calls=[("c1", "probe", '{"a"')], finish="max-tokens")
    async with (
        loop_app(AgentLoop, ScriptedAdapter([half])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(StepResult, look)
        outcome = await soon(agent.ask("a", check=False))
        assert [m.content for m in seen] == [(TextBlock("so far"),)]
        assert outcome.text == "so far"


# case: M-05
async def test_a_call_added_to_a_cut_off_step_is_stripped_again() -> None:
    ran: list[str] = []

    async def add(event: StepResult, next: Next[Message]) -> Message:
        message = await next()
        return Message("assistant", (*message.content, ToolCallBlock("c9", "probe", "{}")))

    adapter = ScriptedAdapter([max_tokens("part")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, recorder(ran))
        app.ctx.on(StepResult, add)
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, MaxTokens)
        assert ran == []
        assert agent.session.derive_messages()[1].content == (TextBlock("part"),)


# case: M-06
async def test_a_clean_stop_without_content_completes() -> None:
    chunks = tuple(c for c in answer(text=None) if getattr(c, "type", "") != "usage")
    async with (
        loop_app(AgentLoop, ScriptedAdapter([chunks])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        outcome = await soon(agent.ask("a"))
        assert isinstance(outcome.reason, Completed)
        assert outcome.message is None
        assert "assistant/message" not in types_of(agent.session.events)


async def test_a_refusal_ends_the_turn_as_one_and_runs_nothing() -> None:
    ran: list[str] = []
    refusal = answer(text="I cannot", calls=[("c1", "probe", "{}")], finish="refusal")
    async with (
        loop_app(AgentLoop, ScriptedAdapter([refusal, text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app[ToolRegistry].register(app.ctx, recorder(ran))
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Refusal)
        assert outcome.text == "I cannot"
        assert ran == []
        assert (await soon(agent.ask("b"))).ok
