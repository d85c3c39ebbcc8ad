"""Cancelling at every moment of a turn."""

from __future__ import annotations

import anyio

from dsh.agent import (
    ContinuationDecision,
    Continue,
    Dropped,
    PromptDecision,
    Stop,
    open_agent,
)
from dsh.agent.events import (
    AgentStatusChanged,
    PreStep,
    PromptSubmit,
    SessionPrefix,
    TurnContinuation,
    TurnStop,
)
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next
from dsh.llm import Message, TextBlock
from dsh.llm_replay import ScriptedAdapter, hang, text, tool_call, tool_calls
from dsh.llm_replay.server import Gate
from dsh.session import Aborted, Completed, StepStart, TurnEnd, TurnStart
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import assert_balanced, types_of, user_texts
from dsh.system_prompt import PromptAssembly, SystemPromptAssemble
from dsh.testkit import assert_paired, soon, status_trace, turn_numbers, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


# case: C-01
async def test_cancelling_an_idle_agent_does_nothing() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        agent.cancel()
        assert (await soon(agent.ask("hi"))).ok


# case: C-02
async def test_cancelling_before_the_driver_wakes_leaves_no_trace() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        await anyio.wait_all_tasks_blocked()
        trace = status_trace(app.ctx, agent)
        receipt = agent.send("hi")
        agent.cancel("never mind")
        assert (await soon(receipt.done())).reason == Dropped("never mind")
        await anyio.wait_all_tasks_blocked()
        assert len(agent.session.events) == 0
        assert agent.status == "idle"
        assert trace.statuses == []


# case: C-03
async def test_a_waiter_is_released_by_a_cancel_that_leaves_nothing() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        released = anyio.Event()

        async def wait() -> None:
            await agent.when_idle()
            released.set()

        async with anyio.create_task_group() as group:
            await anyio.wait_all_tasks_blocked()
            agent.send("hi")
            group.start_soon(wait)
            # same tick: neither the waiter nor the driver has run yet
            agent.cancel()
            await soon(released.wait())


# case: C-04
async def test_a_waiter_waits_for_the_prompt_that_came_after_the_cancel() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("b")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        ends: list[int] = []

        async def wait() -> None:
            await agent.when_idle()
            ends.append(types_of(agent.session.events).count("turn/end"))

        async with anyio.create_task_group() as group:
            agent.send("A")
            group.start_soon(wait)
            agent.cancel()
            agent.send("B")
        assert ends == [1]
        assert user_texts(agent.session.events) == ["B"]


# case: C-05
async def test_a_running_listener_that_cancels_prevents_the_turn() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        trace = status_trace(app.ctx, agent)

        def cancel(event: AgentStatusChanged) -> None:
            if event.status == "running":
                agent.cancel()

        listener = app.ctx.on(AgentStatusChanged, cancel)
        agent.send("hi")
        await soon(agent.when_idle())
        assert len(agent.session.events) == 0
        assert trace.statuses == ["running", "idle"]
        listener.dispose_nowait()
        assert (await soon(agent.ask("again"))).ok


# case: C-06
async def test_a_running_listener_may_put_another_prompt_in_place() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("b")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        replaced = False

        def replace(event: AgentStatusChanged) -> None:
            nonlocal replaced
            if event.status == "running" and not replaced:
                replaced = True
                agent.cancel()
                agent.send("B")

        app.ctx.on(AgentStatusChanged, replace)
        agent.send("A")
        await soon(agent.when_idle())
        assert user_texts(agent.session.events) == ["B"]
        assert turn_reasons(agent.session.events) == [Completed()]


