"""The figures and how they are printed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "MISS", ""]


@dataclass(frozen=True)
class Figure:
    """One line of the result."""

    name: str
    """What was measured, with its unit."""
    floor: float | None
    """The floor's figure; None where there is no floor."""
    dsh: float
    """Ours."""
    compared: str = ""
    """How they compare."""
    target: str = ""
    """What was to be reached; empty for a figure that is only shown."""
    met: bool | None = None
    """Whether it was; None where there is no target."""

    @property
    def verdict(self) -> Verdict:
        """The last column."""
        return "" if self.met is None else "pass" if self.met else "MISS"


def ratio(name: str, floor: float, dsh: float, *, most: float | None = None) -> Figure:
    """Compare by the ratio of dsh to the floor, which is at most `most`."""
    found = dsh / floor
    target = "" if most is None else f"at most {most:g}x"
    return Figure(
        name, floor, dsh, f"{found:.2f}x", target, None if most is None else found <= most
    )


def above(name: str, floor: float, dsh: float, *, most: float) -> Figure:
    """Compare by the difference to the floor, which is at most `most`."""
    return Figure(
        name, floor, dsh, f"{dsh - floor:+.2f}", f"at most {most:+g}", dsh - floor <= most
    )


def limit(name: str, dsh: float, *, most: float, floor: float | None = None) -> Figure:
    """Compare with a fixed limit."""
    return Figure(name, floor, dsh, "", f"at most {most:g}", dsh <= most)


def median(samples: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(samples)


def table(figures: Sequence[Figure]) -> str:
    """Return figures as a table."""
    rows = [("", "floor", "dsh", "compared", "target", "")]
    rows += [
        (
            figure.name,
            "" if figure.floor is None else _number(figure.floor),
            _number(figure.dsh),
            figure.compared,
            figure.target,
            figure.verdict,
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if 1 <= column <= 3 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"
