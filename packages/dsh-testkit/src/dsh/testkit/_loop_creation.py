"""Loop contract: how an agent comes to be, and how a stored one goes on."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from dsh.agent import AgentOptions, AgentRegistry, CreateAgent, ResumeAgent, open_agent
from dsh.agent.events import AgentCreated, AgentSessionStart
from dsh.core import Context, scope_of
from dsh.llm import CancelSignal
from dsh.llm_replay import text, tool_call
from dsh.session import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    LiveSessions,
    RequestHeaderSnapshot,
    SessionHeader,
)
from dsh.session.events import SessionCreated
from dsh.session_persistence import SessionPersistence
from dsh.session_persistence.testing import MemoryDisk, MemoryPersistence
from dsh.system_prompt import PERSONA_SECTION, SystemPrompt
from dsh.testkit._loop_bench import (
    MODEL,
    LoopBench,
    OpenLoop,
    cases_of,
    check_log,
    of_type,
    refused,
    user_prompts,
)
from dsh.testkit._persistence_bench import interrupted
from dsh.testkit._trace import assert_paired_request, soon, tool_results
from dsh.tools import Tool, ToolRegistry

__all__ = ["CREATION"]


def _live(opened: OpenLoop) -> tuple[int, int]:
    return len(opened.app[AgentRegistry].list()), len(opened.app[LiveSessions].list())


async def nothing_is_visible_before_the_setup_is_done(bench: LoopBench) -> None:
    """Setup, its commit, then session, agent and start are announced, in this order."""
    order: list[str] = []

    async with bench.open() as opened:

        async def setup(ctx: Context) -> Callable[[], None]:
            order.append(f"setup {_live(opened)}")
            await anyio.lowlevel.checkpoint()
            return lambda: order.append(f"commit {_live(opened)}")

        opened.on(SessionCreated, lambda event: order.append(f"session {_live(opened)}"))
        opened.on(AgentCreated, lambda event: order.append(f"agent {_live(opened)}"))
        opened.on(AgentSessionStart, lambda event: order.append(event.source))
        async with opened.agent(setup=setup):
            assert order == [
                "setup (0, 0)",
                "commit (0, 0)",
                "session (1, 1)",
                "agent (1, 1)",
                "startup",
            ]


async def setup_registers_and_never_drives(bench: LoopBench) -> None:
    """Every verb is refused before the publication is complete."""

    async def setup(ctx: Context) -> None:
        agent = scope_of(ctx)
        assert agent is not None
        for verb in ("send", "steer", "inject"):

            async def drive(verb: str = verb) -> None:
                getattr(agent, verb)("x")

            await refused(drive(), "AGENT_IN_SETUP")

    async with bench.open([text("ok")]) as opened, opened.agent(setup=setup) as agent:
        assert len(agent.session.events) == 0
        assert (await soon(agent.ask("a"))).ok


async def what_setup_registers_is_the_agents_alone(bench: LoopBench) -> None:
    """Sections and tools of a setup are in the requests of that agent, of no other, and go."""

    async def run(arguments: object, execution: object) -> str:
        return "ok"

    async def setup(ctx: Context) -> None:
        ctx[SystemPrompt].section(ctx, PERSONA_SECTION, 0, "I am special.")
        ctx[ToolRegistry].register(ctx, Tool("special", "S.", {"type": "object"}, run))

    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as plain:
        async with opened.agent(setup=setup) as own:
            await soon(own.ask("a"))
        await soon(plain.ask("a"))
        first, second = opened.requests
        assert "I am special." in (first.system or "")
        assert [tool.name for tool in first.tools or ()] == ["special"]
        assert "I am special." not in (second.system or "")
        assert not second.tools


async def setup_reaches_the_services_of_the_loop(bench: LoopBench) -> None:
    """An owner that injects nothing can still compose an agent with tools and sections."""

    async def setup(ctx: Context) -> None:
        ctx[SystemPrompt].section(ctx, "own", 1, "mine")

    async def hold(ctx: Context, config: object) -> None:
        return None

    async with bench.open([text("ok")]) as opened:
        owner = opened.app.mount(hold)
        await owner.settled()
        handle = await opened.make(owner.ctx, setup=setup)
        await soon(handle.agent.ask("a"))
        assert "mine" in (opened.requests[0].system or "")
        await soon(owner.dispose())
        assert handle.agent.status == "disposed"
        assert _live(opened) == (0, 0)


async def a_raising_setup_leaves_nothing_behind(bench: LoopBench) -> None:
    """The error reaches the caller, nobody hears of an agent, and the ids are free again."""
    heard: list[object] = []
    undone: list[str] = []

    async def setup(ctx: Context) -> None:
        ctx.defer(lambda: undone.append("undone"))
        raise ValueError("no")

    async with bench.open() as opened:
        opened.on(SessionCreated, heard.append)
        opened.on(AgentCreated, heard.append)
        caught = False
        try:
            await opened.make(agent_id="a", session_id="s", setup=setup)
        except ValueError:
            caught = True
        assert caught
        assert undone == ["undone"]
        assert _live(opened) == (0, 0)
        assert heard == []
        async with opened.agent(agent_id="a", session_id="s"):
            assert _live(opened) == (1, 1)


async def a_veto_takes_an_agent_back(bench: LoopBench) -> None:
    """A listener of session/created or agent/created that raises leaves nothing behind."""

    def veto(event: object) -> None:
        raise ValueError("not this one")

    for event in (SessionCreated, AgentCreated):
        async with bench.open() as opened:
            listener = opened.on(event, veto)
            caught = False
            try:
                await opened.make(agent_id="a", session_id="s")
            except ValueError:
                caught = True
            assert caught, event.event_name
            assert _live(opened) == (0, 0), event.event_name
            listener.dispose_nowait()
            async with opened.agent(agent_id="a", session_id="s"):
                assert _live(opened) == (1, 1)


async def ids_are_reserved_while_a_creation_is_pending(bench: LoopBench) -> None:
    """A second creation of an id that is about to be is refused, for agent and session."""
    gate = anyio.Event()

    async def setup(ctx: Context) -> None:
        await gate.wait()

    async with bench.open() as opened, anyio.create_task_group() as group:

        async def first() -> None:
            async with opened.agent(agent_id="a", session_id="s", setup=setup):
                await anyio.lowlevel.checkpoint()

        group.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        await refused(opened.make(agent_id="a"), "AGENT_EXISTS")
        await refused(opened.make(session_id="s"), "SESSION_ALREADY_EXISTS")
        gate.set()


async def a_creation_can_be_called_off(bench: LoopBench) -> None:
    """The signal, or the end of the owner, during the setup: nothing is published."""

    async def hold(ctx: Context, config: object) -> None:
        return None

    async with bench.open() as opened:
        signal = CancelSignal()
        owner = opened.app.mount(hold)
        await owner.settled()

        async def by_signal(ctx: Context) -> None:
            signal.abort("changed my mind")
            await anyio.sleep_forever()

        async def by_owner(ctx: Context) -> None:
            owner.request_dispose()
            await anyio.sleep_forever()

        registry = opened.app[AgentRegistry]
        for ctx, options in (
            (opened.ctx, CreateAgent("a", setup=by_signal, signal=signal)),
            (owner.ctx, CreateAgent("a", setup=by_owner)),
        ):
            await soon(refused(registry.create(ctx, options), "AGENT_CREATE_ABORTED"))
            assert _live(opened) == (0, 0)


async def a_child_goes_with_its_parent(bench: LoopBench) -> None:
    """An agent made through another one's context is its child and ends with it."""
    async with bench.open([text("ok")]) as opened:
        parent = await opened.make()
        child = await opened.make(parent.agent.ctx)
        registry = opened.app[AgentRegistry]
        assert registry.parent_of(child.agent) is parent.agent
        assert registry.roots() == (parent.agent,)
        assert (await soon(child.agent.ask("a"))).ok
        await soon(parent.dispose())
        assert child.agent.status == "disposed"
        assert _live(opened) == (0, 0)


