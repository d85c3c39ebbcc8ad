"""The spine of dsh with another loop in it."""

from __future__ import annotations

from typing import ClassVar

from acme_loop import AcmeLoop, AcmeLoopConfig

from dsh.agent import AgentRegistry
from dsh.core import Plugin, settings
from dsh.invariants import Invariants, InvariantsConfig
from dsh.llm import LlmService
from dsh.session import LiveSessions
from dsh.system_prompt import SystemPrompt
from dsh.tools import ToolRegistry

__all__ = ["AcmeCore"]


class AcmeCore(Plugin):
    """Mounts what every agent needs, with the loop of acme-loop."""

    name: ClassVar[str] = "acme-core"

    class Config(AcmeLoopConfig, SystemPrompt.Config):
        """The configurations of the parts, side by side."""

        invariants: InvariantsConfig = InvariantsConfig()
        """Which checks of the log and of the requests run."""

    config = settings(Config)

    async def start(self) -> None:
        """Mount the parts and wait until they stand."""
        parts: tuple[tuple[type[Plugin], object], ...] = (
            (LlmService, None),
            (LiveSessions, None),
            (SystemPrompt, self._part(SystemPrompt.Config)),
            (ToolRegistry, None),
            (AgentRegistry, None),
            (Invariants, self.config.invariants),
            (AcmeLoop, self._part(AcmeLoopConfig)),
        )
        for mount in [self.ctx.mount(plugin, config) for plugin, config in parts]:
            await mount.settled()

    def _part(self, model: type[AcmeLoopConfig | SystemPrompt.Config]) -> dict[str, object]:
        """Return what was said for one part; its own defaults fill the rest."""
        said = self.config.model_fields_set & set(model.model_fields)
        return {name: getattr(self.config, name) for name in said}
