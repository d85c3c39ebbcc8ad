"""What one scope registered with the prompt service."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.core import AnonymousEntries, NamedEntries
from dsh.system_prompt._types import SectionText, ToolProvider, VariableProvider

__all__ = ["Layer", "Protection", "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """A registered section."""

    name: str
    order: float
    text: SectionText


@dataclass(frozen=True, slots=True, eq=False)
class Protection:
    """Names that listeners of the assembly cannot change."""

    sections: frozenset[str]
    tools: frozenset[str]


class Layer:
    """The tables of one layer; the registry drops a scoped layer when all of them are empty."""

    __slots__ = ("protections", "providers", "sections", "variables")

    def __init__(self) -> None:
        self.sections: NamedEntries[Section] = NamedEntries()
        self.variables: NamedEntries[VariableProvider] = NamedEntries()
        self.providers: AnonymousEntries[ToolProvider] = AnonymousEntries()
        self.protections: AnonymousEntries[Protection] = AnonymousEntries()

    def __len__(self) -> int:
        return (
            len(self.sections) + len(self.variables) + len(self.providers) + len(self.protections)
        )
