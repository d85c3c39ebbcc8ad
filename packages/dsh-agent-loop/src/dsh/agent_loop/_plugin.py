"""The loop plugin: makes agents for the registry and tells the prompt about them."""

from __future__ import annotations

from typing import ClassVar

from dsh.agent import AgentOptions, CreateAgent, ResumeAgent
from dsh.agent.loopkit import Load, Loop
from dsh.agent_loop._agent import LoopAgent
from dsh.agent_loop._config import ConfiguredAgent, LoopConfig
from dsh.core import Context, inject, settings
from dsh.llm import LlmService
from dsh.session import Session
from dsh.session_persistence import SessionPersistence
from dsh.system_prompt import AssembleContext, SystemPrompt
from dsh.tools import ToolRegistry


class AgentLoop(Loop):
    """Makes agents and drives them.

    It is the factory of the agent registry: use `AgentRegistry.create` and `resume`, which work
    with any loop.
    """

    name: ClassVar[str] = "agent-loop"

    Config = LoopConfig
    config = settings(LoopConfig)
    llm = inject(LlmService)
    tools = inject(ToolRegistry)
    system_prompt = inject(SystemPrompt)
    persistence = inject(SessionPersistence, optional=True)

    async def start(self) -> None:
        """Become the registry's factory, and make the configured agents."""
        await super().start()
        self.system_prompt.variable(self.ctx, "model", _model)
        self.system_prompt.variable(self.ctx, "cwd", _cwd)
        for entry in self.config.agents:
            if entry.resume_session_id:
                self._resume_when_possible(entry, entry.resume_session_id)
            else:
                self.ctx.spawn(self._create_configured, entry, label=f"make agent {entry.id}")

    def compose(self, agent_id: str, session: Session, options: AgentOptions) -> LoopAgent:
        """Make an agent of this loop."""
        return LoopAgent(self, agent_id, session, options)

    @property
    def stop_grace_s(self) -> float:
        """Time for a tool to come back, then for the last checkpoint."""
        return self.config.cancel_grace_s + self.config.close_grace_s

    @property
    def load(self) -> Load | None:
        """How stored sessions are read."""
        return None if self.persistence is None else self.persistence.load

    # --- inside -----------------------------------------------------------------------------

    async def _create_configured(self, entry: ConfiguredAgent) -> None:
        try:
            await self.create(
                self.ctx, CreateAgent(agent_id=entry.id, cwd=entry.cwd, options=entry.options())
            )
        except Exception as error:  # noqa: BLE001 - a configured agent never breaks the start
            self.ctx.report(error, f"configured agent {entry.id}")

    def _resume_when_possible(self, entry: ConfiguredAgent, session_id: str) -> None:
        """Resume once there is a persistence service; later ones find the agent there."""
        done = False

        async def body(ctx: Context) -> None:
            nonlocal done
            if done:
                return
            done = True
            options = ResumeAgent(session_id, agent_id=entry.id, options=entry.options())
            try:
                await self.resume(self.ctx, options)
            except Exception as error:  # noqa: BLE001 - a configured agent never breaks the start
                self.ctx.report(error, f"configured agent {entry.id}")

        self.ctx.when((SessionPersistence,), body, name=f"resume-{entry.id}")


def _model(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.options.model


def _cwd(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.session.header.cwd