async def a_stored_session_goes_on(bench: LoopBench) -> None:
    """A resume continues history and numbering, says `resume`, and stores what is new."""
    store = {MemoryPersistence: {"disk": MemoryDisk()}}
    async with (
        bench.open([text("1")], extras=store) as opened,
        opened.agent(session_id="s", cwd="/w") as agent,
    ):
        await soon(agent.ask("before"))
    starts: list[str] = []
    async with bench.open([text("2")], extras=store) as opened:
        opened.on(AgentSessionStart, lambda event: starts.append(event.source))
        async with open_agent(opened.app, model=MODEL, resume="s") as agent:
            opened.watch(agent)
            assert (await soon(agent.ask("after"))).turn == 2
            assert user_prompts(agent.session) == ["before", "after"]
            assert "before" in str(opened.requests[0].messages)
            assert agent.session.header.cwd == "/w"
            reasons = [header.reason for header in of_type(agent.session, RequestHeaderSnapshot)]
            assert reasons == ["initial", "resume"]
            assert starts == ["resume"]
            stored = await opened.app[SessionPersistence].read_from("s", 0)
            assert stored == agent.session.events[:]


async def a_session_that_broke_off_in_a_tool_goes_on(bench: LoopBench) -> None:
    """What a crash left open is closed, and the next request is one a provider takes."""
    for started, code in (((), TOOL_NOT_STARTED), (("c1",), TOOL_OUTCOME_UNKNOWN)):
        store = {MemoryPersistence: {"disk": MemoryDisk()}}
        async with bench.open([text("ok")], extras=store) as opened:
            persistence = opened.app[SessionPersistence]
            await persistence.create(SessionHeader(id="s", created_at=1))
            await persistence.append("s", interrupted("c1", started=started))
            async with open_agent(opened.app, model=MODEL, resume="s") as agent:
                opened.watch(agent)
                assert (await soon(agent.ask("and now?"))).text == "ok"
                last = tool_results(agent.session.events)[-1]
                assert last.error is not None
                assert last.error.code == code
                assert_paired_request(opened.requests[0])


