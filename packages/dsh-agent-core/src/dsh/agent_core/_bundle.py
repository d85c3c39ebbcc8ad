"""The bundle: one plugin that mounts the spine."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from dsh.agent import AgentRegistry
from dsh.agent_loop import AgentLoop, LoopConfig
from dsh.core import Plugin, PluginConfig, settings
from dsh.invariants import Invariants, InvariantsConfig
from dsh.llm import LlmService
from dsh.session import LiveSessions
from dsh.system_prompt import SystemPrompt
from dsh.tools import ToolRegistry


class AgentCore(Plugin):
    """Mounts what every agent needs: models, sessions, prompt, tools, agents, loop, invariants.

    Model adapters, command execution, front doors and tools are left to the deployment. The
    order in which anything is mounted does not matter: each part waits for its services.
    """

    name: ClassVar[str] = "agent-core"

    class Config(LoopConfig, SystemPrompt.Config):
        """The configurations of the parts, side by side."""

        invariants: InvariantsConfig = InvariantsConfig()
        """Which checks of the log and of the requests run."""

    config = settings(Config)

    async def start(self) -> None:
        """Mount the parts and wait until they stand."""
        mounts = [
            self.ctx.mount(LlmService),
            self.ctx.mount(LiveSessions),
            self.ctx.mount(SystemPrompt, self._part(SystemPrompt.Config)),
            self.ctx.mount(ToolRegistry),
            self.ctx.mount(AgentRegistry),
            self.ctx.mount(Invariants, self.config.invariants),
            self.ctx.mount(AgentLoop, self._part(LoopConfig)),
        ]
        for mount in mounts:
            await mount.settled()

    def _part(self, model: type[PluginConfig]) -> dict[str, Any]:
        """Return what was said for one part; its own defaults fill the rest."""
        return _said(self.config, set(model.model_fields))


def _said(config: BaseModel, names: set[str]) -> dict[str, Any]:
    given = config.model_fields_set & names
    return {name: getattr(config, name) for name in given}
