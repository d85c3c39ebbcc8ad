"""The spine bundle, and the short way from it to an agent."""

from dsh.agent_core._bundle import AgentCore
from dsh.agent_core._create import create_agent

__all__ = ["AgentCore", "create_agent"]
