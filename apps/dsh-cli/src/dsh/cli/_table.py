"""Columns of plain text."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows in aligned columns under a head; the last column is as wide as it likes."""
    everything = [head, *rows]
    widths = [max(len(row[i]) for row in everything) for i in range(len(head) - 1)]
    return "\n".join(
        "  ".join(
            [
                *(cell.ljust(width) for cell, width in zip(row, widths, strict=False)),
                row[-1],
            ]
        ).rstrip()
        for row in everything
    )
