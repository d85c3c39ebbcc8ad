"""The request header: what a request holds besides history, and edits from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from dsh.core.vocabulary import WIRE_CONFIG
from dsh.llm import LlmCallConfig, Message, ToolSchema
from dsh.session._open_union import Whole

__all__ = [
    "RequestHeader",
    "SystemDelta",
    "ToolsDelta",
    "apply_system",
    "apply_tools",
    "canonical_header",
    "diff_system",
    "diff_tools",
]


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """Everything in a model request that is not derived history.

    In canonical form (see `canonical_header`) an empty system text, tool list or prefix is
    absent.
    """

    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    config: LlmCallConfig
    """Model and sampling."""
    system: str | None = None
    """The rendered system prompt."""
    tools: tuple[ToolSchema, ...] | None = None
    """The tools that are offered, in their final order."""
    message_prefix: tuple[Message, ...] | None = None
    """The messages that stand before the history."""


@dataclass(frozen=True, slots=True)
class SystemDelta:
    """Edit of the system text by lines; no system text counts as no lines."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    keep_start: Whole
    """Lines kept at the beginning."""
    keep_end: Whole
    """Lines kept at the end."""
    insert: tuple[str, ...]
    """Lines between the two."""


@dataclass(frozen=True, slots=True)
class ToolsDelta:
    """Edit of the tool list by name; it cannot express another order."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE_CONFIG
    added: tuple[ToolSchema, ...] = ()
    """Appended at the end."""
    removed: tuple[str, ...] = ()
    """Names dropped."""
    changed: tuple[ToolSchema, ...] = ()
    """Replaced where they stand."""


def canonical_header(header: RequestHeader) -> RequestHeader:
    """Return the header with empty parts made absent and lists made tuples."""
    return RequestHeader(
        config=header.config,
        system=header.system or None,
        tools=tuple(header.tools) if header.tools else None,
        message_prefix=tuple(header.message_prefix) if header.message_prefix else None,
    )


def diff_system(old: str | None, new: str | None) -> SystemDelta:
    """Return the smallest edit that keeps a common beginning and a common end."""
    before, after = _lines(old), _lines(new)
    limit = min(len(before), len(after))
    start = 0
    while start < limit and before[start] == after[start]:
        start += 1
    end = 0
    while end < limit - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return SystemDelta(start, end, tuple(after[start : len(after) - end]))


def apply_system(old: str | None, delta: SystemDelta) -> str:
    """Return the edited text, empty when no line is left.

    Raises:
        ValueError: The edit keeps more lines than there are.
    """
    before = _lines(old)
    if delta.keep_start < 0 or delta.keep_end < 0:
        raise ValueError("a system edit keeps a negative number of lines")
    if delta.keep_start + delta.keep_end > len(before):
        raise ValueError(
            f"a system edit keeps {delta.keep_start} + {delta.keep_end} of {len(before)} lines"
        )
    tail = before[len(before) - delta.keep_end :]
    return "\n".join((*before[: delta.keep_start], *delta.insert, *tail))


def diff_tools(old: Sequence[ToolSchema], new: Sequence[ToolSchema]) -> ToolsDelta:
    """Return what was added, removed and changed, by name."""
    before = {tool.name: tool for tool in old}
    names = {tool.name for tool in new}
    return ToolsDelta(
        added=tuple(tool for tool in new if tool.name not in before),
        removed=tuple(name for name in before if name not in names),
        changed=tuple(tool for tool in new if tool.name in before and before[tool.name] != tool),
    )


def apply_tools(old: Sequence[ToolSchema], delta: ToolsDelta) -> tuple[ToolSchema, ...]:
    """Return the edited list: removals, then replacements in place, then additions."""
    removed = set(delta.removed)
    changed = {tool.name: tool for tool in delta.changed}
    kept = (changed.get(tool.name, tool) for tool in old if tool.name not in removed)
    return (*kept, *delta.added)


def _lines(text: str | None) -> list[str]:
    return [] if text is None else text.split("\n")
