"""Messages and the content blocks they are made of."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from dsh.core import JsonObject
from dsh.core.vocabulary import WIRE_CONFIG, Vocabulary
from dsh.llm._wire_value import WireValue

if TYPE_CHECKING:
    from pydantic import ConfigDict, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

Role: TypeAlias = Literal["system", "user", "assistant"]
"""Who speaks. A tool result is a user message that holds one tool-result block."""


class ContentBlock(WireValue):
    """One piece of a message's content.

    A wheel adds a kind of block by declaring a frozen slots dataclass; from then on the kind is
    read as that class::

        @dataclass(frozen=True, slots=True)
        class Citation(ContentBlock, type="acme/citation"):
            \"\"\"Where a statement comes from.\"\"\"

            source_url: str
            alt: str

    Fields are snake_case here and camelCase on the wire; free-form JSON is a
    `Mapping[str, Any]`. A field `alt` is the text that stands for the block wherever its kind is
    not understood, see `alt_text`. A kind that no live class declares, or whose class does not
    fit what was written, is an `UnknownBlock`.

    Raises:
        VocabularyError: Code `BAD_KIND` when the type is not made of lower-case words, dashes
            and slashes, `DUPLICATE_KIND` when another live class has it.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    kinds: ClassVar[Vocabulary[ContentBlock]] = Vocabulary("block type", "type")
    """The live classes of blocks, by kind."""
    type: str
    """The kind on the wire."""

    def __init_subclass__(cls, type: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kinds.declare(cls, type)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # imported late, as in WireValue
        from dsh.llm._decode import block_schema

        return block_schema(cls, source, handler)


@dataclass(frozen=True, slots=True)
class TextBlock(ContentBlock, type="text"):
    """Visible text."""

    text: str
    """The text, verbatim."""


@dataclass(frozen=True, slots=True)
class ReasoningBlock(ContentBlock, type="reasoning"):
    """Reasoning the model wrote before or between its visible text."""

    text: str
    """The reasoning, verbatim."""


@dataclass(frozen=True, slots=True)
class ToolCallBlock(ContentBlock, type="tool-call"):
    """The model asks for one tool to be run."""

    id: str
    """Pairs the call with its result; unique within a session once the loop has logged it."""
    name: str
    """The tool's name as the model wrote it; it may name no tool at all."""
    arguments: str
    """The arguments as the JSON text the model wrote; only the tool boundary parses it."""


@dataclass(frozen=True, slots=True)
class ToolResultBlock(ContentBlock, type="tool-result"):
    """What one tool call came to."""

    tool_call_id: str
    """The id of the call this answers."""
    content: tuple[ContentBlock, ...]
    """What the model reads."""
    is_error: bool = False
    """Whether the call failed; the content then says how."""


@dataclass(frozen=True, slots=True)
class UnknownBlock(ContentBlock):
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


BLOCK_TYPES = frozenset(
    block.type for block in (TextBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock)
)


def alt_text(block: ContentBlock) -> str | None:
    """Return the text that stands for a block whose kind a reader does not understand.

    It is the text under `alt` of a block that a wheel added, also while that wheel is absent.

    Returns:
        The text; None if there is none, as for the four kinds every reader understands.
    """
    if isinstance(block, UnknownBlock):
        found = block.data.get("alt")
    else:
        found = getattr(block, "alt", None)
    return found if isinstance(found, str) else None


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
