"""Messages and the content blocks they are made of."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from dsh.core import JsonObject
from dsh.llm._wire_value import WireUnion, WireValue

Role: TypeAlias = Literal["system", "user", "assistant"]
"""Who speaks. A tool result is a user message that holds one tool-result block."""


@dataclass(frozen=True, slots=True)
class TextBlock(WireValue):
    """Visible text."""

    type: ClassVar[str] = "text"
    text: str
    """The text, verbatim."""


@dataclass(frozen=True, slots=True)
class ReasoningBlock(WireValue):
    """Reasoning the model wrote before or between its visible text."""

    type: ClassVar[str] = "reasoning"
    text: str
    """The reasoning, verbatim."""


@dataclass(frozen=True, slots=True)
class ToolCallBlock(WireValue):
    """The model asks for one tool to be run."""

    type: ClassVar[str] = "tool-call"
    id: str
    """Pairs the call with its result; unique within a session once the loop has logged it."""
    name: str
    """The tool's name as the model wrote it; it may name no tool at all."""
    arguments: str
    """The arguments as the JSON text the model wrote; only the tool boundary parses it."""


@dataclass(frozen=True, slots=True)
class ToolResultBlock(WireValue):
    """What one tool call came to."""

    type: ClassVar[str] = "tool-result"
    tool_call_id: str
    """The id of the call this answers."""
    content: tuple[ContentBlock, ...]
    """What the model reads."""
    is_error: bool = False
    """Whether the call failed; the content then says how."""


@dataclass(frozen=True, slots=True)
class UnknownBlock(WireValue):
    """A block of a kind this program does not know, kept as it was so that nothing is lost."""

    type: str
    """The kind, as written on the wire."""
    data: JsonObject
    """Every other key of the block. Read only."""

    def __post_init__(self) -> None:
        if self.type in BLOCK_TYPES:
            raise ValueError(f"an UnknownBlock cannot stand for the known kind {self.type!r}")
        if "type" in self.data:
            raise ValueError("the data of an UnknownBlock holds the keys besides 'type'")


ContentBlock: TypeAlias = Annotated[
    TextBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock | UnknownBlock,
    WireUnion("ContentBlock"),
]
"""One piece of a message's content."""

BLOCK_TYPES = frozenset(
    block.type for block in (TextBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock)
)


@dataclass(frozen=True, slots=True)
class ReplayState(WireValue):
    """Provider-private data that has to return with the next request to the same adapter.

    Signatures, response ids and encrypted reasoning travel here. Only the adapter that made it
    gets it back: for any other the service empties `state` and leaves the names.
    """

    provider: str
    """The provider the answer came from. The service fills it in for an adapter."""
    model: str
    """The model, as the provider names it. The service fills it in for an adapter."""
    state: JsonObject
    """The data. Read only. When it has a list under `blocks`, that list has one entry for each
    block of the answer: entries of dropped blocks are dropped with them, and a list of another
    length discards the whole state."""


@dataclass(frozen=True, slots=True)
class Message(WireValue):
    """One message of a conversation. Immutable, so it can be shared by every request."""

    role: Role
    """Who speaks."""
    content: tuple[ContentBlock, ...]
    """What is said, in order."""
    replay: ReplayState | None = None
    """On an assistant message: what its adapter needs to see again."""
    memo: dict[Hashable, Any] = field(
        default_factory=dict[Hashable, Any], init=False, repr=False, compare=False
    )
    """Scratch space for code that derives something from the message and wants to do it once: an
    adapter keeps the encoded wire form here. A key starts with the name of the package that owns
    it and names everything the entry depends on besides the message. Never compared, never
    dumped, not copied by `dataclasses.replace`."""
