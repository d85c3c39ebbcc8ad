"""What the readers of declarations share: the sources, and the list of what is amiss in them."""

from __future__ import annotations

from dataclasses import dataclass, field

import griffe

from catalog.shapes import Item, Problem, Wheel
from catalog.tree import MODES, SourceTree

_ROOTS = {"Event", "Plugin", "Service", "SessionData", "PluginConfig", *MODES}
"""Bases whose members are not worth a line in every class."""


@dataclass
class Reader:
    """The sources being read."""

    tree: SourceTree
    wheels: tuple[Wheel, ...]
    problems: list[Problem] = field(default_factory=list[Problem])

    def report(self, thing: griffe.Object, message: str) -> None:
        """Note a hole in the catalog."""
        self.problems.append(Problem(self.tree.source(thing), message))

    def own(self, cls: griffe.Class) -> list[griffe.Class]:
        """Return a class and its bases up to what the kernel and the session seam bring along."""
        return [one for one in self.tree.ancestry(cls) if one is cls or one.name not in _ROOTS]

    def needs_doc(self, thing: griffe.Object, what: str) -> None:
        """Report a missing docstring."""
        if thing.docstring is None:
            self.report(thing, f"{what} has no docstring; write one, the catalog shows it")

    def needs_public(self, thing: griffe.Object, what: str) -> None:
        """Report what nobody can import."""
        if not self.tree.is_public(thing):
            self.report(thing, f"{what} is in no public module; export it in `__all__`")

    def checks_params(
        self, thing: griffe.Object, what: str, documented: tuple[Item, ...], names: tuple[str, ...]
    ) -> None:
        """Report documented parameters that do not exist."""
        known = {name.lstrip("*") for name in names}
        for item in documented:
            if item.name.lstrip("*") not in known:
                self.report(thing, f"{what} documents a parameter {item.name!r} that it has not")
