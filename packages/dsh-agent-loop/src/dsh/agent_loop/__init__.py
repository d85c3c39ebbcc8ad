"""The shipped agent loop: turns, steps, cancellation, steering, and the agent factory."""

from dsh.agent_loop._config import ConfiguredAgent, LoopConfig
from dsh.agent_loop._plugin import AgentLoop

__all__ = ["AgentLoop", "ConfiguredAgent", "LoopConfig"]
