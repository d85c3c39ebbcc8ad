"""The services an agent loop works with, and its limits."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic import Field, NonNegativeFloat, PositiveInt

from dsh.agent import AgentOptions, AgentRegistry
from dsh.core import Mount, PluginConfig, Service, inject, settings
from dsh.llm import LlmService
from dsh.session import SessionStore
from dsh.session_persistence import SessionPersistence
from dsh.system_prompt import SystemPrompt
from dsh.tools import ToolRegistry


class ConfiguredAgent(PluginConfig):
    """An agent that is made when the loop starts."""

    id: str = Field(min_length=1)
    """Registry id."""
    cwd: str | None = None
    """Absolute working directory of a new session."""
    resume_session_id: str | None = None
    """Id of a stored session to go on with, once there is a persistence service."""
    model: str | None = None
    """`provider/model`, or a bare name that one provider declares."""
    max_steps: PositiveInt | None = None
    """As in `AgentOptions`."""
    max_tokens: PositiveInt | None = None
    """As in `AgentOptions`."""
    max_turn_tokens: PositiveInt | None = None
    """As in `AgentOptions`."""
    temperature: NonNegativeFloat | None = None
    """As in `AgentOptions`."""
    reasoning_effort: str | None = None
    """As in `AgentOptions`."""
    stop: tuple[str, ...] | None = None
    """As in `AgentOptions`."""

    def options(self) -> AgentOptions:
        """Return the agent's options."""
        return AgentOptions(
            model=self.model,
            max_steps=self.max_steps,
            max_tokens=self.max_tokens,
            max_turn_tokens=self.max_turn_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            stop=self.stop,
        )


class LoopConfig(PluginConfig):
    """Configuration of the agent loop."""

    agents: tuple[ConfiguredAgent, ...] = ()
    """Agents to make when the loop starts; a failure to make one is reported, no more."""
    cancel_grace_s: NonNegativeFloat = 5
    """Seconds a tool may go on after a cancel before it is left behind, its outcome unknown."""
    close_grace_s: NonNegativeFloat = 5
    """Seconds the last checkpoint of an agent may take when the agent is torn down."""
    max_parallel_tools: PositiveInt = 8
    """How many calls of tools that may overlap run at the same time."""


class Owned(ABC):
    """Something that ends with the mount that owns it."""

    @abstractmethod
    def owner_retires(self) -> None:
        """Stop at once: the owner's disposal has begun."""


class OwnedTable:
    """What is owned by which mount, to be stopped the moment the owner's disposal begins."""

    __slots__ = ("_by_owner",)

    def __init__(self) -> None:
        self._by_owner: dict[Mount, dict[Owned, None]] = {}

    def add(self, owner: Mount, owned: Owned) -> None:
        """Enter something."""
        self._by_owner.setdefault(owner, {})[owned] = None

    def discard(self, owner: Mount, owned: Owned) -> None:
        """Take something out, if it is there."""
        table = self._by_owner.get(owner, {})
        table.pop(owned, None)
        if not table:
            self._by_owner.pop(owner, None)

    def retire(self, mount: Mount) -> None:
        """Stop everything that a mount and the mounts below it own."""
        for owner in [owner for owner in self._by_owner if mount.owns(owner)]:
            for owned in list(self._by_owner.get(owner, ())):
                owned.owner_retires()


class Spine(Service):
    """What every agent of one loop shares."""

    owned: OwnedTable

    Config = LoopConfig
    config = settings(LoopConfig)
    agents = inject(AgentRegistry)
    sessions = inject(SessionStore)
    llm = inject(LlmService)
    tools = inject(ToolRegistry)
    system_prompt = inject(SystemPrompt)
    persistence = inject(SessionPersistence, optional=True)
