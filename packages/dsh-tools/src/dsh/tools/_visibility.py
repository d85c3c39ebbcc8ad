"""What one scope registered with the tool registry, and what a scope sees of it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dsh.core import AnonymousEntries, NamedEntries
from dsh.tools._execution import ToolExecution
from dsh.tools._tool import Tool

__all__ = ["Guard", "Layer", "Restriction", "inherited_names", "known_names", "visible_tools"]

Guard: TypeAlias = Callable[[ToolExecution], str | None]
"""Returns why a call is denied, or None to abstain. Synchronous; it cannot allow anything."""


@dataclass(frozen=True, slots=True, eq=False)
class Restriction:
    """A mask over what a scope inherits."""

    allow: frozenset[str] | None
    deny: frozenset[str]

    def admits(self, name: str) -> bool:
        """Tell whether a tool of this name passes."""
        return name not in self.deny and (self.allow is None or name in self.allow)


class Layer:
    """The tables of one layer; the registry drops a scoped layer when all of them are empty."""

    __slots__ = ("guards", "restrictions", "tools")

    def __init__(self) -> None:
        self.tools: NamedEntries[Tool] = NamedEntries()
        self.restrictions: AnonymousEntries[Restriction] = AnonymousEntries()
        self.guards: AnonymousEntries[Guard] = AnonymousEntries()

    def __len__(self) -> int:
        return len(self.tools) + len(self.restrictions) + len(self.guards)


def visible_tools(chain: Sequence[Layer]) -> dict[str, Tool]:
    """Return the tools a scope sees by name.

    Each layer first masks what it inherits, then adds or replaces with its own: a mask reaches
    every scope further in, and never the tools of the scope that set it.
    """
    seen: dict[str, Tool] = {}
    for layer in chain:
        for mask in layer.restrictions:
            seen = {name: tool for name, tool in seen.items() if mask.admits(name)}
        seen.update(layer.tools.entries)
    return seen


def known_names(chain: Sequence[Layer]) -> list[str]:
    """Return every name a scope could see if nothing were masked."""
    return list(dict.fromkeys(name for layer in chain for name in layer.tools))


def inherited_names(chain: Sequence[Layer], own: Layer) -> list[str]:
    """Return the names that come from outside of a scope's own layer."""
    return known_names([layer for layer in chain if layer is not own])