# case: C-07
async def test_a_hanging_stream_is_left_with_the_given_reason() -> None:
    adapter = ScriptedAdapter([hang(""), hang("")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        for reason, logged in (("stop it", "stop it"), (None, "cancelled")):
            receipt = agent.send("hi")
            await soon(adapter.waiting(len(turn_numbers(agent.session.events)) + 1))
            agent.cancel(reason)
            assert (await soon(receipt.done())).reason == Aborted(logged)
        assert_balanced(agent.session.events)


# case: C-08
async def test_a_prompt_after_a_cancelled_turn_completes() -> None:
    adapter = ScriptedAdapter([hang(), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        agent.send("a")
        await soon(adapter.waiting())
        agent.cancel("x")
        await soon(agent.when_idle())
        assert (await soon(agent.ask("b"))).ok
        assert turn_reasons(agent.session.events) == [Aborted("x"), Completed()]


# case: C-09
async def test_cancelling_at_turn_start_makes_no_step() -> None:
    def cancel(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, TurnStart):
            agent.cancel("early")

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionEventAppended, cancel)
        await soon(agent.ask("hi", check=False))
        assert types_of(agent.session.events, chunks=True) == [
            "turn/start",
            "user/message",
            "turn/end",
        ]
        assert turn_reasons(agent.session.events) == [Aborted("early")]


# case: C-10
async def test_cancelling_at_step_start_calls_no_adapter() -> None:
    def cancel(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, StepStart):
            agent.cancel("early")

    adapter = ScriptedAdapter()
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionEventAppended, cancel)
        await soon(agent.ask("hi", check=False))
        assert types_of(agent.session.events, chunks=True)[2:] == [
            "step/start",
            "step/end",
            "turn/end",
        ]
        assert turn_reasons(agent.session.events) == [Aborted("early")]
        assert not adapter.calls


# case: C-11
async def test_cancelling_while_assembly_or_pre_step_is_blocked() -> None:
    gate = Gate()

    async def block_assembly(
        event: SystemPromptAssemble, next: Next[PromptAssembly]
    ) -> PromptAssembly:
        await gate.pass_through()
        return await next()

    async def block_step(event: PreStep) -> None:
        await gate.pass_through()

    adapter = ScriptedAdapter()
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        for turn in (1, 2):
            gate = Gate()
            listener = (
                app.ctx.on(SystemPromptAssemble, block_assembly)
                if turn == 1
                else app.ctx.on(PreStep, block_step)
            )
            receipt = agent.send("hi")
            await soon(gate.reached())
            agent.cancel("blocked")
            gate.open()
            assert (await soon(receipt.done())).reason == Aborted("blocked")
            listener.dispose_nowait()
        assert "step/start" not in types_of(agent.session.events)
        assert not adapter.calls


async def test_listeners_before_a_step_hear_of_the_cancel_through_its_signal() -> None:
    asked: list[str] = []

    async def compose(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
        asked.append("prefix")
        await event.signal.wait()
        return await next()

    async def prepare(event: PreStep) -> None:
        asked.append("step")
        await event.signal.wait()

    adapter = ScriptedAdapter()
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        for start in (
            lambda: app.ctx.on(SessionPrefix, compose),
            lambda: app.ctx.on(PreStep, prepare),
        ):
            listener = start()
            receipt = agent.send("hi")
            await anyio.wait_all_tasks_blocked()
            agent.cancel("enough")
            assert (await soon(receipt.done())).reason == Aborted("enough")
            listener.dispose_nowait()
        assert asked == ["prefix", "step"]
        assert not adapter.calls


# case: C-12
async def test_a_prefix_composed_while_cancelling_is_composed_again() -> None:
    composed = 0

    async def contribute(
        event: SessionPrefix, next: Next[tuple[Message, ...]]
    ) -> tuple[Message, ...]:
        nonlocal composed
        composed += 1
        if composed == 1:
            event.agent.cancel()
        return (Message("user", (TextBlock(f"take {composed}"),)), *await next())

    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionPrefix, contribute)
        await soon(agent.ask("a", check=False))
        await soon(agent.ask("b"))
        assert composed == 2
        assert adapter.requests[0].messages[0].content == (TextBlock("take 2"),)
        header = agent.session.request_header()
        assert header is not None
        assert header.message_prefix == adapter.requests[0].messages[:1]


# case: C-13
async def test_cancelling_in_the_continuation_beats_a_vote_to_go_on() -> None:
    async def vote(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        event.agent.cancel("enough")
        return Continue()

    adapter = ScriptedAdapter([text("1")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(TurnContinuation, vote)
        await soon(agent.ask("a", check=False))
        assert types_of(agent.session.events).count("step/start") == 1
        assert turn_reasons(agent.session.events) == [Aborted("enough")]


# case: C-14
async def test_cancelling_discards_queued_steering() -> None:
    adapter = ScriptedAdapter([hang()])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        agent.send("a")
        await soon(adapter.waiting())
        steering = agent.steer("left")
        agent.cancel("x")
        assert (await soon(steering.done())).reason == Dropped("x")
        await soon(agent.when_idle())
        assert "steering/message" not in types_of(agent.session.events)
        assert turn_numbers(agent.session.events) == [1]
        assert user_texts(agent.session.events) == ["a"]


def aborting_tool(ran: list[str]) -> Tool:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        if execution.call_id == "c1":
            assert execution.signal is not None
            execution.signal.abort("the tool said so")
        return "ran"

    return Tool("a", "A.", {"type": "object"}, run)


# case: C-15
async def test_a_private_abort_of_the_step_skips_the_other_calls() -> None:
    ran: list[str] = []
    adapter = ScriptedAdapter([tool_calls([("c1", "a", "{}"), ("c2", "a", "{}")]), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, aborting_tool(ran))
        outcome = await soon(agent.ask("a", check=False))
        assert outcome.reason == Aborted("the tool said so")
        assert ran == ["c1"]
        assert len(adapter.calls) == 1
        assert_paired(agent.session.derive_messages())


# case: C-16
async def test_steering_survives_a_private_abort_and_gets_a_fresh_turn() -> None:
    ran: list[str] = []
    adapter = ScriptedAdapter([tool_call("c1", "a"), text("ok")])

    def steer(event: SessionEventAppended) -> None:
        if event.event.type == "tool/call":
            agent.steer("meanwhile")

    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, aborting_tool(ran))
        app.ctx.on(SessionEventAppended, steer)
        await soon(agent.ask("a", check=False))
        await soon(agent.when_idle())
        assert user_texts(agent.session.events) == ["a", "meanwhile"]
        assert turn_reasons(agent.session.events) == [Aborted("the tool said so"), Completed()]


# case: C-17
async def test_a_cancel_during_the_checkpoint_does_not_leak() -> None:
    flushes = 0

    async def flush(event: SessionFlush) -> None:
        nonlocal flushes
        if event.session.turn_open is not None:
            return
        flushes += 1
        if flushes == 1:
            agent.send("lost")
            agent.cancel()
            agent.send("second")

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionFlush, flush)
        agent.send("first")
        await soon(agent.when_idle())
        assert user_texts(agent.session.events) == ["first", "second"]
        assert turn_reasons(agent.session.events) == [Completed(), Completed()]


# case: C-18
async def test_cancelling_the_first_admission_admits_the_whole_batch_and_makes_no_step() -> None:
    async def cancel(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        event.agent.cancel("no more")
        return await next()

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, cancel)
        agent.send("a")
        await soon(agent.ask("b", check=False))
        assert types_of(agent.session.events) == [
            "turn/start",
            "user/message",
            "user/message",
            "turn/end",
        ]
        assert turn_reasons(agent.session.events) == [Aborted("no more")]


# case: C-19
async def test_cancelling_in_the_terminal_stop_drops_everything() -> None:
    async def stop(event: TurnStop) -> Stop | None:
        event.agent.steer("steered")
        event.agent.send("queued")
        event.agent.cancel("over")
        return Stop()

    adapter = ScriptedAdapter([text("1")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(TurnStop, stop)
        await soon(agent.ask("a", check=False))
        await soon(agent.when_idle())
        assert turn_reasons(agent.session.events) == [Aborted("over")]
        assert user_texts(agent.session.events) == ["a"]
        assert "steering/message" not in types_of(agent.session.events)


async def test_cancelling_in_a_turn_end_listener_changes_nothing() -> None:
    def cancel(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, TurnEnd):
            agent.cancel("too late")

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SessionEventAppended, cancel)
        assert (await soon(agent.ask("a"))).ok
        assert (await soon(agent.ask("b"))).ok
