"""What the readers of declarations share: the sources, and the list of what is amiss in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

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

    @cached_property
    def listed(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """The names of entry points by their group and the path of what they name."""
        found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for wheel in self.wheels:
            for point in wheel.entry_points:
                target = self.tree.find(point.value.replace(":", "."))
                if target is not None:
                    found[point.group, target.path].append(point.name)
        return {place: tuple(sorted(names)) for place, names in found.items()}

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
