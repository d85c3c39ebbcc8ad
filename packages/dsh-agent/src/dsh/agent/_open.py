"""The short way from an app to an agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from dsh.agent._agent import Agent
from dsh.agent._registry import AgentRegistry
from dsh.agent._types import AgentOptions, CreateAgent, ResumeAgent, Setup
from dsh.core import App


@asynccontextmanager
async def open_agent(
    app: App,
    *,
    model: str | None = None,
    cwd: str | None = None,
    options: AgentOptions | None = None,
    agent_id: str | None = None,
    session_id: str | None = None,
    resume: str | None = None,
    setup: Setup | None = None,
) -> AsyncGenerator[Agent, None]:
    """Make an agent for the duration of a block.

    Args:
        app: A running app with an agent loop mounted.
        model: `provider/model`, or a bare name; wins over `options.model`.
        cwd: Absolute working directory of the new session. Not with `resume`: a stored session has
            its own.
        options: The other options of the agent.
        agent_id: Registry id; made up when absent.
        session_id: Id of the new session; made up when absent. Not with `resume` either.
        resume: Id of a stored session to go on with, instead of a new one.
        setup: Composes the agent's scope before it is published.

    Yields:
        The agent; it is disposed when the block ends.

    Raises:
        TypeError: `resume` is given together with `cwd` or `session_id`.
        AgentFault: See `AgentRegistry.create` and `AgentRegistry.resume`.
    """
    if resume is not None and not (cwd is None and session_id is None):
        raise TypeError(
            "a session that is resumed has its own folder and id: leave out cwd and session_id"
        )
    registry = app[AgentRegistry]
    chosen = options or AgentOptions()
    if model is not None:
        chosen = replace(chosen, model=model)
    if resume is not None:
        handle = await registry.resume(
            app.ctx, ResumeAgent(resume, agent_id=agent_id, options=chosen, setup=setup)
        )
    else:
        handle = await registry.create(
            app.ctx,
            CreateAgent(
                agent_id=agent_id, session_id=session_id, cwd=cwd, options=chosen, setup=setup
            ),
        )
    async with handle as agent:
        yield agent
