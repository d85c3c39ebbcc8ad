"""What a caller asks of a model."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.core import JsonObject
from dsh.llm._content import Message
from dsh.llm._signal import CancelSignal
from dsh.llm._wire_value import WireValue


@dataclass(frozen=True, slots=True)
class ToolSchema(WireValue):
    """A tool as the model sees it."""

    name: str
    """The name the model calls it by."""
    description: str
    """What it does and when to use it."""
    parameters: JsonObject
    """The JSON Schema of its arguments, an object schema. Read only."""


@dataclass(frozen=True, slots=True)
class LlmCallConfig(WireValue):
    """The part of a request that is configuration, and is logged as such.

    Two configs are equal if every field is; an absent `stop` differs from an empty one.
    """

    model: str
    """`provider/model`, or the bare model id where one provider declares it."""
    temperature: float | None = None
    """Sampling temperature; None leaves it to the provider."""
    max_tokens: int | None = None
    """The most tokens to write; None leaves it to the adapter's configuration."""
    stop: tuple[str, ...] | None = None
    """Strings that end the answer and are not part of it."""
    reasoning_effort: str | None = None
    """How hard to think, in the model's own words; None leaves it to the adapter."""


@dataclass(frozen=True, slots=True)
class LlmRequest(WireValue):
    """One request to a model. Adapters and listeners only read it.

    Its wire form leaves `signal` out.
    """

    model: str
    """`provider/model` or a bare id; what reaches an adapter is the id its provider uses."""
    messages: tuple[Message, ...]
    """The conversation, oldest first."""
    system: str | None = None
    """The system prompt."""
    tools: tuple[ToolSchema, ...] | None = None
    """The tools the model may call, in the order it is to see them."""
    temperature: float | None = None
    """As in `LlmCallConfig`."""
    max_tokens: int | None = None
    """As in `LlmCallConfig`."""
    stop: tuple[str, ...] | None = None
    """As in `LlmCallConfig`."""
    reasoning_effort: str | None = None
    """As in `LlmCallConfig`."""
    signal: CancelSignal | None = None
    """Aborting it ends the stream with a finish of kind `aborted`."""
    session_id: str | None = None
    """The session it belongs to, for listeners and for providers that route by it."""
    purpose: str | None = None
    """What an auxiliary request is for, such as `compaction` or `session-title`."""
    loop: bool = False
    """True for a request the agent loop built, which can be rebuilt from the session's log."""

    @property
    def config(self) -> LlmCallConfig:
        """The configuration part of the request."""
        return LlmCallConfig(
            self.model, self.temperature, self.max_tokens, self.stop, self.reasoning_effort
        )
