"""The plugin: the loop as the registry of agents knows it."""

from __future__ import annotations

from typing import ClassVar

from acme_loop.agent import AcmeAgent
from dsh.agent import AgentOptions
from dsh.agent.loopkit import Load, Loop
from dsh.core import PluginConfig, inject, settings
from dsh.llm import LlmService
from dsh.session import Session
from dsh.session_persistence import SessionPersistence
from dsh.system_prompt import AssembleContext, SystemPrompt
from dsh.tools import ToolRegistry


class AcmeLoopConfig(PluginConfig):
    """Configuration of the loop."""

    wrap_up_after: int = 24
    """Steps a turn may make before its requests go without tools."""
    cancel_grace_s: float = 5
    """Seconds a tool may go on after a cancel before it is left behind."""
    close_grace_s: float = 5
    """Seconds the last checkpoint of a disposed agent may take."""


class AcmeLoop(Loop):
    """Makes agents that run one tool at a time, and wrap up before a turn gets too long."""

    name: ClassVar[str] = "acme-loop"
    Config = AcmeLoopConfig
    config = settings(AcmeLoopConfig)

    llm = inject(LlmService)
    tools = inject(ToolRegistry)
    prompt = inject(SystemPrompt)
    store = inject(SessionPersistence, optional=True)

    async def start(self) -> None:
        """Become the maker of agents."""
        await super().start()
        self.prompt.variable(self.ctx, "model", _model)
        self.prompt.variable(self.ctx, "cwd", _cwd)

    def compose(self, agent_id: str, session: Session, options: AgentOptions) -> AcmeAgent:
        """Make an agent of this loop."""
        return AcmeAgent(self, agent_id, session, options)

    @property
    def stop_grace_s(self) -> float:
        """Time for a tool to come back, then for the last checkpoint."""
        return self.config.cancel_grace_s + self.config.close_grace_s

    @property
    def load(self) -> Load | None:
        """How stored sessions are read."""
        return None if self.store is None else self.store.load


def _model(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.options.model


def _cwd(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.session.header.cwd
