"""How a call and its result look in a user interface: plain data, no behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from dsh.core import JsonObject, JsonValue
from dsh.llm import ContentBlock

__all__ = [
    "CallView",
    "Diff",
    "DiffCard",
    "DiffResult",
    "GenericCard",
    "GenericResult",
    "Location",
    "ResultView",
    "TerminalCard",
    "TerminalResult",
    "ToolKind",
    "ToolOutcome",
]

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "fetch", "other"
]
"""What kind of thing a call does, for icons and filters."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file."""

    path: str
    """The file."""
    line: int | None = None
    """The line, counted from 1."""


@dataclass(frozen=True, slots=True)
class Diff:
    """A change of one file."""

    path: str
    """The file."""
    old_text: str | None
    """The text before; None when the file is new."""
    new_text: str
    """The text after."""


@dataclass(frozen=True, slots=True)
class GenericCard:
    """A call that fits none of the other cards."""

    card: ClassVar[str] = "generic"
    title: str
    """One line that says what the call does."""
    kind: ToolKind | None = None
    """What kind of thing it does."""
    raw_input: JsonValue = None
    """The arguments, for those who want to see them."""
    content: Sequence[ContentBlock] | None = None
    """More to show under the title."""
    locations: Sequence[Location] = ()
    """Files it touches."""


@dataclass(frozen=True, slots=True)
class TerminalCard:
    """A command in a terminal."""

    card: ClassVar[str] = "terminal"
    title: str
    """The command."""
    description: str | None = None
    """What it is for."""
    cwd: str | None = None
    """Where it runs."""


@dataclass(frozen=True, slots=True)
class DiffCard:
    """A change of files that is about to be made."""

    card: ClassVar[str] = "diff"
    title: str
    """One line that says what changes."""
    diffs: Sequence[Diff]
    """The changes as far as they are known before the call."""
    locations: Sequence[Location] = ()
    """Files it touches."""


CallView: TypeAlias = GenericCard | TerminalCard | DiffCard
"""How a pending call looks."""


@dataclass(frozen=True, slots=True)
class GenericResult:
    """A result that fits none of the other cards."""

    card: ClassVar[str] = "generic"
    title: str | None = None
    """Replaces the title of the call; None keeps it."""
    content: Sequence[ContentBlock] | None = None
    """What to show; None shows the result's own content."""


@dataclass(frozen=True, slots=True)
class TerminalResult:
    """What a command printed and how it ended."""

    card: ClassVar[str] = "terminal"
    title: str | None = None
    """Replaces the title of the call; None keeps it."""
    output: str | None = None
    """What it printed."""
    exit_code: int | None = None
    """Its exit code; None when it was killed or is still running."""
    signal: str | None = None
    """Name of the signal that ended it."""
    timed_out_ms: float | None = None
    """The time limit that ended it, in milliseconds; None when it ended in time."""


@dataclass(frozen=True, slots=True)
class DiffResult:
    """The changes that were made."""

    card: ClassVar[str] = "diff"
    title: str | None = None
    """Replaces the title of the call; None keeps it."""
    diffs: Sequence[Diff] = ()
    """The changes."""


ResultView: TypeAlias = GenericResult | TerminalResult | DiffResult
"""How a finished call looks."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a result presenter is given: the logged result."""

    content: Sequence[ContentBlock]
    """What the model read."""
    is_error: bool = False
    """Whether the call failed."""
    meta: JsonObject | None = None
    """What the tool left for user interfaces."""
