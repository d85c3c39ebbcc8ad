"""Errors of the agent handle and the agent registry, with their stable codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dsh.core import DshError

if TYPE_CHECKING:
    from dsh.agent._outcome import TurnOutcome


class AgentFault(DshError):
    """Something about an agent or the agent registry is not possible; the code says what."""

    EXISTS: ClassVar[str] = "AGENT_EXISTS"
    """An agent with this id is live or being created."""
    NOT_LIVE: ClassVar[str] = "AGENT_NOT_LIVE"
    """The agent is not (or no longer) the registry's entry under its id."""
    IN_SETUP: ClassVar[str] = "AGENT_IN_SETUP"
    """A driving verb was called before the creation transaction completed."""
    DISPOSED: ClassVar[str] = "AGENT_DISPOSED"
    """The agent was disposed."""
    NO_FACTORY: ClassVar[str] = "NO_AGENT_FACTORY"
    """No agent loop is mounted, so nobody can make agents."""
    FACTORY_EXISTS: ClassVar[str] = "AGENT_FACTORY_EXISTS"
    """Another agent loop already makes the agents of this registry."""
    OPEN_TURN: ClassVar[str] = "AGENT_OPEN_TURN"
    """The log to begin with ends inside of a turn, which nobody could go on with or close."""
    SESSION_CLAIMED: ClassVar[str] = "SESSION_CLAIMED"
    """The session object already has a driver."""
    CREATE_ABORTED: ClassVar[str] = "AGENT_CREATE_ABORTED"
    """The owner went away, or the caller's signal fired, before the agent was published."""
    NO_PERSISTENCE: ClassVar[str] = "NO_SESSION_PERSISTENCE"
    """Resume needs the session persistence service and none is mounted."""
    NO_MODEL: ClassVar[str] = "NO_MODEL"
    """Neither the agent's options nor an `agent/request` listener named a model."""
    BAD_CONTENT: ClassVar[str] = "BAD_CONTENT"
    """Something that is no content block, or a tool block, was said to an agent; or nothing."""
    BAD_DECISION: ClassVar[str] = "BAD_DECISION"
    """A listener of a decision event returned something that is not a decision."""
    TURN_FAILED: ClassVar[str] = "TURN_FAILED"
    """A turn that was waited for did not complete."""
    INVALID_SCHEMA: ClassVar[str] = "INVALID_SCHEMA"
    """What `output` asks for is no valid JSON Schema; nothing was sent to the model."""
    OUTPUT_INVALID: ClassVar[str] = "OUTPUT_INVALID"
    """The model gave no answer of the requested shape within the allowed retries."""


class AgentDisposed(AgentFault):
    """The agent was disposed before it could do what was asked."""

    def __init__(self, agent_id: str, what: str) -> None:
        super().__init__(
            f"agent {agent_id!r} is disposed: {what}",
            code=self.DISPOSED,
            hint="create a new agent, or resume its session",
        )


class TurnFailed(AgentFault):
    """A turn that was waited for ended without completing; `outcome` has the details."""

    outcome: TurnOutcome
    """How the turn ended, with whatever text and usage there is."""

    def __init__(self, message: str, outcome: TurnOutcome) -> None:
        super().__init__(
            message,
            code=self.TURN_FAILED,
            hint="pass check=False to ask() to get the outcome instead of this error",
        )
        self.outcome = outcome


class OutputInvalid(AgentFault):
    """The turn completed, but no answer matched the requested output type."""

    outcome: TurnOutcome
    """How the turn ended; `outcome.text` is the last answer."""
    violations: tuple[str, ...]
    """What was wrong with the last answer, one line each."""

    def __init__(self, violations: tuple[str, ...], outcome: TurnOutcome) -> None:
        super().__init__(
            "the answer does not match the requested output: " + "; ".join(violations),
            code=self.OUTPUT_INVALID,
            hint="allow more retries, or ask for a simpler shape",
        )
        self.outcome = outcome
        self.violations = violations
