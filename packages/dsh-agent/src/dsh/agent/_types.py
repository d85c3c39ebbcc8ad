"""Values shared by the agent handle, its events and its loops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dsh.core import Context, JsonValue
from dsh.llm import CancelSignal, ContentBlock, TextBlock
from dsh.session import MessageSource, SessionEvent

AgentStatus = Literal["idle", "running", "disposed"]
"""`idle`: nothing to do, and checkpointed; `running`: a turn is worked on; `disposed`: for good."""

SessionStartSource = Literal["startup", "resume", "clear", "compact"]
"""Why a session starts being driven. The last two are reserved for subsystems that restart one."""

Prompt = str | Sequence[ContentBlock]
"""What may be said to an agent: a text, or content blocks."""

Setup = Callable[[Context], Awaitable[Callable[[], None] | None]]
"""Composes an agent before it is published; gets its context.

It may return a synchronous commit, which is called right before the publication.
"""


def blocks_of(content: Prompt) -> tuple[ContentBlock, ...]:
    """Content blocks of a prompt; a text becomes one text block."""
    if isinstance(content, str):
        return (TextBlock(content),)
    return tuple(content)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What an agent is made with. Everything is optional."""

    model: str | None = None
    """`provider/model`, or a bare name that one provider declares.

    None leaves it to a listener of `agent/request`."""
    max_steps: int | None = None
    """Model requests one turn may make before it ends with `max-turn-requests`."""
    max_tokens: int | None = None
    """Output tokens of one model request."""
    max_turn_tokens: int | None = None
    """Output tokens one turn may use over all its requests, before it ends `max-turn-requests`."""
    temperature: float | None = None
    """Sampling temperature."""
    reasoning_effort: str | None = None
    """One of the efforts the model declares."""
    stop: tuple[str, ...] | None = None
    """Stop strings."""
    extra: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Options of plugins, by their own names. JSON only; copied at creation."""


@dataclass(frozen=True, slots=True)
class CreateAgent:
    """Options of a new agent on a new session."""

    agent_id: str | None = None
    """Registry id; a uuid4 when absent."""
    session_id: str | None = None
    """Session id; a uuid4 when absent. Never the agent's id."""
    cwd: str | None = None
    """Absolute working directory, kept in the session header."""
    parent_session: str | None = None
    """Id of the session this one descends from."""
    seed: Sequence[SessionEvent] = ()
    """Events the session starts with; every turn among them is closed."""
    seed_length: int | None = None
    """How many leading events were inherited from the parent session."""
    origin: str | None = None
    """`subagent` where another agent makes it."""
    delegation_depth: int | None = None
    """How many agents stand between it and a person."""
    agent_preset: str | None = None
    """Name of the preset it is made from."""
    options: AgentOptions = AgentOptions()
    """Options of the agent."""
    setup: Setup | None = None
    """Composes the agent's scope before anybody can see it. It registers; it never drives."""
    signal: CancelSignal | None = None
    """Aborts the creation, and only the creation."""


@dataclass(frozen=True, slots=True)
class ResumeAgent:
    """Options of an agent on a stored session."""

    session_id: str
    """Id of the stored session."""
    agent_id: str | None = None
    """Registry id; a uuid4 when absent."""
    options: AgentOptions = AgentOptions()
    """Options of the agent."""
    setup: Setup | None = None
    """As in `CreateAgent`."""
    signal: CancelSignal | None = None
    """As in `CreateAgent`."""


@dataclass(frozen=True, slots=True)
class HookContext:
    """Text a plugin adds to the conversation, always with its source: it is never the user's."""

    content: tuple[ContentBlock, ...]
    """What the model is shown, inside an envelope that names the kind of source."""
    source: MessageSource
    """Who says it."""


@dataclass(frozen=True, slots=True)
class AllowPrompt:
    """Let the prompt in."""

    content: tuple[ContentBlock, ...] | None = None
    """Replaces the prompt's content; None keeps it. The original is then logged nowhere."""
    additional_context: HookContext | None = None
    """Logged after the prompt as a message of its own."""


@dataclass(frozen=True, slots=True)
class BlockPrompt:
    """Keep the prompt out and log it as blocked. A turn with no other prompt ends `rejected`."""

    reason: str
    """Why, for the person who wrote the prompt."""


PromptDecision = AllowPrompt | BlockPrompt
"""What a listener of `agent/prompt-submit` answers."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the turn after this step."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Make another step."""

    reason: HookContext | None = None
    """Logged as steering before the next request."""


ContinuationDecision = Stop | Continue
"""What a listener of `agent/turn-continuation` answers."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let the failed request end the turn."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Make another step of the same turn, with the history as it is now."""


RequestErrorDecision = GiveUp | Retry
"""What a listener of `agent/request-error` answers."""
