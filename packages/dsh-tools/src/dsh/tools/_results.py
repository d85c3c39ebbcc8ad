"""What a tool returns and what a call comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsh.agent import HookContext
from dsh.core import JsonObject
from dsh.llm import ContentBlock
from dsh.session import ErrorInfo

__all__ = ["ToolExecutionResult", "ToolOutput"]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool body returns when it has more to say than a text."""

    content: Sequence[ContentBlock]
    """What the model reads, verbatim; may be empty."""
    meta: JsonObject | None = None
    """Facts for user interfaces; JSON only, logged with the result, never shown to the model."""


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """The outcome of a call.

    What the pipeline hands out is immutable through and through, `meta` too: it refuses every
    change, and `copy.deepcopy` gives one that can change.
    """

    call_id: str
    """The id of the call it answers."""
    content: tuple[ContentBlock, ...]
    """What the model reads."""
    is_error: bool = False
    """Whether the call failed or was refused."""
    error: ErrorInfo | None = None
    """Class name and stable code of a harness error; None for any other failure."""
    additional_context: tuple[HookContext, ...] = ()
    """Messages to log after the results of the step, in this order."""
    meta: JsonObject | None = None
    """Facts for user interfaces."""
