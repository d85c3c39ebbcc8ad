"""The shipped agent loop: turns, steps, cancellation, steering, and the agent factory."""

from dsh.agent_loop._plugin import AgentLoop
from dsh.agent_loop._spine import ConfiguredAgent, LoopConfig

__all__ = ["AgentLoop", "ConfiguredAgent", "LoopConfig"]
