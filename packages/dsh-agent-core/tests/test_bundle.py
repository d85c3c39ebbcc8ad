"""The spine bundle and the short way to an agent."""

from __future__ import annotations

import anyio
import pytest

from dsh.agent import AgentFault, AgentRegistry
from dsh.agent.loopkit import Loop
from dsh.agent_core import AgentCore, create_agent
from dsh.agent_loop import AgentLoop
from dsh.core import App, ConfigError, Context, MountState, entry_points
from dsh.invariants import Invariants
from dsh.llm import LlmService
from dsh.llm_replay import ScriptedAdapter, text, tool_call
from dsh.session import LiveSessions
from dsh.system_prompt import TOOL_ORDER_REST, AssembleContext, SystemPrompt, render_prompt
from dsh.tools import ToolRegistrationError, ToolRegistry, tool

MODEL = "test/scripted"
SERVICES = (
    LlmService,
    LiveSessions,
    SystemPrompt,
    ToolRegistry,
    AgentRegistry,
    Loop,
    Invariants,
)


@tool
async def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"rain in {city}"


async def test_the_bundle_stands_when_it_has_settled_and_leaves_nothing() -> None:
    async with App() as app:
        before = [mount.name for mount in app.mounts]
        mount = app.mount(AgentCore)
        await mount.settled()
        for service in SERVICES:
            assert app.get(service) is not None, service
        assert app[Invariants].level == "basic"
        assert app[SystemPrompt].config.tool_order is None
        await mount.dispose()
        for service in SERVICES:
            assert app.get(service) is None, service
        assert [mount.name for mount in app.mounts] == before
        # and once more in the same app
        again = app.mount(AgentCore)
        await again.settled()
        assert isinstance(app.get(Loop), AgentLoop)


async def test_configuration_reaches_its_owner() -> None:
    config = {
        "persona": "You are {{model}}.",
        "tool_order": ["b", TOOL_ORDER_REST],
        "cancel_grace_s": 1,
        "max_parallel_tools": 2,
        "agents": [{"id": "first", "model": MODEL, "max_steps": 3}],
        "invariants": {"level": "full", "block": ["dsh-llm"]},
    }
    async with App() as app:
        await app.mount(AgentCore, config).settled()
        assert app[SystemPrompt].config.persona == "You are {{model}}."
        assert app[SystemPrompt].config.tool_order == ("b", TOOL_ORDER_REST)
        shipped = app[Loop]
        assert isinstance(shipped, AgentLoop)
        loop = shipped.config
        assert (loop.cancel_grace_s, loop.close_grace_s, loop.max_parallel_tools) == (1, 5, 2)
        assert app[Invariants].level == "full"
        await anyio.wait_all_tasks_blocked()
        agent = app[AgentRegistry].get("first")
        assert agent is not None
        assert agent.options.max_steps == 3


@pytest.mark.parametrize(
    "config",
    [
        {"person": "a typo"},
        {"tool_order": []},
        {"tool_order": ["a", "a", TOOL_ORDER_REST]},
        {"max_parallel_tools": 0},
        {"agents": [{"model": "without id"}]},
        {"invariants": {"level": "some"}},
    ],
)
async def test_a_configuration_that_does_not_fit_is_refused(config: dict[str, object]) -> None:
    async with App() as app:
        mount = app.mount(AgentCore, config)
        with pytest.raises(ConfigError):
            await mount.settled()
        assert mount.state is MountState.FAILED
        assert app.get(LlmService) is None


async def test_ten_lines_to_a_reply() -> None:
    adapter = ScriptedAdapter([tool_call("c1", "weather", {"city": "Paris"}), text("Take a coat.")])
    async with App() as app:
        await app.mount(AgentCore).settled()
        app[LlmService].register(app.ctx, adapter, "test")
        async with create_agent(
            app, model=MODEL, cwd="/tmp", persona="You live in {{cwd}}.", tools=[weather]
        ) as agent:
            assert (await agent.ask("Is it going to rain?")).text == "Take a coat."
            assert "You live in /tmp." in (adapter.requests[0].system or "")
            assert "rain in Paris" in str(adapter.requests[1].messages)
            other = await app[SystemPrompt].assemble(AssembleContext())
            assert "You live" not in render_prompt(other)
            assert not app[ToolRegistry].visible()
        assert app[AgentRegistry].list() == ()


async def test_a_setup_composes_further_and_a_clash_of_tools_makes_no_agent() -> None:
    async def setup(ctx: Context) -> None:
        ctx[SystemPrompt].section(ctx, "own", 50, "Be brief.")

    async with App() as app:
        await app.mount(AgentCore).settled()
        async with create_agent(app, persona="P", setup=setup) as agent:
            prompt = await app[SystemPrompt].assemble(AssembleContext.for_agent(agent))
            assert "Be brief." in render_prompt(prompt)
        with pytest.raises(ToolRegistrationError):
            async with create_agent(app, tools=[weather, weather]):
                pass
        assert app[AgentRegistry].list() == ()


async def test_resuming_needs_persistence() -> None:
    async with App() as app:
        await app.mount(AgentCore).settled()
        with pytest.raises(AgentFault, match="not configured"):
            async with create_agent(app, resume="some-session"):
                pass


def test_the_parts_are_found_by_name() -> None:
    found = {point.name: point.value for point in entry_points("dsh.plugins")}
    assert found["agent-core"] == "dsh.agent_core:AgentCore"
    assert found["agent-loop"] == "dsh.agent_loop:AgentLoop"
