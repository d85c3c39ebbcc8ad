"""Log-only events, and what the log refuses whoever appends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dsh.agent import AgentFault, open_agent
from dsh.agent.events import PreStep
from dsh.agent_loop import AgentLoop
from dsh.core import Event, JsonObject, NotJsonError
from dsh.llm import TextBlock, ToolCallBlock, ToolResultBlock, UnknownBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_call
from dsh.session import (
    LiveSessions,
    PluginSource,
    RecordTrigger,
    Replace,
    Session,
    SessionData,
    SessionEvent,
    TodoItem,
    TodoWrite,
    TurnStart,
    UserMessage,
    UserSource,
)
from dsh.session.errors import EventRefusedError
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import assert_balanced, types_of
from dsh.testkit import assert_paired, soon, turn_numbers
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"
TODO = TodoWrite((TodoItem("write tests", "in_progress"),))


@dataclass(frozen=True, slots=True)
class Marked(SessionData, type="loop-test/marked"):
    """Something a plugin notes."""

    data: dict[str, Any]


async def test_a_record_outside_of_a_turn_makes_one_of_its_own() -> None:
    flushes: list[int] = []

    async def flush(event: SessionFlush) -> None:
        flushes.append(len(event.session.events))

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionFlush, flush)
        event = agent.record(TODO)
        assert event.seq == 1
        assert event.data == TODO
        assert types_of(agent.session.events) == ["turn/start", "todo/write", "turn/end"]
        start = agent.session.events[0].data
        assert isinstance(start, TurnStart)
        assert start.trigger == RecordTrigger()
        await soon(agent.when_idle())
        assert flushes == [3]
        assert agent.session.derive_messages() == ()


async def test_a_record_inside_of_a_turn_joins_it() -> None:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        assert execution.agent is not None
        execution.agent.record(TODO)
        return "noted"

    adapter = ScriptedAdapter([tool_call("c1", "t"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        await soon(agent.ask("x"))
        kinds = types_of(agent.session.events)
        assert kinds.index("tool/call") < kinds.index("todo/write") < kinds.index("tool/result")
        assert turn_numbers(agent.session.events) == [1]
        assert_paired(agent.session.derive_messages())


async def test_a_record_is_detached_and_checked_at_the_door() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        data: dict[str, Any] = {"list": [1]}
        event = agent.record(Marked(data))
        data["list"].append(2)
        assert isinstance(event.data, Marked)
        assert event.data.data == {"list": [1]}
        before = len(agent.session.events)
        with pytest.raises(NotJsonError):
            agent.record(Marked({"n": float("nan")}))
        with pytest.raises(AgentFault) as caught:
            agent.record(UserMessage((TextBlock("hi"),), UserSource()))
        assert caught.value.code == "BAD_CONTENT"
        with pytest.raises(AgentFault, match=r"context\[0\] is a ToolCallBlock"):
            agent.inject((ToolCallBlock("c", "t", "{}"),), UserSource())
        assert len(agent.session.events) == before


# case: U-06
async def test_a_veto_against_a_replace_leaves_the_history_as_it_was() -> None:
    def refuse(session: Session, event: SessionEvent) -> None:
        if isinstance(event.surface_op, Replace):
            raise ValueError("history is sacred")

    async def compact(event: PreStep) -> None:
        session = event.agent.session
        nodes = session.surface.nodes
        summary = UserMessage((TextBlock("short"),), PluginSource("compact"))
        with pytest.raises(ValueError, match="sacred"):
            session.append(summary, Replace(nodes[0], nodes[-1]), nodes)

    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[LiveSessions].validator(app.ctx, refuse)
        app.ctx.on(PreStep, compact)
        assert (await soon(agent.ask("a long story"))).ok
        assert adapter.requests[0].messages[0].content == (TextBlock("a long story"),)


# case: U-07
async def test_an_observer_that_appends_is_refused_and_reorders_nothing() -> None:
    refused: list[str] = []
    seen: list[int] = []

    def meddle(event: SessionEventAppended) -> None:
        for attempt in (lambda: event.session.append(TODO), lambda: agent.record(TODO)):
            with pytest.raises(EventRefusedError) as caught:
                attempt()
            refused.append(caught.value.code)

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(SessionEventAppended, meddle)
        app.ctx.on(SessionEventAppended, lambda event: seen.append(event.event.seq))
        assert (await soon(agent.ask("x"))).ok
        assert set(refused) == {"REENTRANT_APPEND"}
        assert seen == list(range(len(agent.session.events)))


# case: U-12
async def test_content_nested_too_deep_is_refused_at_the_door() -> None:
    value: Any = 1
    for _ in range(10_000):
        value = [value]
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        for verb in (agent.send, agent.inject):
            with pytest.raises(NotJsonError) as caught:
                verb([UnknownBlock("deep", {"value": value})])
            assert caught.value.code == "JSON_TOO_DEEP"
        assert len(agent.session.events) == 0
        assert (await soon(agent.ask("x"))).ok
        assert_balanced(agent.session.events)


async def test_a_prompt_is_copied_when_it_is_sent() -> None:
    blocks = [TextBlock("mine")]
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        receipt = agent.send(blocks)
        blocks.append(TextBlock("later"))
        await soon(receipt.done())
        assert agent.session.derive_messages()[0].content == (TextBlock("mine"),)


async def test_tool_blocks_cannot_be_said_to_an_agent() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        for block in (ToolCallBlock("c", "t", "{}"), ToolResultBlock("c", ())):
            with pytest.raises(AgentFault) as caught:
                agent.send([block])
            assert caught.value.code == "BAD_CONTENT"


async def test_what_cannot_be_noted_is_told_to_whoever_notes_it() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        given: Any
        for given in ({"type": "x/y"}, Marked):
            with pytest.raises(AgentFault, match="no event payload") as refused:
                agent.record(given)
            assert refused.value.code == AgentFault.BAD_CONTENT
        given = "my-plugin"
        with pytest.raises(AgentFault, match="source is a str") as refused:
            agent.inject("context", given)
        assert "PluginSource" in (refused.value.hint or "")
        assert len(agent.session.events) == 0


async def test_what_is_no_content_and_no_fact_is_told_so() -> None:
    wrong: Any
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        for wrong in (5, ["text"], {"role": "user"}):
            with pytest.raises(AgentFault, match="say a text, or a list of content blocks"):
                agent.send(wrong)
        assert len(agent.session.events) == 0


@pytest.mark.parametrize("verb", ["inject", "record"])
async def test_a_turn_whose_start_is_vetoed_once_it_is_logged_is_closed(verb: str) -> None:
    flushes: list[int] = []

    async def flush(event: SessionFlush) -> None:
        flushes.append(len(event.session.events))

    def veto(event: Event, key: object, mode: str) -> None:
        if isinstance(event, SessionEventAppended) and len(event.session.events) == 1:
            raise ValueError("no")

    adapter = ScriptedAdapter([text("fine")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionFlush, flush)
        observer = app.on_dispatch(app.ctx, veto)
        with pytest.raises(ValueError, match="no"):
            agent.inject("x") if verb == "inject" else agent.record(TODO)
        observer.dispose_nowait()
        assert types_of(agent.session.events) == ["turn/start", "turn/end"]
        await soon(agent.when_idle())
        assert flushes == [2]
        assert (await soon(agent.ask("and now?"))).text == "fine"
        assert_balanced(agent.session.events)
        assert turn_numbers(agent.session.events) == [1, 2]
