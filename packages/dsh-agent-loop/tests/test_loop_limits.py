"""Limits of a turn, and requests that are made again."""

from __future__ import annotations

import pytest

from dsh.agent import (
    AgentOptions,
    GiveUp,
    HookContext,
    RequestErrorDecision,
    Retry,
    open_agent,
)
from dsh.agent.events import AgentError, AgentRequestError
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next
from dsh.llm import TextBlock
from dsh.llm_replay import ScriptedAdapter, error, opening, text, throw, tool_call
from dsh.session import (
    Aborted,
    AssistantMessage,
    Completed,
    Failed,
    MaxTurnRequests,
    PluginSource,
    Replace,
    UserMessage,
)
from dsh.session.testing import types_of
from dsh.testkit import (
    assert_paired_request,
    captured_requests,
    rebuilt_requests,
    request_parts,
    soon,
    turn_reasons,
)
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


async def run_a(arguments: JsonObject, execution: ToolExecution) -> str:
    return "ran"


TOOL = Tool("a", "A.", {"type": "object"}, run_a)


async def retry(event: AgentRequestError, next: Next[RequestErrorDecision]) -> RequestErrorDecision:
    return Retry()


async def test_a_turn_ends_when_it_has_made_its_steps() -> None:
    adapter = ScriptedAdapter([tool_call(f"c{n}", "a") for n in range(9)])
    options = AgentOptions(model=MODEL, max_steps=3)
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, options=options) as agent:
        app[ToolRegistry].register(app.ctx, TOOL)
        outcome = await soon(agent.ask("x", check=False))
        assert outcome.reason == MaxTurnRequests("max_steps", 3)
        assert len(adapter.calls) == 3
        await soon(agent.ask("y", check=False))
        assert len(adapter.calls) == 6
        assert_paired_request(adapter.requests[-1])


async def test_a_turn_that_stops_by_itself_at_its_limit_completes() -> None:
    adapter = ScriptedAdapter([tool_call("c1", "a"), text("ok")])
    options = AgentOptions(model=MODEL, max_steps=2)
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, options=options) as agent:
        app[ToolRegistry].register(app.ctx, TOOL)
        assert isinstance((await soon(agent.ask("x"))).reason, Completed)


async def test_a_turn_ends_when_it_has_used_its_tokens() -> None:
    adapter = ScriptedAdapter([tool_call(f"c{n}", "a") for n in range(9)])
    options = AgentOptions(model=MODEL, max_turn_tokens=10)
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, options=options) as agent:
        app[ToolRegistry].register(app.ctx, TOOL)
        outcome = await soon(agent.ask("x", check=False))
        assert outcome.reason == MaxTurnRequests("max_turn_tokens", 10)
        assert outcome.usage is not None
        assert outcome.usage.output_tokens == 10


# case: U-08
async def test_a_request_made_again_cites_only_its_own_chunks() -> None:
    adapter = ScriptedAdapter(
        [error("busy", "RATE_LIMIT", chunks=opening("half an ans")), throw("cut"), text("whole")]
    )
    errors: list[AgentError] = []
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        requests = captured_requests(app.ctx)
        app.ctx.on(AgentRequestError, retry)
        app.ctx.on(AgentError, errors.append)
        assert (await soon(agent.ask("x"))).text == "whole"
        assert errors == []
        (message,) = [e for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        start = max(e.seq for e in agent.session.events if e.type == "step/start")
        own = [e.seq for e in agent.session.events if e.type == "assistant/chunk" and e.seq > start]
        assert message.source_event_seqs == tuple(own)
        assert types_of(agent.session.events).count("step/start") == 3
        assert rebuilt_requests(agent.session) == [request_parts(r) for r in requests]
        assert requests[2].messages == requests[0].messages


async def test_the_failure_and_its_configuration_are_offered_once_the_step_is_closed() -> None:
    seen: list[AgentRequestError] = []

    async def look(
        event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        seen.append(event)
        assert event.agent.session.step_open is None
        return await next()

    async with (
        loop_app(AgentLoop, ScriptedAdapter([error("busy", "RATE_LIMIT")])) as app,
        open_agent(app, model="scripted") as agent,
    ):
        app.ctx.on(AgentRequestError, look)
        outcome = await soon(agent.ask("x", check=False))
        assert outcome.reason == Failed(1, "busy", "RATE_LIMIT")
        assert [(e.turn, e.step, e.failure.code) for e in seen] == [(1, 1, "RATE_LIMIT")]
        assert seen[0].config.model == MODEL


async def test_a_listener_that_shortens_the_history_has_the_request_made_with_it() -> None:
    async def shorten(
        event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        session = event.agent.session
        nodes = session.surface.nodes
        summary = UserMessage((TextBlock("short"),), PluginSource("compact"))
        session.append(summary, Replace(nodes[0], nodes[-1]), nodes)
        return Retry()

    adapter = ScriptedAdapter([error("too long", "CONTEXT_WINDOW_EXCEEDED"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        requests = captured_requests(app.ctx)
        app.ctx.on(AgentRequestError, shorten)
        assert (await soon(agent.ask("a very long story"))).ok
        assert [m.content for m in adapter.requests[1].messages] == [(TextBlock("short"),)]
        assert rebuilt_requests(agent.session) == [request_parts(r) for r in requests]


async def test_a_cancel_wins_over_a_retry() -> None:
    async def cancel(
        event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        event.agent.cancel("no more")
        assert event.signal.aborted
        return Retry()

    adapter = ScriptedAdapter([error()])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(AgentRequestError, cancel)
        await soon(agent.ask("x", check=False))
        assert turn_reasons(agent.session.events) == [Aborted("no more")]
        assert len(adapter.calls) == 1


async def test_a_recovery_that_breaks_leaves_the_original_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(
        event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        raise ValueError("cannot recover")

    async with (
        loop_app(AgentLoop, ScriptedAdapter([error("original", "SERVER")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(AgentRequestError, broken)
        outcome = await soon(agent.ask("x", check=False))
        assert outcome.reason == Failed(1, "original", "SERVER")
        assert "cannot recover" in caplog.text


async def test_giving_up_is_the_default() -> None:
    async def give_up(
        event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        assert await next() == GiveUp()
        return GiveUp()

    async with (
        loop_app(AgentLoop, ScriptedAdapter([error()])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(AgentRequestError, give_up)
        assert not (await soon(agent.ask("x", check=False))).ok


async def test_options_of_the_agent_reach_the_request() -> None:
    options = AgentOptions(
        model=MODEL, max_tokens=77, temperature=0.25, stop=("END",), reasoning_effort=None
    )
    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, options=options) as agent:
        await soon(agent.ask("x"))
        (request,) = adapter.requests
        assert (request.max_tokens, request.temperature, request.stop) == (77, 0.25, ("END",))
        assert request.session_id == agent.session.id
        assert request.loop


async def test_a_hook_context_needs_a_source() -> None:
    with pytest.raises(TypeError):
        HookContext((TextBlock("x"),))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
