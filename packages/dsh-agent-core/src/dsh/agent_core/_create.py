"""The shortest way to an agent: options, a persona, tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

from dsh.agent import Agent, AgentOptions, Setup, open_agent
from dsh.core import App, Context
from dsh.system_prompt import PERSONA_SECTION, SystemPrompt
from dsh.tools import Tool, ToolRegistry


def create_agent(
    app: App,
    *,
    model: str | None = None,
    cwd: str | None = None,
    persona: str | None = None,
    tools: Iterable[Tool] = (),
    options: AgentOptions | None = None,
    agent_id: str | None = None,
    session_id: str | None = None,
    resume: str | None = None,
    setup: Setup | None = None,
) -> AbstractAsyncContextManager[Agent]:
    """Make an agent for the duration of a block.

        async with create_agent(app, model="deepseek/deepseek-flash", tools=[weather]) as agent:
            print((await agent.ask("Is it going to rain?")).text)

    Args:
        app: A running app with `AgentCore` mounted.
        model: `provider/model`, or a bare name; wins over `options.model`.
        cwd: Absolute working directory of the new session. Not with `resume`: a stored session has
            its own.
        persona: Text of the persona section, for this agent alone.
        tools: Tools of this agent alone, on top of those the deployment gives everybody.
        options: The other options of the agent.
        agent_id: Registry id; made up when absent.
        session_id: Id of the new session; made up when absent. Not with `resume` either.
        resume: Id of a stored session to go on with, instead of a new one.
        setup: Composes the agent's scope further, before it is published.

    Returns:
        The block's context manager, which gives the agent and disposes it when the block ends.

    Raises:
        TypeError: `resume` is given together with `cwd` or `session_id`.
        AgentFault: See `AgentRegistry.create` and `AgentRegistry.resume`.
        ToolRegistrationError: Two of the tools have one name.
    """
    own_tools = tuple(tools)

    async def compose(ctx: Context) -> Callable[[], None] | None:
        if persona is not None:
            ctx[SystemPrompt].section(ctx, PERSONA_SECTION, 0, persona)
        for tool in own_tools:
            ctx[ToolRegistry].register(ctx, tool)
        return None if setup is None else await setup(ctx)

    return open_agent(
        app,
        model=model,
        cwd=cwd,
        options=options,
        agent_id=agent_id,
        session_id=session_id,
        resume=resume,
        setup=compose,
    )
