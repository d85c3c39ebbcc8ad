"""What a deployment says about the loop."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveInt

from dsh.agent import AgentOptions
from dsh.core import PluginConfig


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
    """Model requests of one turn; unset: no bound."""
    max_tokens: PositiveInt | None = None
    """Output tokens of one model request; unset: as the adapter decides."""
    max_turn_tokens: PositiveInt | None = None
    """Output tokens of one turn; unset: no bound."""
    temperature: NonNegativeFloat | None = None
    """How freely the model samples; unset: as the provider decides."""
    reasoning_effort: str | None = None
    """How hard the model thinks, one of the efforts it declares; unset: its default."""
    stop: tuple[str, ...] | None = None
    """Texts that end an answer."""

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
