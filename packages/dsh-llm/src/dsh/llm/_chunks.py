"""The stream protocol: what an adapter yields while an answer arrives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from dsh.llm._content import ContentBlock, ReplayState
from dsh.llm._wire_value import WireUnion, WireValue


@dataclass(frozen=True, slots=True)
class TokenUsage(WireValue):
    """What a call cost, in tokens.

    The first four counters are disjoint: all input is `input_tokens + cache_read_tokens +
    cache_write_tokens`. A counter the provider does not report is None, which is not zero.
    """

    input_tokens: int
    """Input tokens that came from no cache."""
    output_tokens: int
    """Output tokens, reasoning included."""
    cache_read_tokens: int | None = None
    """Input tokens read from the provider's cache."""
    cache_write_tokens: int | None = None
    """Input tokens written to the provider's cache."""
    reasoning_tokens: int | None = None
    """The part of `output_tokens` spent on reasoning; never to be added to it."""

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Add counter by counter; a counter is None only if both are."""
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            _sum(self.cache_read_tokens, other.cache_read_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
        )


def _sum(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right


@dataclass(frozen=True, slots=True)
class LlmFailure(WireValue):
    """Facts about a failed call that a person or a retry policy can use.

    Raises:
        ValueError: A fact is out of range. It is refused here and not when the log is written.
    """

    status: int | None = None
    """The HTTP status, 100 to 599."""
    retry_after_ms: float | None = None
    """How long the provider asked to wait, in milliseconds; finite and above zero."""
    request_id: str | None = None
    """The provider's name for the request, for its support."""

    def __post_init__(self) -> None:
        # Widened, because whoever fails may fill in what it found on a wire.
        facts: tuple[Any, Any, Any] = (self.status, self.retry_after_ms, self.request_id)
        status, wait, name = facts
        if status is not None and not (isinstance(status, int) and 100 <= status <= 599):
            raise ValueError(f"an HTTP status lies between 100 and 599, not {status!r}")
        if wait is not None and not (_is_number(wait) and math.isfinite(wait) and wait > 0):
            raise ValueError(f"retry_after_ms is a finite number above zero, not {wait!r}")
        if name is not None and not (isinstance(name, str) and name):
            raise ValueError("request_id is a non-empty string or None")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class FinishReason(WireValue):
    """Why the answer ended.

    The kinds are `stop`, `tool-calls`, `max-tokens`, `refusal`, `aborted` and `error`; a kind
    nobody here knows counts as success. Whether tools run depends on the tool-call blocks of the
    answer, not on the kind.
    """

    kind: str
    """The kind."""
    message: str | None = None
    """What happened, for a person; always there for `error` and `aborted`."""
    code: str | None = None
    """The stable code of the failure, one of those of `LlmError`."""
    failure: LlmFailure | None = None
    """More facts about the failure."""

    @property
    def failed(self) -> bool:
        """Whether the answer is not to be used: the kind is `error` or `aborted`."""
        return self.kind == "error" or self.kind == "aborted"


STOP = FinishReason("stop")
"""The ordinary end, which is also what a stream without a finish reads as."""


@dataclass(frozen=True, slots=True)
class BlockStart(WireValue):
    """Opens a block."""

    type: ClassVar[str] = "block-start"
    index: int
    """Names the block within this answer; allocated in first-seen order from zero."""
    block_type: str
    """The kind of block: `text`, `reasoning`, `tool-call` or one an adapter adds."""


@dataclass(frozen=True, slots=True)
class TextDelta(WireValue):
    """More text for an open text block."""

    type: ClassVar[str] = "text-delta"
    index: int
    """The block."""
    text: str
    """What to append."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta(WireValue):
    """More text for an open reasoning block."""

    type: ClassVar[str] = "reasoning-delta"
    index: int
    """The block."""
    text: str
    """What to append."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta(WireValue):
    """More of an open tool call."""

    type: ClassVar[str] = "tool-call-delta"
    index: int
    """The block."""
    id: str
    """The call's id, repeated on every delta; empty while the provider has given none."""
    arguments_delta: str
    """What to append to the JSON text of the arguments."""
    name: str | None = None
    """The tool's name, once it is known."""


@dataclass(frozen=True, slots=True)
class BlockEnd(WireValue):
    """Closes a block."""

    type: ClassVar[str] = "block-end"
    index: int
    """The block."""
    block: ContentBlock
    """The complete block, which wins over what the deltas add up to."""


@dataclass(frozen=True, slots=True)
class UsageChunk(WireValue):
    """The call's token counts; at most one in a stream, before its finish."""

    type: ClassVar[str] = "usage"
    usage: TokenUsage
    """The counts."""


@dataclass(frozen=True, slots=True)
class Finish(WireValue):
    """The last chunk of every stream."""

    type: ClassVar[str] = "finish"
    reason: FinishReason
    """Why the answer ended."""
    replay: ReplayState | None = None
    """On success: what the adapter wants to see again with this answer."""


StreamChunk: TypeAlias = Annotated[
    BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | Finish,
    WireUnion("StreamChunk"),
]
"""One element of an answer's stream."""