async def a_fork_goes_on_and_leaves_its_source_alone(bench: LoopBench) -> None:
    """A fork of a live session is driven like any other; nothing of it gets into its source."""
    async with bench.open([tool_call("c1", "look"), text("1"), text("2")]) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            await soon(agent.ask("a"))
            seed = agent.session.events[:]
            options = CreateAgent(
                session_id="fork",
                parent_session=agent.session.id,
                seed=seed,
                seed_length=len(seed),
                options=AgentOptions(model=MODEL),
            )
            handle = await opened.app[AgentRegistry].create(opened.ctx, options)
            async with handle as fork:
                opened.watch(fork)
                check_log(fork.session)
                assert fork.session.header.parent_session == agent.session.id
                assert fork.session.derive_messages() == agent.session.derive_messages()
                assert (await soon(fork.ask("b"))).text == "2"
            assert agent.session.events[:] == seed


async def resuming_needs_a_store(bench: LoopBench) -> None:
    """Without persistence a resume says what is missing."""
    async with bench.open() as opened:
        registry = opened.app[AgentRegistry]
        resume = registry.resume(opened.ctx, ResumeAgent("s"))
        await refused(resume, "NO_SESSION_PERSISTENCE")
        assert _live(opened) == (0, 0)


CREATION = cases_of(
    nothing_is_visible_before_the_setup_is_done,
    setup_registers_and_never_drives,
    what_setup_registers_is_the_agents_alone,
    setup_reaches_the_services_of_the_loop,
    a_raising_setup_leaves_nothing_behind,
    a_veto_takes_an_agent_back,
    ids_are_reserved_while_a_creation_is_pending,
    a_creation_can_be_called_off,
    a_child_goes_with_its_parent,
    a_stored_session_goes_on,
    a_session_that_broke_off_in_a_tool_goes_on,
    a_fork_goes_on_and_leaves_its_source_alone,
    resuming_needs_a_store,
)
"""The cases of this subject."""
