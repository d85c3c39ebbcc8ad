"""The registry of live agents."""

from __future__ import annotations

import pytest

from dsh.agent import (
    AgentFactory,
    AgentFault,
    AgentHandle,
    AgentOptions,
    AgentRegistry,
    CreateAgent,
    ResumeAgent,
    open_agent,
)
from dsh.agent.events import AgentCreated, AgentEnded
from dsh.agent.testing import StubAgent, stub_agent
from dsh.core import App, Context


class Factory(AgentFactory):
    """Makes stubs."""

    def __init__(self) -> None:
        self.made: list[CreateAgent | ResumeAgent] = []

    async def create(self, ctx: Context, options: CreateAgent) -> AgentHandle:
        self.made.append(options)
        return self._handle(ctx)

    async def resume(self, ctx: Context, options: ResumeAgent) -> AgentHandle:
        self.made.append(options)
        return self._handle(ctx)

    def _handle(self, ctx: Context) -> AgentHandle:
        agent, scope = stub_agent(ctx)
        return AgentHandle(agent, scope.dispose, lambda: None)


# case: G-01
async def test_one_factory_makes_the_agents_and_leaves_with_its_owner() -> None:
    async with App() as app:
        await app.mount(AgentRegistry).settled()
        registry = app[AgentRegistry]
        with pytest.raises(AgentFault, match="mount an agent loop") as caught:
            await registry.create(app.ctx)
        assert caught.value.code == "NO_AGENT_FACTORY"

        factory = Factory()

        async def loop(ctx: Context, config: object) -> None:
            registry.set_factory(ctx, factory)

        mount = app.mount(loop)
        await mount.settled()
        with pytest.raises(AgentFault) as caught:
            registry.set_factory(app.ctx, Factory())
        assert caught.value.code == "AGENT_FACTORY_EXISTS"
        handle = await registry.create(app.ctx)
        async with handle as agent:
            assert agent is handle.agent
        await registry.resume(app.ctx, ResumeAgent("s"))
        assert factory.made == [CreateAgent(), ResumeAgent("s")]
        await mount.dispose()
        registry.set_factory(app.ctx, Factory())


@pytest.mark.parametrize(("cwd", "session_id"), [("/w", None), (None, "t"), ("/w", "s")])
async def test_a_resumed_session_is_not_given_what_it_has(
    cwd: str | None, session_id: str | None
) -> None:
    async with App() as app:
        await app.mount(AgentRegistry).settled()
        factory = Factory()
        app[AgentRegistry].set_factory(app.ctx, factory)
        with pytest.raises(TypeError, match="leave out cwd and session_id"):
            async with open_agent(app, resume="s", cwd=cwd, session_id=session_id):
                pass
        assert factory.made == []
        async with open_agent(app, model="m", resume="s"):
            assert factory.made == [ResumeAgent("s", options=AgentOptions(model="m"))]


async def test_entries_are_listed_in_order_and_paired_with_their_end() -> None:
    heard: list[str] = []
    async with App() as app:
        await app.mount(AgentRegistry).settled()
        registry = app[AgentRegistry]
        app.ctx.on(AgentCreated, lambda event: heard.append(f"created {event.agent.id}"))

        def gone(event: AgentEnded) -> None:
            assert registry.get(event.agent.id) is None
            heard.append(f"disposed {event.agent.id}")

        app.ctx.on(AgentEnded, gone)
        one, two = StubAgent("one"), StubAgent("two")
        first = registry.register(app.ctx, one)
        second = registry.enter(app.ctx, two)
        assert registry.list() == (one, two)
        assert registry.get("two") is two
        with pytest.raises(AgentFault, match="'one' is already registered") as caught:
            registry.enter(app.ctx, StubAgent("one"))
        assert caught.value.code == "AGENT_EXISTS"
        second.dispose_nowait()
        first.dispose_nowait()
        first.dispose_nowait()
        # what was never announced is not taken back
        assert heard == ["created one", "disposed one"]
        with pytest.raises(AgentFault) as caught:
            registry.announce(two)
        assert caught.value.code == "AGENT_NOT_LIVE"


async def test_a_raising_listener_takes_the_entry_back() -> None:
    heard: list[str] = []

    def refuse(event: AgentCreated) -> None:
        raise ValueError("not here")

    async with App() as app:
        await app.mount(AgentRegistry).settled()
        registry = app[AgentRegistry]
        app.ctx.on(AgentEnded, lambda event: heard.append(event.agent.id))
        listener = app.ctx.on(AgentCreated, refuse)
        with pytest.raises(ValueError, match="not here"):
            registry.register(app.ctx, StubAgent("one"))
        assert registry.list() == ()
        assert heard == ["one"]
        listener.dispose_nowait()
        registry.register(app.ctx, StubAgent("one"))


async def test_children_are_no_roots() -> None:
    async with App() as app:
        await app.mount(AgentRegistry).settled()
        registry = app[AgentRegistry]
        parent, scope = stub_agent(app.ctx, "parent")
        async with scope:
            registry.enter(app.ctx, parent)
            child, other = StubAgent("child"), StubAgent("other")
            registry.enter(scope.ctx, child)
            registry.enter(app.ctx, other, parent)
            assert registry.roots() == (parent,)
            assert registry.parent_of(child) is registry.parent_of(other) is parent
        # what was entered through the parent's context leaves with it
        assert registry.list() == (parent, other)
