"""Disposing an agent at every moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from dsh.agent import (
    Agent,
    AgentDisposed,
    AgentHandle,
    AgentOptions,
    AgentRegistry,
    CreateAgent,
    open_agent,
)
from dsh.agent.events import AgentEnded, AgentError, AgentStatusChanged, PreStep, SessionPrefix
from dsh.agent.loopkit import Loop
from dsh.agent_loop import AgentLoop
from dsh.core import (
    App,
    InactiveContextError,
    JsonObject,
    LifecycleDeadlock,
    Mount,
    Next,
    Plugin,
    inject,
)
from dsh.llm import Message, TextBlock, TokenUsage, UsageChunk
from dsh.llm_replay import ScriptedAdapter, hang, text, tool_call
from dsh.llm_replay.server import Gate
from dsh.session import AssistantMessage, Disposed, LiveSessions, StepStart, TurnEnd
from dsh.session.events import SessionDisposed, SessionEventAppended, SessionFlush
from dsh.session.testing import assert_balanced, types_of
from dsh.system_prompt import PromptAssembly, SystemPrompt, SystemPromptAssemble
from dsh.testkit import assert_paired, soon, status_trace, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


class Owner(Plugin):
    """Owns one agent."""

    agents = inject(AgentRegistry)

    async def start(self) -> None:
        options = CreateAgent(agent_id="owned", options=AgentOptions(model=MODEL))
        self.handle = await self.agents.create(self.ctx, options)


async def owned(app: App) -> tuple[Mount, AgentHandle, Agent]:
    mount = app.mount(Owner)
    await mount.settled()
    owner = mount.instance
    assert isinstance(owner, Owner)
    return mount, owner.handle, owner.handle.agent


# case: D-01
async def test_disposing_a_hanging_stream() -> None:
    adapter = ScriptedAdapter([hang("")])
    async with loop_app(AgentLoop, adapter) as app:
        mount, _, agent = await owned(app)
        trace = status_trace(app.ctx, agent)
        errors: list[AgentError] = []
        app.ctx.on(AgentError, errors.append)
        agent.send("a")
        await soon(adapter.waiting())
        await soon(mount.dispose())
        assert trace.statuses == ["running", "disposed"]
        trace.check()
        assert turn_reasons(agent.session.events) == [Disposed()]
        assert_balanced(agent.session.events)
        assert errors == []


# case: D-02
@pytest.mark.parametrize("where", ["assembly", "prefix", "pre-step"])
async def test_disposing_while_a_step_is_being_prepared(where: str) -> None:
    gate = Gate()

    async def assembly(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
        await gate.pass_through()
        return await next()

    async def prefix(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
        await gate.pass_through()
        return await next()

    async def pre_step(event: PreStep) -> None:
        await gate.pass_through()

    adapter = ScriptedAdapter()
    async with loop_app(AgentLoop, adapter) as app:
        match where:
            case "assembly":
                app.ctx.on(SystemPromptAssemble, assembly)
            case "prefix":
                app.ctx.on(SessionPrefix, prefix)
            case _:
                app.ctx.on(PreStep, pre_step)
        mount, _, agent = await owned(app)
        agent.send("a")
        await soon(gate.reached())
        mount.request_dispose()
        await anyio.wait_all_tasks_blocked()
        gate.open()
        await soon(mount.dispose())
        assert types_of(agent.session.events) == ["turn/start", "user/message", "turn/end"]
        assert turn_reasons(agent.session.events) == [Disposed()]
        assert not adapter.calls


# case: D-03
async def test_disposing_in_a_step_start_listener() -> None:
    adapter = ScriptedAdapter()
    async with loop_app(AgentLoop, adapter) as app:
        mount, _, agent = await owned(app)

        def request(event: SessionEventAppended) -> None:
            if isinstance(event.event.data, StepStart):
                mount.request_dispose()

        app.ctx.on(SessionEventAppended, request)
        agent.send("a")
        await soon(mount.wait_state(mount.state.DISPOSED))
        assert turn_reasons(agent.session.events) == [Disposed()]
        assert_balanced(agent.session.events)


# case: D-04
async def test_a_pre_step_listener_that_disposes_and_raises() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app:
        mount, _, agent = await owned(app)
        errors: list[AgentError] = []
        app.ctx.on(AgentError, errors.append)

        async def break_off(event: PreStep) -> None:
            mount.request_dispose()
            await anyio.wait_all_tasks_blocked()
            raise ValueError("gone")

        app.ctx.on(PreStep, break_off)
        agent.send("a")
        await soon(mount.wait_state(mount.state.DISPOSED))
        assert turn_reasons(agent.session.events) == [Disposed()]
        assert errors == []


# case: D-05
async def test_a_disposed_agent_refuses_everything() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app:
        _, handle, agent = await owned(app)
        await soon(handle.dispose())
        await soon(handle.dispose())
        for verb in (agent.send, agent.steer, agent.inject):
            with pytest.raises(AgentDisposed, match="disposed"):
                verb("x")
        agent.cancel()
        assert agent.status == "disposed"
        with pytest.raises(InactiveContextError):
            app[SystemPrompt].section(agent.ctx, "x", 1, "y")


# case: D-05
async def test_a_queued_prompt_of_a_disposed_agent_says_so() -> None:
    adapter = ScriptedAdapter([hang()])
    async with loop_app(AgentLoop, adapter) as app:
        _, handle, agent = await owned(app)
        running = agent.send("a")
        await soon(adapter.waiting())
        queued = agent.send("b")
        await soon(handle.dispose())
        assert (await soon(running.done())).reason == Disposed()
        with pytest.raises(AgentDisposed):
            await queued.done()


# case: D-06
@pytest.mark.parametrize("way", ["handle", "owner"])
async def test_waiters_are_released_after_the_driver_has_exited(way: str) -> None:
    gate = Gate()

    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is not None:
            return
        await gate.pass_through()

    adapter = ScriptedAdapter([hang()])
    async with loop_app(AgentLoop, adapter) as app:
        app.ctx.on(SessionFlush, flush)
        mount, handle, agent = await owned(app)
        order: list[str] = []

        async def wait(name: str) -> None:
            await agent.when_idle()
            order.append(name)
            assert types_of(agent.session.events)[-1] == "turn/end"

        async with anyio.create_task_group() as group:
            agent.send("a")
            await soon(adapter.waiting())
            group.start_soon(wait, "early")
            await anyio.wait_all_tasks_blocked()
            group.start_soon(handle.dispose if way == "handle" else mount.dispose)
            await soon(gate.reached())
            group.start_soon(wait, "late")
            await anyio.wait_all_tasks_blocked()
            assert order == []
            gate.open()
        assert sorted(order) == ["early", "late"]
        await soon(agent.when_idle())


# case: D-07
async def test_the_order_of_an_end() -> None:
    adapter = ScriptedAdapter([hang("")])
    async with loop_app(AgentLoop, adapter) as app:
        mount, _, agent = await owned(app)
        order: list[str] = []
        agents, sessions = app[AgentRegistry], app[LiveSessions]

        def ended(event: SessionEventAppended) -> None:
            if isinstance(event.event.data, TurnEnd):
                order.append("turn/end")

        def gone(event: AgentEnded) -> None:
            assert agents.get("owned") is None
            assert sessions.get(agent.session.id) is agent.session
            order.append("agent/disposed")

        def scoped_status(event: AgentStatusChanged) -> None:
            order.append(f"scoped status {event.status}")

        app.ctx.on(SessionEventAppended, ended)
        app.ctx.on(AgentEnded, gone)
        app.ctx.on(SessionDisposed, lambda event: order.append("session/disposed"))
        agent.ctx.on(AgentEnded, lambda event: order.append("scoped agent/disposed"))
        agent.send("a")
        await soon(adapter.waiting())
        agent.ctx.on(AgentStatusChanged, scoped_status)
        agent.ctx.defer(lambda: order.append("scope"))
        await soon(mount.dispose())
        assert order == [
            "scoped status disposed",
            "turn/end",
            "scope",
            "agent/disposed",
            "session/disposed",
        ]
        assert sessions.get(agent.session.id) is None


# case: D-08
# case: AG-07
async def test_all_who_dispose_wait_for_the_same_end() -> None:
    gate = Gate()

    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is not None:
            return
        await gate.pass_through()

    adapter = ScriptedAdapter([hang()])
    async with loop_app(AgentLoop, adapter) as app:
        app.ctx.on(SessionFlush, flush)
        mount, handle, agent = await owned(app)
        done: list[str] = []

        async def run(name: str, dispose: Callable[[], Awaitable[None]]) -> None:
            await dispose()
            done.append(name)

        agent.send("a")
        await soon(adapter.waiting())
        mount.request_dispose()
        await soon(gate.reached())
        async with anyio.create_task_group() as group:
            for name in ("one", "two"):
                group.start_soon(run, name, handle.dispose)
            group.start_soon(run, "owner", mount.dispose)
            await anyio.wait_all_tasks_blocked()
            assert done == []
            gate.open()
        assert sorted(done) == ["one", "owner", "two"]
        labels = [effect.label for effect in app.root.effects]
        assert not [label for label in labels if "owned" in label]


# case: AG-07
async def test_the_handle_leaves_no_effect_behind() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app:
        loop = app[Loop].ctx.owner
        before = [effect.label for effect in (*app.root.effects, *loop.effects)]
        async with open_agent(app, agent_id="short"):
            pass
        assert [effect.label for effect in (*app.root.effects, *loop.effects)] == before


# case: D-09
async def test_a_raising_status_listener_does_not_stop_the_end() -> None:
    def broken(event: AgentStatusChanged) -> None:
        raise ValueError("no")

    async with loop_app(AgentLoop, ScriptedAdapter()) as app:
        app.ctx.on(AgentStatusChanged, broken)
        mount, _, agent = await owned(app)
        await soon(mount.dispose())
        assert app[AgentRegistry].list() == ()
        assert agent.status == "disposed"


async def test_disposing_from_the_agents_own_turn_is_refused() -> None:
    async with loop_app(
        AgentLoop, ScriptedAdapter([tool_call("c1", "suicide"), text("alive")])
    ) as app:
        _, handle, agent = await owned(app)

        async def run(arguments: JsonObject, execution: ToolExecution) -> str:
            with pytest.raises(LifecycleDeadlock):
                await handle.dispose()
            with pytest.raises(LifecycleDeadlock):
                await agent.when_idle()
            return "refused"

        app[ToolRegistry].register(app.ctx, Tool("suicide", "X.", {"type": "object"}, run))
        assert (await soon(agent.ask("a"))).text == "alive"


async def test_a_turn_that_waits_for_a_prompt_of_its_own_is_refused() -> None:
    script = [tool_call("c1", "ponder"), text("first"), text("asked from a task of its own")]
    async with loop_app(AgentLoop, ScriptedAdapter(script)) as app:
        _, _, agent = await owned(app)
        later: list[str] = []
        answered = anyio.Event()

        async def ask_later() -> None:
            later.append((await agent.ask("later")).text)
            answered.set()

        async def run(arguments: JsonObject, execution: ToolExecution) -> str:
            with pytest.raises(LifecycleDeadlock, match="can send"):
                await agent.ask("what do I think?")
            with pytest.raises(LifecycleDeadlock, match="can send"):
                await agent.ask("what do I think?", output=int)
            with pytest.raises(LifecycleDeadlock, match="can send"):
                agent.run("what do I think?")
            receipt = agent.send("what do I think?")
            with pytest.raises(LifecycleDeadlock, match="can send"):
                await receipt.done()
            assert receipt.withdraw()
            # it is in no turn, so nothing waits for itself
            app.ctx.spawn(ask_later)
            return "refused"

        app[ToolRegistry].register(app.ctx, Tool("ponder", "X.", {"type": "object"}, run))
        assert (await soon(agent.ask("a"))).text == "first"
        await soon(answered.wait())
        assert later == ["asked from a task of its own"]


async def test_disposal_from_a_running_listener_opens_no_turn() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter()) as app:
        mount, _, agent = await owned(app)

        def dispose(event: AgentStatusChanged) -> None:
            if event.status == "running":
                mount.request_dispose()

        app.ctx.on(AgentStatusChanged, dispose)
        trace = status_trace(app.ctx, agent)
        receipt = agent.send("a")
        await soon(mount.wait_state(mount.state.DISPOSED))
        assert len(agent.session.events) == 0
        # everybody hears of one status before anybody hears of the next
        assert trace.statuses == ["running", "disposed"]
        with pytest.raises(AgentDisposed):
            await soon(receipt.done())


async def test_unloading_the_loop_takes_every_agent_along() -> None:
    adapter = ScriptedAdapter([hang("visible")])
    async with (
        loop_app(AgentLoop, adapter) as app,
        open_agent(app, model=MODEL) as one,
        open_agent(app, model=MODEL) as two,
    ):
        one.send("a")
        await soon(adapter.waiting())
        await soon(app[Loop].ctx.owner.dispose())
        assert one.status == two.status == "disposed"
        assert app[AgentRegistry].list() == ()
        assert app[LiveSessions].list() == ()
        assert turn_reasons(one.session.events) == [Disposed()]
        kept = [e.data for e in one.session.events if isinstance(e.data, AssistantMessage)]
        assert [(m.content, m.interrupted) for m in kept] == [((TextBlock("visible"),), True)]
        assert_paired(one.session.derive_messages())


async def test_what_a_broken_off_answer_cost_is_kept_with_it() -> None:
    usage = TokenUsage(3, 4)
    broken_off = hang("visible")
    adapter = ScriptedAdapter([replace(broken_off, chunks=(*broken_off.chunks, UsageChunk(usage)))])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        receipt = agent.send("a")
        await soon(adapter.waiting())
        agent.cancel("stop")
        await soon(receipt.done())
        kept = [e.data for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        assert [(m.usage, m.interrupted) for m in kept] == [(usage, True)]


async def test_a_tool_may_ask_for_the_end_of_its_own_agent() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter([tool_call("c1", "leave")])) as app:
        _, handle, agent = await owned(app)

        async def run(arguments: JsonObject, execution: ToolExecution) -> str:
            handle.request_dispose()
            return "bye"

        app[ToolRegistry].register(app.ctx, Tool("leave", "X.", {"type": "object"}, run))
        outcome = await soon(agent.ask("a", check=False))
        assert outcome.reason == Disposed()
        await soon(handle.dispose())
        assert_paired(agent.session.derive_messages())


async def test_cancelling_the_app_from_outside_closes_the_turn() -> None:
    adapter = ScriptedAdapter([hang("visible")])
    flushed: list[str] = []
    agents: list[Agent] = []

    async def flush(event: SessionFlush) -> None:
        await anyio.lowlevel.checkpoint()
        flushed.append(types_of(event.session.events)[-1])

    async def run() -> None:
        async with loop_app(AgentLoop, adapter) as app:
            app.ctx.on(SessionFlush, flush)
            async with open_agent(app, model=MODEL) as agent:
                agents.append(agent)
                await agent.ask("a")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await soon(adapter.waiting())
        group.cancel_scope.cancel()
    events = agents[0].session.events
    assert_balanced(events)
    assert flushed == ["request/header", "turn/end"]
    assert len(turn_reasons(events)) == 1
