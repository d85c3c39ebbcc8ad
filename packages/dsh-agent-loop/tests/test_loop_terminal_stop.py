"""Ending a turn for good."""

from __future__ import annotations

import pytest

from dsh.agent import ContinuationDecision, Dropped, Receipt, Stop, open_agent
from dsh.agent.events import TurnContinuation, TurnStop
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next
from dsh.llm_replay import ScriptedAdapter, text, tool_call
from dsh.session import Completed, Failed
from dsh.session.events import SessionFlush
from dsh.session.testing import types_of, user_texts
from dsh.testkit import soon, turn_numbers, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


async def run_a(arguments: JsonObject, execution: ToolExecution) -> str:
    return "ran"


TOOL = Tool("a", "A.", {"type": "object"}, run_a)


async def stop(event: TurnStop) -> Stop | None:
    return Stop()


# case: X-01
async def test_steering_cannot_revive_a_stopped_turn() -> None:
    async def steer_late(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        decision = await next()
        event.agent.steer("go on")
        return decision

    adapter = ScriptedAdapter([text("1")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(TurnStop, stop)
        app.ctx.on(TurnContinuation, steer_late, prepend=True)
        assert (await soon(agent.ask("a"))).ok
        await soon(agent.when_idle())
        kinds = types_of(agent.session.events)
        assert kinds.count("step/start") == 1
        assert "steering/message" not in kinds
        assert turn_numbers(agent.session.events) == [1]


# case: X-02
async def test_steering_during_the_checkpoint_of_a_stopped_turn_is_discarded() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("1")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        receipts: list[Receipt] = []

        async def flush(event: SessionFlush) -> None:
            if event.session.turn_open is not None:
                return
            receipts.append(agent.steer("late"))

        app.ctx.on(TurnStop, stop)
        app.ctx.on(SessionFlush, flush)
        await soon(agent.ask("a"))
        await soon(agent.when_idle())
        assert isinstance((await soon(receipts[0].done())).reason, Dropped)
        assert turn_numbers(agent.session.events) == [1]
        assert agent.status == "idle"


# case: X-03
async def test_a_prompt_during_the_checkpoint_of_a_stopped_turn_runs() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("1"), text("2")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):

        async def flush(event: SessionFlush) -> None:
            if event.session.turn_open is not None:
                return
            if len(turn_numbers(agent.session.events)) == 1:
                agent.send("b")

        app.ctx.on(TurnStop, stop)
        app.ctx.on(SessionFlush, flush)
        agent.send("a")
        await soon(agent.when_idle())
        assert user_texts(agent.session.events) == ["a", "b"]


# case: X-04
async def test_a_scoped_stop_concerns_its_agent_alone() -> None:
    script = [
        tool_call("c1", "a"),
        tool_call("c1", "a"),
        text("x"),
        tool_call("c2", "a"),
        text("x"),
    ]
    adapter = ScriptedAdapter(script)
    async with (
        loop_app(AgentLoop, adapter) as app,
        open_agent(app, model=MODEL) as one,
        open_agent(app, model=MODEL) as two,
    ):
        app[ToolRegistry].register(app.ctx, TOOL)
        listener = one.ctx.on(TurnStop, stop)
        await soon(one.ask("go"))
        await soon(two.ask("go"))
        assert types_of(one.session.events).count("step/start") == 1
        assert types_of(two.session.events).count("step/start") == 2
        listener.dispose_nowait()
        await soon(one.ask("go"))
        assert types_of(one.session.events).count("step/start") == 3


# case: X-05
@pytest.mark.parametrize("value", [ValueError("broken"), {"action": "continue"}, False])
async def test_a_malformed_verdict_fails_the_turn_closed(value: object) -> None:
    async def odd(event: TurnStop) -> Stop | None:
        if isinstance(value, Exception):
            raise value
        return value  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    adapter = ScriptedAdapter([text("1"), text("2"), text("3")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        listener = app.ctx.on(TurnStop, odd)
        await soon(agent.ask("a", check=False))
        listener.dispose_nowait()
        await soon(agent.ask("b"))
        reasons = turn_reasons(agent.session.events)
        assert isinstance(reasons[0], Failed)
        assert reasons[1] == Completed()
        if not isinstance(value, Exception):
            assert reasons[0].code == "BAD_DECISION"
            assert "agent/turn-stop" in reasons[0].message


# case: X-05
async def test_none_abstains() -> None:
    async def nothing(event: TurnStop) -> Stop | None:
        return None

    adapter = ScriptedAdapter([tool_call("c1", "a"), text("done")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, TOOL)
        app.ctx.on(TurnStop, nothing)
        assert (await soon(agent.ask("a"))).text == "done"
