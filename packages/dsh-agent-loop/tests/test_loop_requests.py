"""What a request is made of, and that the log alone can make it again."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from itertools import pairwise

import pytest

from dsh.agent import open_agent
from dsh.agent.events import AgentRequest, PreStep, SessionPrefix
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next, NextStream
from dsh.llm import (
    Finish,
    FinishReason,
    LlmCallConfig,
    Message,
    ModelInfo,
    ReplayState,
    StreamChunk,
    TextBlock,
    ToolResultBlock,
)
from dsh.llm.events import LlmStream
from dsh.llm_replay import ScriptedAdapter, text, tool_call, tool_calls
from dsh.session import (
    AssistantMessage,
    ContextMessage,
    Failed,
    PluginSource,
    Replace,
    Session,
    UserMessage,
)
from dsh.session.testing import reloaded, types_of
from dsh.system_prompt import TOOL_ORDER_REST, SystemPrompt
from dsh.testkit import (
    assert_paired_request,
    captured_requests,
    rebuilt_requests,
    request_parts,
    soon,
)
from dsh.testkit.loop_contract import loop_app
from dsh.tools import (
    Accept,
    HookContext,
    PostToolDecision,
    Tool,
    ToolExecution,
    ToolPostExecute,
    ToolRegistry,
)

MODEL = "test/scripted"
GUARD = PluginSource("guard")


def plain_tool(name: str) -> Tool:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        return f"{name} ran"

    return Tool(name, f"The tool {name}.", {"type": "object"}, run)


def header_events(session: Session) -> list[str]:
    return [kind for kind in types_of(session.events) if kind.startswith("request/")]


async def test_what_a_provider_wants_back_is_logged_and_sent_back() -> None:
    state = ReplayState("test", "scripted", {"thought": "x"})
    one: list[StreamChunk] = [*text("one")[:-1], Finish(FinishReason("stop"), state)]
    adapter = ScriptedAdapter([one, text("two")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        await soon(agent.ask("first"))
        await soon(agent.ask("second"))
        replies = [e.data for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        assert [reply.replay for reply in replies] == [state, None]
        assert [message.replay for message in adapter.requests[1].messages] == [None, state, None]


# case: L-18
async def test_each_request_extends_the_previous_one_under_one_header() -> None:
    adapter = ScriptedAdapter([tool_call("c1", "a"), text("one"), tool_call("c2", "a"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, plain_tool("a"))
        await soon(agent.ask("first"))
        await soon(agent.ask("second"))
        requests = adapter.requests
        assert len(requests) == 4
        for before, after in pairwise(requests):
            assert after.messages[: len(before.messages)] == before.messages
            assert (after.system, after.tools) == (before.system, before.tools)
        assert header_events(agent.session) == ["request/header"]
        for request in requests:
            assert_paired_request(request)


# case: L-19
async def test_a_pre_step_listener_replaces_history_for_the_next_request() -> None:
    async def compact(event: PreStep) -> None:
        session = event.agent.session
        if event.turn == 2:
            nodes = session.surface.nodes
            summary = UserMessage((TextBlock("summary of it all"),), PluginSource("compact"))
            session.append(summary, Replace(nodes[0], nodes[1]), nodes[:2])

    adapter = ScriptedAdapter([text("one"), text("two")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PreStep, compact)
        await soon(agent.ask("first"))
        await soon(agent.ask("second"))
        sent = adapter.requests[1].messages
        assert [m.content[0] for m in sent] == [
            TextBlock("summary of it all"),
            TextBlock("second"),
        ]
        assert header_events(agent.session) == ["request/header"]


# case: L-20
async def test_a_changed_prompt_is_one_delta() -> None:
    adapter = ScriptedAdapter([text("1"), text("2"), text("3"), text("4")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        await soon(agent.ask("a"))
        await soon(agent.ask("b"))
        assert header_events(agent.session) == ["request/header"]
        app[SystemPrompt].section(app.ctx, "extra", 50, "Be brief.")
        await soon(agent.ask("c"))
        await soon(agent.ask("d"))
        assert header_events(agent.session) == ["request/header", "request/header-delta"]
        assert "Be brief." in (adapter.requests[3].system or "")


# case: L-21
async def test_what_is_injected_while_the_request_is_shaped_reaches_the_next_one() -> None:
    async def inject(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        if event.turn == 1:
            event.agent.inject("a late note", GUARD)
        return await next()

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(AgentRequest, inject)
        await soon(agent.ask("a"))
        await soon(agent.ask("b"))
        assert "a late note" not in str(adapter.requests[0].messages)
        assert "a late note" in str(adapter.requests[1].messages)


# case: L-22
async def test_requests_and_configurations_cannot_be_changed_in_place() -> None:
    async def mutate_config(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        config = await next()
        config.model = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        return config

    async def mutate_request(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        event.request.messages[0].content = ()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        async for chunk in next():
            yield chunk

    adapter = ScriptedAdapter([text("fine")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        first = app.ctx.on(AgentRequest, mutate_config)
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert agent.session.request_header() is None
        first.dispose_nowait()
        second = app.ctx.on(LlmStream, mutate_request)
        outcome = await soon(agent.ask("b", check=False))
        assert isinstance(outcome.reason, Failed)
        second.dispose_nowait()
        assert (await soon(agent.ask("c"))).text == "fine"
        header = agent.session.request_header()
        assert header is not None
        assert header.config.model == MODEL
        with pytest.raises(dataclasses.FrozenInstanceError):
            header.config.model = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# case: L-23
async def test_every_request_can_be_rebuilt_from_the_log() -> None:
    big, small = ModelInfo("big"), ModelInfo("small")
    adapter = ScriptedAdapter(
        [tool_calls([("c1", "a", "{}"), ("c2", "b", "{}")]), text("one"), text("two"), text("3")],
        models=(big, small),
    )

    async def switch(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        config = await next()
        return config if event.turn < 3 else LlmCallConfig("test/small", temperature=0.5)

    async def prefix(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
        return (Message("user", (TextBlock("ground rules"),)), *await next())

    async def annotate(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
        return Accept(additional_context=HookContext((TextBlock("noted"),), GUARD))

    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model="test/big") as agent:
        requests = captured_requests(app.ctx)
        for name in ("b", "a"):
            app[ToolRegistry].register(app.ctx, plain_tool(name))
        app.ctx.on(AgentRequest, switch)
        app.ctx.on(SessionPrefix, prefix)
        app.ctx.on(ToolPostExecute, annotate)
        await soon(agent.ask("one"))
        app[SystemPrompt].section(app.ctx, "extra", 50, "Be brief.\nBe kind.")
        await soon(agent.ask("two"))
        await soon(agent.ask("three"))
        assert rebuilt_requests(agent.session) == [request_parts(r) for r in requests]
        assert rebuilt_requests(reloaded(agent.session)) == [request_parts(r) for r in requests]
        assert requests[3].model == "test/small"


# case: L-24
async def test_the_prefix_is_composed_once_and_fronts_every_request() -> None:
    opening = Message("user", (TextBlock("skills: none"),))
    composed: list[str] = []
    received: list[tuple[Message, ...]] = []

    async def contribute(
        event: SessionPrefix, next: Next[tuple[Message, ...]]
    ) -> tuple[Message, ...]:
        composed.append(event.agent.id)
        return (opening, *await next())

    async def look(event: PreStep) -> None:
        received.append(event.prefix)

    adapter = ScriptedAdapter([tool_call("c1", "a"), text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, plain_tool("a"))
        app.ctx.on(SessionPrefix, contribute)
        app.ctx.on(PreStep, look)
        await soon(agent.ask("a"))
        await soon(agent.ask("b"))
        assert len(composed) == 1
        assert received == [(opening,)] * 3
        assert all(request.messages[0] == opening for request in adapter.requests)
        assert opening not in agent.session.derive_messages()
        assert header_events(agent.session) == ["request/header"]
        header = agent.session.request_header()
        assert header is not None
        assert header.message_prefix == (opening,)


# case: L-25
async def test_the_prefix_follows_registration_order_and_cannot_be_changed_later() -> None:
    contributed = [TextBlock("first")]

    async def one(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
        return (Message("user", contributed), *await next())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def two(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
        return (Message("user", (TextBlock("second"),)), *await next())

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app:
        app.ctx.on(SessionPrefix, one)
        app.ctx.on(SessionPrefix, two)
        async with open_agent(app, model=MODEL) as agent:
            await soon(agent.ask("a"))
            contributed.append(TextBlock("later"))
            await soon(agent.ask("b"))
            for request in adapter.requests:
                assert [m.content for m in request.messages[:2]] == [
                    (TextBlock("first"),),
                    (TextBlock("second"),),
                ]


# case: L-25
async def test_no_prefix_is_an_absent_field_and_the_seed_cannot_be_pushed_to() -> None:
    async def push(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
        event.prefix.append(Message("user", (TextBlock("x"),)))  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return await next()

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        await soon(agent.ask("a"))
        header = agent.session.request_header()
        assert header is not None
        assert header.message_prefix is None
        pushing = app.ctx.on(SessionPrefix, push)
        async with open_agent(app, model=MODEL) as other:
            outcome = await soon(other.ask("a", check=False))
            assert isinstance(outcome.reason, Failed)
            assert types_of(other.session.events) == ["turn/start", "user/message", "turn/end"]
            pushing.dispose_nowait()
            assert (await soon(other.ask("b"))).ok


# case: L-26
async def test_tools_come_in_canonical_order() -> None:
    adapter = ScriptedAdapter([text("1")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        for name in ("b", "c", "a"):
            app[ToolRegistry].register(app.ctx, plain_tool(name))
        await soon(agent.ask("x"))
        assert [schema.name for schema in adapter.requests[0].tools or ()] == ["a", "b", "c"]
        header = agent.session.request_header()
        assert header is not None
        assert header.tools == adapter.requests[0].tools


# case: L-26
async def test_an_order_that_names_an_unknown_tool_is_a_turn_error() -> None:
    adapter = ScriptedAdapter([text("1")])
    configs = {SystemPrompt: {"tool_order": ["nope", TOOL_ORDER_REST]}}
    async with (
        loop_app(AgentLoop, adapter, configs=configs) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        outcome = await soon(agent.ask("x", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "PROMPT_TOOL_ORDER"
        assert "nope" in outcome.reason.message
        assert not adapter.requests


# case: L-27
async def test_contexts_of_calls_follow_all_results_in_call_order() -> None:
    async def annotate(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
        note = TextBlock(f"about {event.execution.call_id}")
        return Accept(additional_context=HookContext((note,), GUARD))

    adapter = ScriptedAdapter([tool_calls([("c1", "a", "{}"), ("c2", "a", "{}")]), text("done")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, plain_tool("a"))
        app.ctx.on(ToolPostExecute, annotate)
        await soon(agent.ask("x"))
        order = types_of(agent.session.events)
        assert order[order.index("assistant/message") : order.index("step/end")] == [
            "assistant/message",
            "tool/call",
            "tool/result",
            "tool/call",
            "tool/result",
            "context/message",
            "context/message",
        ]
        notes = [e.data.content for e in agent.session.events if isinstance(e.data, ContextMessage)]
        assert notes == [(TextBlock("about c1"),), (TextBlock("about c2"),)]
        assert_paired_request(adapter.requests[1])
        blocks = [m.content[0] for m in adapter.requests[1].messages[2:4]]
        assert all(isinstance(block, ToolResultBlock) for block in blocks)
