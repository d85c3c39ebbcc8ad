"""Events about agents. Each is heard by untagged listeners and by those of the agent's own scope.

Turn and step boundaries are facts, not events of their own: read them from the session's log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Never

from dsh.agent._agent import Agent
from dsh.agent._types import (
    AgentStatus,
    ContinuationDecision,
    PromptDecision,
    RequestErrorDecision,
    SessionStartSource,
    Stop,
)
from dsh.core import Emit, Serial, Waterfall
from dsh.llm import CancelSignal, ContentBlock, FinishReason, LlmCallConfig, Message
from dsh.session import MessageSource


@dataclass(frozen=True, slots=True)
class AgentCreated(Emit, name="agent/created", scope="agent", realm="agents", errors="raise"):
    """An agent was published. A listener that raises rolls the creation back."""

    agent: Agent
    """The new agent; it and its session can already be looked up."""


@dataclass(frozen=True, slots=True)
class AgentEnded(Emit, name="agent/disposed", scope="agent", realm="agents"):
    """An agent left the registry. Its own scope is gone by then, so this is for outsiders."""

    agent: Agent
    """The agent, already unlisted; its session is still live."""


@dataclass(frozen=True, slots=True)
class AgentStatusChanged(Emit, name="agent/status", scope="agent", realm="agents"):
    """The status of an agent changed. Never repeats a status; `disposed` is the last one."""

    agent: Agent
    """The agent."""
    status: AgentStatus
    """The status just entered."""


@dataclass(frozen=True, slots=True)
class AgentQueued(Emit, name="agent/queued", scope="agent", realm="agents"):
    """A prompt or a steering message was queued."""

    agent: Agent
    """The agent."""
    content: tuple[ContentBlock, ...]
    """What was said, as it was queued."""
    source: MessageSource
    """Who said it."""
    steering: bool
    """True when it is meant for the running turn."""


@dataclass(frozen=True, slots=True)
class AgentSessionStart(Emit, name="agent/session-start", scope="agent", realm="agents"):
    """The agent may be driven from now on. Emitted once per agent, right after `agent/created`."""

    agent: Agent
    """The agent."""
    source: SessionStartSource
    """Why the session starts being driven."""


@dataclass(frozen=True, slots=True)
class PromptSubmit(
    Waterfall[PromptDecision], name="agent/prompt-submit", scope="agent", realm="agents"
):
    """Let a queued prompt in, rewrite it, add context to it, or block it.

    Dispatched inside the open turn, once per prompt, before the prompt is logged.
    """

    agent: Agent
    """The agent."""
    content: tuple[ContentBlock, ...]
    """The prompt as it was sent."""
    source: MessageSource
    """Who sent it."""


@dataclass(frozen=True, slots=True)
class SessionPrefix(
    Waterfall[tuple[Message, ...]], name="agent/session-prefix", scope="agent", realm="agents"
):
    """Compose the messages that stand before the history in every request of this agent.

    Dispatched once per agent, before its first step. Put your own messages in front of what
    `next()` returns: the final order is then the order of registration.
    """

    agent: Agent
    """The agent."""
    prefix: tuple[Message, ...]
    """Empty; the base returns it."""
    signal: CancelSignal
    """Fires when the turn is cancelled; the composition is then discarded."""


@dataclass(frozen=True, slots=True)
class PreStep(Serial[Never], name="agent/pre-step", scope="agent", realm="agents"):
    """Prepare the history right before a model request; compaction belongs here.

    Listeners run one after another and return nothing. What they log is part of this request.
    """

    agent: Agent
    """The agent."""
    turn: int
    """The open turn."""
    step: int
    """The step about to open."""
    system: str
    """The rendered system prompt of the request; empty when there is none."""
    prefix: tuple[Message, ...]
    """The messages that stand before the history."""
    signal: CancelSignal
    """Fires when the turn is cancelled."""


@dataclass(frozen=True, slots=True)
class AgentRequest(Waterfall[LlmCallConfig], name="agent/request", scope="agent", realm="agents"):
    """Choose the model and the sampling of a request. The messages cannot be changed here.

    Dispatched inside the open step, after its history was fixed: what is injected here is part
    of the next request.
    """

    agent: Agent
    """The agent."""
    turn: int
    """The open turn."""
    step: int
    """The open step."""
    config: LlmCallConfig
    """The configuration so far; the base returns it. Its model may be empty.

    At the agent's first request that is what its options say, later what the last request had."""


@dataclass(frozen=True, slots=True)
class AgentRequestError(
    Waterfall[RequestErrorDecision], name="agent/request-error", scope="agent", realm="agents"
):
    """Decide whether a failed model request is made again.

    Dispatched after the failed step was closed. A retry is a new step of the same turn: its
    request is built from the log as it is then. The chunks of the failed request stay in the
    log and belong to no message. Cancellation wins over a retry.
    """

    agent: Agent
    """The agent."""
    turn: int
    """The open turn."""
    step: int
    """The step that failed; it is closed."""
    config: LlmCallConfig
    """The configuration of the failed request, with the resolved `provider/model`."""
    failure: FinishReason
    """Why it failed: kind `error` or `aborted`."""
    signal: CancelSignal
    """Fires when the turn is cancelled; a wait before a retry must react to it."""


@dataclass(frozen=True, slots=True)
class StepResult(Waterfall[Message], name="agent/step-result", scope="agent", realm="agents"):
    """Rewrite the assembled reply before it is logged and before its tools run."""

    agent: Agent
    """The agent."""
    turn: int
    """The open turn."""
    step: int
    """The open step."""
    message: Message
    """The assembled reply; the base returns it."""


@dataclass(frozen=True, slots=True)
class TurnContinuation(
    Waterfall[ContinuationDecision], name="agent/turn-continuation", scope="agent", realm="agents"
):
    """Decide after a step whether the turn makes another one."""

    agent: Agent
    """The agent."""
    turn: int
    """The open turn."""
    default: ContinuationDecision
    """Continue when the step called tools or was steered, else stop; the base returns it."""


@dataclass(frozen=True, slots=True)
class TurnStop(Serial[Stop], name="agent/turn-stop", scope="agent", realm="agents"):
    """End the turn for good after this step: the first `Stop` wins and steering cannot revive it.

    Consulted after every step that did not fail, also when the turn stops anyway. Queued prompts
    are not touched; waiting steering is discarded.
    """

    agent: Agent
    """The agent."""
    turn: int
    """The open turn."""


@dataclass(frozen=True, slots=True)
class AgentError(Emit, name="agent/error", scope="agent", realm="agents"):
    """A failure of a turn, or of the checkpoint after it, was reported."""

    agent: Agent
    """The agent."""
    turn: int
    """The turn it belongs to."""
    step: int
    """The last step of the turn that was announced, also once it is closed; 0 before the first."""
    error: Exception
    """What was raised."""


__all__ = [
    "AgentCreated",
    "AgentEnded",
    "AgentError",
    "AgentQueued",
    "AgentRequest",
    "AgentRequestError",
    "AgentSessionStart",
    "AgentStatusChanged",
    "PreStep",
    "PromptSubmit",
    "SessionPrefix",
    "StepResult",
    "TurnContinuation",
    "TurnStop",
]
