"""Answers of a given shape, and following a turn live, with the shipped loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field

from dsh.agent import AgentOptions, Dropped, OutputInvalid, TurnFailed, open_agent
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject
from dsh.llm_replay import ScriptedAdapter, error, hang, hold, max_tokens, text, tool_call
from dsh.llm_replay.server import Gate
from dsh.session import Aborted, Completed, SessionEvent, TurnEnd
from dsh.session.testing import assert_balanced, types_of, user_texts
from dsh.testkit import assert_paired, soon, turn_numbers, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


class City(BaseModel):
    name: str
    people: int = Field(ge=0)


GOOD = '{"name": "Paris", "people": 2100000}'


@pytest.mark.parametrize(
    "reply",
    [GOOD, f"```json\n{GOOD}\n```", f"Here you are:\n```\n{GOOD}\n```", f"Sure! {GOOD} Bye."],
)
async def test_an_answer_is_validated_into_the_model(reply: str) -> None:
    adapter = ScriptedAdapter([text(reply, size=7)])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        city = await soon(agent.ask("Which city?", output=City))
        assert city == City(name="Paris", people=2100000)
        prompt = str(adapter.requests[0].messages)
        assert "Which city?" in prompt
        assert '"people"' in prompt
        assert turn_numbers(agent.session.events) == [1]


async def test_an_answer_that_does_not_fit_is_sent_back_inside_the_turn() -> None:
    adapter = ScriptedAdapter([text("I think Paris"), text('{"name": "Paris"}'), text(GOOD)])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        city = await soon(agent.ask("Which city?", output=City))
        assert city.people == 2100000
        assert turn_numbers(agent.session.events) == [1]
        assert types_of(agent.session.events).count("steering/message") == 2
        assert "people: Field required" in str(adapter.requests[2].messages[-1])
        assert adapter.requests[2].messages[: len(adapter.requests[1].messages)] == (
            adapter.requests[1].messages
        )
        assert_paired(agent.session.derive_messages())


async def test_tools_may_run_before_the_answer() -> None:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        return "2100000"

    adapter = ScriptedAdapter([tool_call("c1", "count"), text(GOOD)])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("count", "C.", {"type": "object"}, run))
        assert (await soon(agent.ask("Which city?", output=City))).name == "Paris"


async def test_a_json_schema_gives_a_checked_value() -> None:
    schema: Mapping[str, Any] = {
        "type": "array",
        "items": {"type": "integer", "minimum": 1},
        "minItems": 2,
    }
    adapter = ScriptedAdapter([text("[0]"), text("[1, 2]")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        assert await soon(agent.ask("Numbers?", output=schema)) == [1, 2]
        sent = str(adapter.requests[1].messages[-1])
        assert "at least 2 items" in sent
        assert "at least 1" in sent


async def test_answers_that_never_fit_raise_with_the_last_one() -> None:
    adapter = ScriptedAdapter([text("no"), text("no"), text("still no"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        with pytest.raises(OutputInvalid) as caught:
            await soon(agent.ask("Which city?", output=City))
        assert caught.value.code == "OUTPUT_INVALID"
        assert caught.value.outcome.text == "still no"
        assert caught.value.outcome.ok
        assert len(adapter.calls) == 3
        # nothing of the ask is left behind
        assert (await soon(agent.ask("plain"))).text == "ok"


async def test_retries_can_be_switched_off() -> None:
    adapter = ScriptedAdapter([text("no")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        with pytest.raises(OutputInvalid):
            await soon(agent.ask("Which city?", output=City, retries=0))
        assert len(adapter.calls) == 1


async def test_a_turn_that_fails_gives_no_answer() -> None:
    adapter = ScriptedAdapter([error("busy"), max_tokens('{"name"'), max_tokens(GOOD)])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        with pytest.raises(TurnFailed, match="busy"):
            await soon(agent.ask("Which city?", output=City))
        # cut off, but complete as far as it goes
        assert (await soon(agent.ask("Which city?", output=City))).name == "Paris"


async def test_two_asks_in_one_turn_each_get_their_answer() -> None:
    adapter = ScriptedAdapter([text(GOOD)])
    results: list[object] = []
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:

        async def ask() -> None:
            results.append(await agent.ask("Which city?", output=City))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)
        assert results == [City(name="Paris", people=2100000)] * 2
        assert turn_numbers(agent.session.events) == [1]


async def test_cancelling_an_ask_cancels_its_turn() -> None:
    adapter = ScriptedAdapter([hang(), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        async with anyio.create_task_group() as group:
            group.start_soon(agent.ask, "x")
            await soon(adapter.waiting())
            group.cancel_scope.cancel()
        assert (await soon(agent.ask("y"))).text == "ok"
        reasons = turn_reasons(agent.session.events)
        assert reasons == [Aborted("the caller stopped waiting"), Completed()]


async def test_a_prompt_that_waits_is_taken_back_and_the_running_turn_goes_on() -> None:
    gate = Gate()
    adapter = ScriptedAdapter([hold(gate, text("first")), text("third")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        first = agent.send("first")
        await soon(adapter.waiting())
        async with anyio.create_task_group() as group:
            group.start_soon(agent.ask, "second")
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        async with agent.run("left at once"):
            pass
        third, fourth = agent.send("third"), agent.send("fourth")
        steered = agent.steer("never mind")
        assert steered.withdraw()
        assert fourth.withdraw("no need")
        assert not fourth.withdraw()
        gate.open()
        assert (await soon(first.done())).text == "first"
        assert not first.withdraw()
        assert (await soon(third.done())).text == "third"
        assert (await soon(fourth.done())).reason == Dropped("no need")
        assert user_texts(agent.session.events) == ["first", "third"]
        assert "steering/message" not in types_of(agent.session.events)
        lonely = agent.send("lonely")
        lonely.withdraw()
        await soon(agent.when_idle())
        assert user_texts(agent.session.events) == ["first", "third"]
        agent.send("gone").withdraw()
        agent.cancel("all of it")
        await soon(agent.when_idle())


async def test_a_run_yields_the_events_of_its_turn() -> None:
    gate = Gate()

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        await gate.pass_through()
        return "ran"

    adapter = ScriptedAdapter([tool_call("c1", "t"), text("done"), text("next")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        seen: list[SessionEvent] = []
        async with agent.run("go") as run_:
            async for event in run_:
                seen.append(event)
                if event.type == "tool/call":
                    gate.open()
            outcome = await soon(run_.done())
        assert outcome.text == "done"
        assert tuple(seen) == agent.session.events[:]
        agent.inject("between")
        async with agent.run("again") as run_:
            kinds = [event.type async for event in run_]
        assert kinds[0] == "turn/start"
        assert kinds[-1] == "turn/end"


async def test_a_run_that_is_dropped_yields_nothing() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        async with agent.run("go") as run:
            agent.cancel("no")
            assert [event async for event in run] == []
        assert len(agent.session.events) == 0


# case: F-13
@pytest.mark.parametrize("oracle", ["basic"], indirect=True)  # each rebuilds the whole log
async def test_leaving_a_run_inside_a_tool_stops_it_a_thousand_times() -> None:
    ended = 0

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        nonlocal ended
        assert execution.signal is not None
        await execution.signal.wait()
        ended += 1
        return "stopped"

    count = 1000
    adapter = ScriptedAdapter(lambda request: tool_call("c", "t"), checkpoints=False)
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        before = len(agent.ctx.owner.effects)
        for _ in range(count):
            async with agent.run("go") as live:
                async for event in live:
                    if event.type == "tool/call":
                        break
            assert agent.status == "idle"
        assert ended == count
        assert [call.outcome for call in adapter.calls] == ["completed"] * count
        assert len(agent.ctx.owner.effects) == before
        assert len(turn_reasons(agent.session.events)) == count
        assert_balanced(agent.session.events)
        assert_paired(agent.session.derive_messages())


# case: F-13
async def test_leaving_a_run_mid_stream_closes_the_stream_and_the_next_one_works() -> None:
    adapter = ScriptedAdapter([hang("visible"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        async with agent.run("go") as live:
            async for event in live:
                if event.type == "assistant/chunk":
                    break
        assert agent.status == "idle"
        assert await soon(adapter.calls[0].finished()) in ("aborted", "closed")
        assert isinstance(turn_reasons(agent.session.events)[0], Aborted)
        assert (await soon(agent.ask("again"))).text == "ok"


async def test_an_exception_in_the_body_of_a_run_cancels_it_and_goes_on() -> None:
    adapter = ScriptedAdapter([hang()])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:

        async def leave() -> None:
            async with agent.run("go"):
                await soon(adapter.waiting())
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await leave()
        assert agent.status == "idle"
        assert isinstance(agent.session.events[-1].data, TurnEnd)


async def test_a_run_needs_to_be_entered() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app:
        options = AgentOptions(model=MODEL)
        async with open_agent(app, options=options) as agent:
            with pytest.raises(RuntimeError):
                _ = agent.run("go").receipt
