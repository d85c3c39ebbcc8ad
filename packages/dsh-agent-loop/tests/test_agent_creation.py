"""The creation transaction: composed unseen, published at once, or rolled back whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from dsh.agent import (
    Agent,
    AgentFault,
    AgentHandle,
    AgentOptions,
    AgentRegistry,
    CreateAgent,
    ResumeAgent,
    open_agent,
)
from dsh.agent.events import AgentCreated, AgentEnded, AgentSessionStart, TurnContinuation
from dsh.agent.loopkit import Loop
from dsh.agent.testing import StubAgent
from dsh.agent_loop import AgentLoop
from dsh.agent_loop._agent import LoopAgent
from dsh.core import (
    App,
    Context,
    Emit,
    InactiveContextError,
    JsonObject,
    Mount,
    MountState,
    Plugin,
    ScopeError,
    inject,
    scope_of,
)
from dsh.llm import CancelSignal
from dsh.llm_replay import ScriptedAdapter, text
from dsh.llm_replay.server import Gate
from dsh.session import LiveSessions
from dsh.session.errors import LiveSessionError
from dsh.session.events import SessionCreated, SessionDisposed
from dsh.session.testing import worked_turn
from dsh.system_prompt import AssembleContext, SystemPrompt, render_prompt
from dsh.testkit import soon
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


async def run_a(arguments: JsonObject, execution: ToolExecution) -> str:
    return "ran"


def tool_named(name: str) -> Tool:
    return Tool(name, f"Tool {name}.", {"type": "object"}, run_a)


def owner_of(options: CreateAgent, ready: list[AgentHandle | Exception]) -> type[Plugin]:
    """Make a plugin that injects the registry alone and creates one agent in the background."""

    class Owner(Plugin):
        agents = inject(AgentRegistry)

        async def start(self) -> None:
            self.ctx.spawn(self.make)

        async def make(self) -> None:
            try:
                ready.append(await self.agents.create(self.ctx, options))
            except Exception as error:
                ready.append(error)

    return Owner


def announcements(app: App) -> list[str]:
    """Take down every announcement, as outsiders hear it."""
    heard: list[str] = []

    def on(event: Emit) -> None:
        heard.append(event.event_name)

    for kind in (SessionCreated, AgentCreated, AgentSessionStart, AgentEnded, SessionDisposed):
        app.ctx.on(kind, on)
    return heard


# case: G-01
async def test_the_registry_delegates_to_one_factory() -> None:
    async with App() as app:
        await app.mount(AgentRegistry).settled()
        registry = app[AgentRegistry]
        for attempt in (
            lambda: registry.create(app.ctx),
            lambda: registry.resume(app.ctx, ResumeAgent("x")),
        ):
            with pytest.raises(AgentFault, match="agent loop") as caught:
                await attempt()
            assert caught.value.code == "NO_AGENT_FACTORY"
    async with loop_app(AgentLoop) as app:
        registry = app[AgentRegistry]
        with pytest.raises(AgentFault) as caught:
            registry.set_factory(app.ctx, app[Loop])
        assert caught.value.code == "AGENT_FACTORY_EXISTS"
        await (await registry.create(app.ctx)).dispose()
        loop = app[Loop]
        await loop.ctx.owner.dispose()
        with pytest.raises(AgentFault):
            await registry.create(app.ctx)
        registry.set_factory(app.ctx, loop)


# case: G-02
# case: AG-01
async def test_nothing_is_visible_before_setup_is_done_and_then_everything_in_order() -> None:
    gate = Gate()
    order: list[str] = []
    async with loop_app(AgentLoop) as app:
        agents, sessions = app[AgentRegistry], app[LiveSessions]

        def hear(name: str) -> Callable[[Any], None]:
            def listen(event: Any) -> None:
                order.append(name)
                assert agents.get("a") is not None
                assert sessions.get("s") is not None

            return listen

        app.ctx.on(SessionCreated, hear("global session/created"))
        app.ctx.on(AgentCreated, hear("global agent/created"))
        app.ctx.on(AgentSessionStart, hear("global agent/session-start"))

        async def setup(ctx: Context) -> Callable[[], None]:
            order.append("setup:start")
            ctx.on(SessionCreated, hear("scoped session/created"))
            ctx.on(AgentCreated, hear("scoped agent/created"))
            await gate.pass_through()
            order.append("setup:end")
            return lambda: order.append("commit")

        seed = list(worked_turn())
        extra: dict[str, Any] = {"depth": 1}
        options = CreateAgent("a", "s", seed=seed, options=AgentOptions(extra=extra), setup=setup)
        made: list[AgentHandle] = []

        async def make() -> None:
            made.append(await agents.create(app.ctx, options))

        async with anyio.create_task_group() as group:
            group.start_soon(make)
            await soon(gate.reached())
            assert agents.get("a") is None
            assert sessions.get("s") is None
            assert agents.list() == ()
            assert sessions.list() == ()
            seed.clear()
            extra["depth"] = 99
            gate.open()
        assert order == [
            "setup:start",
            "setup:end",
            "commit",
            "global session/created",
            "scoped session/created",
            "global agent/created",
            "scoped agent/created",
            "global agent/session-start",
        ]
        agent = made[0].agent
        assert agent.options.extra["depth"] == 1
        assert len(agent.session.events) == len(worked_turn())
        await made[0].dispose()


# case: G-03
# case: AG-05
async def test_ids_are_reserved_while_a_creation_is_pending() -> None:
    gate = Gate()

    async def setup(ctx: Context) -> None:
        await gate.pass_through()

    async with loop_app(AgentLoop) as app:
        agents = app[AgentRegistry]

        async def make() -> None:
            handle = await agents.create(app.ctx, CreateAgent("a", "s", setup=setup))
            await handle.dispose()

        async with anyio.create_task_group() as group:
            group.start_soon(make)
            await soon(gate.reached())
            with pytest.raises(AgentFault) as caught:
                await agents.create(app.ctx, CreateAgent("a", "other"))
            assert caught.value.code == "AGENT_EXISTS"
            with pytest.raises(LiveSessionError) as refused:
                await agents.create(app.ctx, CreateAgent("other", "s"))
            assert refused.value.code == "SESSION_ALREADY_EXISTS"
            assert agents.list() == ()
            gate.open()
        async with await agents.create(app.ctx, CreateAgent("a", "s")):
            assert [agent.id for agent in agents.list()] == ["a"]


# case: AG-05
async def test_of_two_that_reach_publication_one_wins_and_the_loser_is_cleaned() -> None:
    gate = Gate()
    cleaned: list[str] = []

    async def setup(ctx: Context) -> None:
        ctx.defer(lambda: cleaned.append("loser"))
        await gate.pass_through()

    async with loop_app(AgentLoop) as app:
        agents = app[AgentRegistry]
        errors: list[AgentFault] = []
        rival = StubAgent("a")

        async def make() -> None:
            try:
                await agents.create(app.ctx, CreateAgent("a", "s", setup=setup))
            except AgentFault as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(make)
            await soon(gate.reached())

            # somebody enters an agent of the same id by hand, past the reservations
            agents.enter(app.ctx, rival)
            gate.open()
        assert [error.code for error in errors] == ["AGENT_EXISTS"]
        assert cleaned == ["loser"]
        assert app[LiveSessions].get("s") is None
        assert agents.get("a") is rival


# case: G-04
async def test_setup_cannot_drive_and_a_session_has_one_driver() -> None:
    refused: list[str] = []

    async def setup(ctx: Context) -> None:
        agent = scope_of(ctx)
        assert isinstance(agent, Agent)
        for name in ("send", "steer", "inject"):
            with pytest.raises(AgentFault, match="before creation setup completes") as caught:
                getattr(agent, name)("x")
            assert name in str(caught.value)
            refused.append(caught.value.code)
        with pytest.raises(AgentFault, match=r"cancel\(\) of agent"):
            agent.cancel()
        assert isinstance(agent, LoopAgent)
        with pytest.raises(AgentFault, match="already has a driver") as caught:
            LoopAgent(agent.loop, "twin", agent.session, AgentOptions())
        assert caught.value.code == "SESSION_CLAIMED"
        assert len(agent.session.events) == 0

    async with loop_app(AgentLoop) as app, open_agent(app, setup=setup) as agent:
        assert refused == ["AGENT_IN_SETUP"] * 3
        assert len(agent.session.events) == 0


# case: G-05
# case: AG-02
@pytest.mark.parametrize("who", ["owner", "factory", "signal"])
async def test_giving_up_during_setup_publishes_nothing(who: str) -> None:
    gate = Gate()
    signal = CancelSignal()
    cleaned: list[str] = []

    async def setup(ctx: Context) -> None:
        ctx.defer(lambda: cleaned.append("scope"))
        await gate.pass_through()

    async with loop_app(AgentLoop) as app:
        heard = announcements(app)
        results: list[AgentHandle | Exception] = []
        mount = app.mount(owner_of(CreateAgent("a", "s", setup=setup, signal=signal), results))
        await soon(gate.reached())
        match who:
            case "owner":
                await soon(mount.dispose())
            case "factory":
                await soon(app[Loop].ctx.owner.restart())
            case _:
                signal.abort("enough")
        await anyio.wait_all_tasks_blocked()
        if who != "owner":
            # an owner that goes takes the task with it that waited for the agent
            (error,) = results
            assert isinstance(error, AgentFault)
            assert error.code == "AGENT_CREATE_ABORTED"
        assert heard == []
        assert cleaned == ["scope"]
        gate.open()
        async with await app[AgentRegistry].create(app.ctx, CreateAgent("a", "s")):
            pass


# case: G-05
async def test_an_owner_that_leaves_in_the_tick_setup_ends_gets_nothing() -> None:
    async with loop_app(AgentLoop) as app:
        heard = announcements(app)
        mounts: list[Mount] = []
        caught: list[str] = []

        async def setup(ctx: Context) -> None:
            mounts[0].request_dispose()

        async def hold(ctx: Context, config: object) -> None:
            return None

        mounts.append(app.mount(hold))
        await mounts[0].settled()
        with pytest.raises(AgentFault) as error:
            await app[AgentRegistry].create(mounts[0].ctx, CreateAgent("a", setup=setup))
        caught.append(error.value.code)
        assert caught == ["AGENT_CREATE_ABORTED"]
        assert heard == []
        await soon(mounts[0].wait_state(MountState.DISPOSED))


# case: G-06
# case: AG-02
async def test_a_raising_setup_leaves_nothing_behind() -> None:
    cleaned: list[str] = []

    async def setup(ctx: Context) -> None:
        ctx.defer(lambda: cleaned.append("scope"))
        raise ValueError("cannot compose")

    async with loop_app(AgentLoop) as app:
        heard = announcements(app)
        with pytest.raises(ValueError, match="cannot compose"):
            await app[AgentRegistry].create(app.ctx, CreateAgent("a", "s", setup=setup))
        assert heard == []
        assert cleaned == ["scope"]
        async with await app[AgentRegistry].create(app.ctx, CreateAgent("a", "s")):
            pass


# case: G-06
# case: AG-03
@pytest.mark.parametrize(
    ("veto", "expected"),
    [
        (SessionCreated, ["session/created", "session/disposed"]),
        (
            AgentCreated,
            ["session/created", "agent/created", "agent/disposed", "session/disposed"],
        ),
    ],
)
async def test_a_veto_rolls_back_and_pairs_what_was_announced(
    veto: type, expected: list[str]
) -> None:
    def refuse(event: Any) -> None:
        raise ValueError("not this one")

    async with loop_app(AgentLoop) as app:
        heard = announcements(app)
        listener = app.ctx.on(veto, refuse)
        with pytest.raises(ValueError, match="not this one"):
            await app[AgentRegistry].create(app.ctx, CreateAgent("a", "s"))
        assert heard == expected
        assert app[AgentRegistry].list() == ()
        assert app[LiveSessions].list() == ()
        listener.dispose_nowait()
        async with await app[AgentRegistry].create(app.ctx, CreateAgent("a", "s")):
            pass


# case: G-07
async def test_a_live_id_is_refused_before_a_session_exists() -> None:
    async with loop_app(AgentLoop) as app, open_agent(app, agent_id="a"):
        with pytest.raises(AgentFault) as caught:
            await app[AgentRegistry].create(app.ctx, CreateAgent("a", "s"))
        assert caught.value.code == "AGENT_EXISTS"
        assert "'a'" in str(caught.value)
        assert app[LiveSessions].get("s") is None


# case: G-08
# case: AG-08
async def test_what_an_agent_has_of_its_own_stays_with_it() -> None:
    heard: list[str] = []

    async def setup(ctx: Context) -> None:
        ctx[SystemPrompt].section(ctx, "deployment:persona", 0, "I am special.")
        ctx[ToolRegistry].register(ctx, tool_named("special"))

        async def note(event: TurnContinuation, next: Any) -> Any:
            heard.append(event.agent.id)
            return await next()

        ctx.on(TurnContinuation, note)

    adapter = ScriptedAdapter([text("1"), text("2"), text("3")])
    async with loop_app(AgentLoop, adapter) as app:
        app[ToolRegistry].register(app.ctx, tool_named("common"))
        async with open_agent(app, model=MODEL, agent_id="plain") as plain:
            async with open_agent(app, model=MODEL, agent_id="own", setup=setup) as own:
                await soon(own.ask("a"))
                await soon(plain.ask("a"))
            first, second = adapter.requests
            assert [t.name for t in first.tools or ()] == ["common", "special"]
            assert "I am special." in (first.system or "")
            assert [t.name for t in second.tools or ()] == ["common"]
            assert "I am special." not in (second.system or "")
            assert heard == ["own"]
            assert [t.name for t in app[ToolRegistry].visible(own)] == ["common"]
            prompt = await app[SystemPrompt].assemble(AssembleContext(scope=own))
            assert "special" not in render_prompt(prompt)


# case: G-09
async def test_a_start_is_announced_once_with_its_source_and_may_be_driven() -> None:
    sources: list[str] = []

    def start(event: AgentSessionStart) -> None:
        sources.append(event.source)
        event.agent.send("from the start")
        raise ValueError("contained")

    async with loop_app(AgentLoop, ScriptedAdapter([text("1"), text("2")])) as app:
        app.ctx.on(AgentSessionStart, start)
        for seed in ((), worked_turn()):
            options = CreateAgent(seed=seed, options=AgentOptions(model=MODEL))
            async with await app[AgentRegistry].create(app.ctx, options) as agent:
                await soon(agent.when_idle())
                assert agent.session.last_turn == (2 if seed else 1)
        assert sources == ["startup", "startup"]


# case: G-16
async def test_scopes_are_mounted_by_key_and_nearest_wins() -> None:
    async with loop_app(AgentLoop) as app, open_agent(app) as agent:
        with pytest.raises(ScopeError):
            app.ctx.scope("text")
        inner_key = type("Key", (), {})()
        async with agent.ctx.scope(inner_key) as inner:
            assert scope_of(agent.ctx) is agent
            assert scope_of(inner.ctx) is inner_key
        heard: list[str] = []
        agent.ctx.on(AgentCreated, lambda event: heard.append("all"), audience="all")
        agent.ctx.on(AgentCreated, lambda event: heard.append("scoped"))
        async with open_agent(app):
            pass
        assert heard == ["all"]


# case: AG-04
async def test_a_listener_that_disposes_the_owner_lets_the_others_see_a_live_agent() -> None:
    async with loop_app(AgentLoop) as app:
        heard = announcements(app)
        seen: list[bool] = []

        async def hold(ctx: Context, config: object) -> None:
            return None

        mount = app.mount(hold)
        await mount.settled()

        def dispose(event: AgentCreated) -> None:
            mount.request_dispose()

        def look(event: AgentCreated) -> None:
            seen.append(app[AgentRegistry].get("a") is event.agent)
            seen.append(app[LiveSessions].get("s") is event.agent.session)
            seen.append(event.agent.ctx.owner.state is MountState.ACTIVE)

        app.ctx.on(AgentCreated, dispose)
        app.ctx.on(AgentCreated, look)
        order: list[str] = []

        async def setup(ctx: Context) -> None:
            ctx.defer(lambda: order.append("scope"))

        app.ctx.on(AgentEnded, lambda event: order.append("agent"))
        app.ctx.on(SessionDisposed, lambda event: order.append("session"))
        with pytest.raises(AgentFault) as caught:
            await app[AgentRegistry].create(mount.ctx, CreateAgent("a", "s", setup=setup))
        assert caught.value.code == "AGENT_CREATE_ABORTED"
        assert seen == [True, True, True]
        assert order == ["scope", "agent", "session"]
        assert heard == [
            "session/created",
            "agent/created",
            "agent/disposed",
            "session/disposed",
        ]


# case: AG-06
async def test_the_id_is_held_until_the_scope_is_quiet() -> None:
    gate = Gate()

    async def setup(ctx: Context) -> None:
        ctx.defer(gate.pass_through)

    async with loop_app(AgentLoop) as app:
        agents = app[AgentRegistry]
        handle = await agents.create(app.ctx, CreateAgent("a", setup=setup))
        async with anyio.create_task_group() as group:
            group.start_soon(handle.dispose)
            await soon(gate.reached())
            assert agents.get("a") is handle.agent
            with pytest.raises(AgentFault):
                await agents.create(app.ctx, CreateAgent("a"))
            gate.open()
        assert agents.get("a") is None
        async with await agents.create(app.ctx, CreateAgent("a")):
            pass


# case: AG-09
async def test_a_disposed_context_takes_no_registration() -> None:
    async with loop_app(AgentLoop) as app:
        async with open_agent(app) as agent:
            pass
        with pytest.raises(InactiveContextError):
            app[ToolRegistry].register(agent.ctx, tool_named("late"))


# case: AG-10
async def test_setup_uses_the_services_of_the_loop_not_of_the_caller() -> None:
    async def setup(ctx: Context) -> None:
        ctx[ToolRegistry].register(ctx, tool_named("given"))
        ctx[SystemPrompt].section(ctx, "own", 1, "mine")

    async with loop_app(AgentLoop) as app:
        results: list[AgentHandle | Exception] = []
        mount = app.mount(owner_of(CreateAgent("a", setup=setup), results))
        await mount.settled()
        await anyio.wait_all_tasks_blocked()
        (handle,) = results
        assert isinstance(handle, AgentHandle)
        assert app[ToolRegistry].get("given", handle.agent) is not None
        assert app[ToolRegistry].get("given") is None


async def test_an_agent_made_through_another_is_its_child_and_goes_with_it() -> None:
    async with loop_app(AgentLoop) as app:
        agents = app[AgentRegistry]
        parent = await agents.create(app.ctx, CreateAgent("parent"))
        child = await agents.create(parent.agent.ctx, CreateAgent("child"))
        assert [a.id for a in agents.roots()] == ["parent"]
        assert agents.parent_of(child.agent) is parent.agent
        await soon(parent.dispose())
        assert child.agent.status == "disposed"
        assert agents.list() == ()
        with pytest.raises(AgentFault) as caught:
            await agents.create(parent.agent.ctx, CreateAgent("late"))
        assert caught.value.code == "AGENT_CREATE_ABORTED"


# case: U-11
async def test_an_aborted_signal_refuses_the_creation_before_anything_happens() -> None:
    signal = CancelSignal()
    signal.abort("changed my mind")
    calls: list[str] = []

    async def setup(ctx: Context) -> None:
        calls.append("setup")

    async with loop_app(AgentLoop) as app:
        with pytest.raises(AgentFault, match="changed my mind") as caught:
            await app[AgentRegistry].create(app.ctx, CreateAgent("a", setup=setup, signal=signal))
        assert caught.value.code == "AGENT_CREATE_ABORTED"
        assert calls == []


async def test_what_is_said_about_the_session_is_kept_in_its_header() -> None:
    options = CreateAgent(
        session_id="s",
        cwd="/here",
        parent_session="p",
        seed_length=0,
        origin="subagent",
        delegation_depth=2,
        agent_preset="reviewer",
    )
    async with (
        loop_app(AgentLoop) as app,
        await app[AgentRegistry].create(app.ctx, options) as agent,
    ):
        header = agent.session.header
        assert (header.id, header.cwd, header.parent_session) == ("s", "/here", "p")
        assert (header.origin, header.delegation_depth) == ("subagent", 2)
        assert (header.agent_preset, header.seed_length) == ("reviewer", 0)
        assert agent.id != agent.session.id


async def test_the_creation_signal_is_of_no_use_afterwards() -> None:
    signal = CancelSignal()
    async with (
        loop_app(AgentLoop) as app,
        await app[AgentRegistry].create(app.ctx, CreateAgent(signal=signal)) as agent,
    ):
        signal.abort("too late")
        assert agent.status == "idle"
