"""Steering a running turn, and adding context at any time."""

from __future__ import annotations

import anyio
import pytest

from dsh.agent import ContinuationDecision, open_agent
from dsh.agent.events import AgentError, AgentQueued, AgentSessionStart, TurnContinuation
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next, NotJsonError
from dsh.llm import TextBlock, UnknownBlock
from dsh.llm_replay import ScriptedAdapter, hang, text, tool_call
from dsh.session import (
    Completed,
    ContextMessage,
    InjectionTrigger,
    LiveSessions,
    OtherSource,
    PluginSource,
    Session,
    SessionEvent,
    SteeringMessage,
    StepEnd,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
)
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import assert_balanced, types_of, user_texts
from dsh.testkit import (
    assert_paired,
    assert_paired_request,
    soon,
    status_trace,
    turn_numbers,
    turn_reasons,
)
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"
CRON = PluginSource("cron")


def acting_tool(verb: str) -> Tool:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        assert execution.agent is not None
        getattr(execution.agent, verb)("by the way", CRON)
        return "ran"

    return Tool("act", "Act.", {"type": "object"}, run)


# case: I-01
async def test_a_tool_that_steers_is_heard_in_the_second_step() -> None:
    adapter = ScriptedAdapter([tool_call("c1", "act"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, acting_tool("steer"))
        await soon(agent.ask("a"))
        kinds = types_of(agent.session.events)
        assert kinds.index("steering/message") < kinds.index("step/end")
        content = adapter.requests[1].messages[-1].content
        assert content[0] == TextBlock('<steering source="plugin">')
        assert content[1] == TextBlock("by the way")
        assert_paired_request(adapter.requests[1])


# case: I-02
async def test_steering_an_idle_agent_is_a_prompt() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        assert (await soon(agent.steer("hi").done())).text == "ok"
        assert user_texts(agent.session.events) == ["hi"]


# case: I-03
async def test_steering_from_step_end_makes_another_step() -> None:
    def steer(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, StepEnd) and event.event.data.step == 1:
            agent.steer("one more thing")

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionEventAppended, steer)
        await soon(agent.ask("a"))
        kinds = types_of(agent.session.events)
        assert turn_numbers(agent.session.events) == [1]
        assert kinds.count("step/start") == 2
        second = len(kinds) - 1 - kinds[::-1].index("step/start")
        assert kinds.index("step/end") < kinds.index("steering/message") < second


# case: I-04
async def test_steering_from_the_continuation_overrides_a_stop() -> None:
    async def steer(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        if event.agent.session.last_step == 1:
            event.agent.steer("not yet")
        return await next()

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(TurnContinuation, steer)
        await soon(agent.ask("a"))
        assert turn_numbers(agent.session.events) == [1]
        assert "not yet" in str(adapter.requests[1].messages)


# case: I-05
async def test_steering_from_turn_end_is_the_next_turn_without_idle() -> None:
    steered = False

    def steer(event: SessionEventAppended) -> None:
        nonlocal steered
        if isinstance(event.event.data, TurnEnd) and not steered:
            steered = True
            agent.steer("next")

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        trace = status_trace(app.ctx, agent)
        app.ctx.on(SessionEventAppended, steer)
        agent.send("a")
        await soon(agent.when_idle())
        assert turn_numbers(agent.session.events) == [1, 2]
        assert user_texts(agent.session.events) == ["a", "next"]
        assert trace.statuses == ["running", "idle"]


# case: I-06
async def test_sources_are_resolved_announced_and_kept() -> None:
    queued: list[AgentQueued] = []
    adapter = ScriptedAdapter([hang(), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(AgentQueued, queued.append)
        agent.send("a")
        await soon(adapter.waiting())
        agent.steer("b", CRON)
        agent.steer("c")
        agent.send("d", CRON)
        assert [(q.source, q.steering) for q in queued] == [
            (UserSource(), False),
            (CRON, True),
            (UserSource(), True),
            (CRON, False),
        ]
        agent.cancel()
        await soon(agent.when_idle())
        await soon(agent.send("e", CRON).done())
        sources = [e.data.source for e in agent.session.events if isinstance(e.data, UserMessage)]
        assert sources == [UserSource(), CRON]


# case: I-06
async def test_a_raising_queued_listener_is_contained() -> None:
    def broken(event: AgentQueued) -> None:
        raise ValueError("no")

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(AgentQueued, broken)
        assert (await soon(agent.ask("a"))).ok


# case: I-07
async def test_context_for_an_idle_agent_makes_a_turn_without_a_model_call() -> None:
    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        trace = status_trace(app.ctx, agent)
        agent.inject("the build is green", CRON)
        events = agent.session.events
        assert types_of(events) == ["turn/start", "context/message", "turn/end"]
        start = events[0].data
        assert isinstance(start, TurnStart)
        assert start.trigger == InjectionTrigger(CRON)
        assert turn_reasons(events) == [Completed()]
        await soon(agent.when_idle())
        assert trace.statuses == []
        assert not adapter.calls
        await soon(agent.ask("a"))
        assert adapter.requests[0].messages[0].content[0] == TextBlock('<context source="plugin">')
        assert turn_numbers(events) == [1, 2]


# case: I-08
async def test_a_tool_that_injects_joins_the_turn() -> None:
    adapter = ScriptedAdapter([tool_call("c1", "act"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, acting_tool("inject"))
        await soon(agent.ask("a"))
        assert turn_numbers(agent.session.events) == [1]
        assert types_of(agent.session.events).count("context/message") == 1
        assert_paired_request(adapter.requests[1])


# case: I-09
async def test_the_log_decides_whether_context_joins_a_turn() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        session = agent.session
        session.append(TurnStart(1, InjectionTrigger(CRON)))
        assert agent.status == "idle"
        agent.inject("joins", CRON)
        session.append(TurnEnd(1, Completed()))
        agent.inject("wraps", CRON)
        assert types_of(session.events) == [
            "turn/start",
            "context/message",
            "turn/end",
            "turn/start",
            "context/message",
            "turn/end",
        ]


# case: I-10
async def test_lossy_context_is_refused_at_the_door() -> None:
    flushes: list[int] = []

    async def flush(event: SessionFlush) -> None:
        flushes.append(1)

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionFlush, flush)
        with pytest.raises(NotJsonError):
            agent.inject([UnknownBlock("odd", {"n": float("nan")})])
        await anyio.wait_all_tasks_blocked()
        assert len(agent.session.events) == 0
        assert flushes == []


# case: I-10
async def test_context_the_log_refuses_leaves_a_closed_turn_and_one_checkpoint() -> None:
    flushes: list[int] = []

    async def flush(event: SessionFlush) -> None:
        flushes.append(1)

    def refuse(session: Session, event: SessionEvent) -> None:
        if isinstance(event.data, ContextMessage):
            raise ValueError("not this one")

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionFlush, flush)
        app[LiveSessions].validator(app.ctx, refuse)
        with pytest.raises(ValueError, match="not this one"):
            agent.inject("hm", CRON)
        await soon(agent.when_idle())
        assert types_of(agent.session.events) == ["turn/start", "turn/end"]
        assert flushes == [1]


# case: I-11
async def test_a_lossy_source_is_refused_at_the_door() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        source = OtherSource("odd", {"n": float("inf")})
        for verb in (agent.inject, agent.send, agent.steer):
            with pytest.raises(NotJsonError):
                verb("x", source)
        await anyio.wait_all_tasks_blocked()
        assert len(agent.session.events) == 0
        assert agent.status == "idle"


# case: I-12
async def test_a_raise_on_the_synthetic_turn_end_changes_nothing() -> None:
    flushes: list[int] = []

    async def flush(event: SessionFlush) -> None:
        flushes.append(1)

    def broken(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, TurnEnd):
            raise ValueError("observer is broken")

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionFlush, flush)
        app.ctx.on(SessionEventAppended, broken)
        agent.inject("hm", CRON)
        await soon(agent.when_idle())
        assert_balanced(agent.session.events)
        assert flushes == [1]


# case: I-12
async def test_an_objection_to_the_synthetic_turn_end_is_reported() -> None:
    errors: list[AgentError] = []

    def object_(session: Session, event: SessionEvent) -> None:
        if isinstance(event.data, TurnEnd):
            raise ValueError("never end")

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(AgentError, errors.append)
        app[LiveSessions].validator(app.ctx, object_)
        agent.inject("hm", CRON)
        assert_balanced(agent.session.events)
        assert [(e.turn, e.step, str(e.error)) for e in errors] == [(1, 0, "never end")]


# case: I-13
async def test_a_failing_checkpoint_of_idle_context_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors: list[AgentError] = []

    async def flush(event: SessionFlush) -> None:
        raise OSError("disk full")

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionFlush, flush)
        app.ctx.on(AgentError, errors.append)
        agent.inject("hm", CRON)
        await soon(agent.when_idle())
        assert [(e.turn, e.step) for e in errors] == [(1, 0)]
        assert isinstance(errors[0].error, OSError)
        assert isinstance(errors[0].error.__cause__, ExceptionGroup)
        assert "disk full" in caplog.text


# case: I-14
async def test_a_session_start_listener_may_inject() -> None:
    def start(event: AgentSessionStart) -> None:
        event.agent.inject("welcome", CRON)

    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter) as app:
        app.ctx.on(AgentSessionStart, start)
        async with open_agent(app, model=MODEL) as agent:
            await soon(agent.ask("a"))
            assert "welcome" in str(adapter.requests[0].messages)
            context = [e.data for e in agent.session.events if isinstance(e.data, ContextMessage)]
            assert [c.source for c in context] == [CRON]


async def test_context_injected_by_an_observer_waits_for_the_notification() -> None:
    def react(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, UserMessage):
            agent.inject("seen", CRON)

    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionEventAppended, react)
        await soon(agent.ask("a"))
        assert types_of(agent.session.events)[:3] == [
            "turn/start",
            "user/message",
            "context/message",
        ]
        assert "seen" in str(adapter.requests[0].messages)
        assert_paired(agent.session.derive_messages())


async def test_steering_that_comes_too_late_is_admitted_like_a_prompt() -> None:
    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:

        async def flush(event: SessionFlush) -> None:
            if event.session.turn_open is not None:
                return
            if len(turn_numbers(agent.session.events)) == 1:
                agent.steer("late")

        app.ctx.on(SessionFlush, flush)
        agent.send("a")
        await soon(agent.when_idle())
        assert user_texts(agent.session.events) == ["a", "late"]
        assert not [e for e in agent.session.events if isinstance(e.data, SteeringMessage)]
