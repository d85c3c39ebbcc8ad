"""Mermaid text that parses: ids without surprises, labels in quotes."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


def node_id(prefix: str, name: str) -> str:
    """Return an id for a node; the prefix keeps it off Mermaid's own words, such as `end`."""
    return f"{prefix}_{re.sub(r'[^A-Za-z0-9]', '_', name)}"


def quoted(text: str) -> str:
    """Return a label in quotes, which may then hold any character."""
    return '"' + text.replace('"', "#quot;") + '"'


@dataclass
class Graph:
    """A flow chart in the making; a node or an edge that is added twice stands once."""

    direction: str
    """`LR` or `BT`."""
    _lines: list[str] = field(default_factory=list[str])
    _edges: list[str] = field(default_factory=list[str])

    def node(self, prefix: str, name: str, label: str | None = None, shape: str = "[]") -> str:
        """Add a node and return its id.

        Args:
            prefix: Sort of node; nodes of different sorts may have one name.
            name: Its name.
            label: What it shows, if not its name.
            shape: The brackets around the label, opening ones first.
        """
        half = len(shape) // 2
        identity = node_id(prefix, name)
        line = f"{identity}{shape[:half]}{quoted(label or name)}{shape[half:]}"
        if line not in self._lines:
            self._lines.append(line)
        return identity

    def edge(self, source: str, arrow: str, target: str) -> None:
        """Add an edge between two ids."""
        line = f"{source} {arrow} {target}"
        if line not in self._edges:
            self._edges.append(line)

    @contextmanager
    def frame(self, prefix: str, name: str, label: str) -> Generator[None, None, None]:
        """Draw a frame around the nodes that are added inside the block."""
        self._lines.append(f"subgraph {node_id(prefix, name)}[{quoted(label)}]")
        yield
        self._lines.append("end")

    def text(self) -> str:
        """Return the chart as a fenced block."""
        lines = [f"    {line}" for line in (*self._lines, *self._edges)]
        return fenced([f"flowchart {self.direction}", *lines])


def fenced(lines: list[str]) -> str:
    """Return the lines of a diagram as a fenced block."""
    return "\n".join(["```mermaid", *lines, "```"])
