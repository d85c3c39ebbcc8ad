"""The checks of the spine, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dsh.agent import AgentRegistry
from dsh.invariants import _agents, _prompts, _requests, _scopes, _session, _streams, _tool_calls
from dsh.invariants._selection import Level
from dsh.invariants._service import Installer
from dsh.llm import LlmService
from dsh.session import LiveSessions
from dsh.system_prompt import SystemPrompt
from dsh.tools import ToolRegistry

__all__ = ["SPINE", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One set of checks."""

    name: str
    """The distribution whose rules they are."""
    install: Installer
    needs: tuple[Any, ...]
    """Services without which there is nothing to check."""
    level: Level


SPINE: Final = (
    Row("dsh-session", _session.install, (LiveSessions,), "basic"),
    Row("dsh-agent", _agents.install, (LiveSessions, AgentRegistry), "full"),
    Row("dsh-agent-loop", _requests.install, (LiveSessions, LlmService), "full"),
    Row("dsh-core", _scopes.install, (), "full"),
    Row("dsh-llm", _streams.install, (LlmService,), "full"),
    Row("dsh-system-prompt", _prompts.install, (SystemPrompt,), "full"),
    Row("dsh-tools", _tool_calls.install, (ToolRegistry,), "full"),
)
