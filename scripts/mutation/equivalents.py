"""The survivors that no test can kill, with the reason, from `equivalent.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation.engine import Mutant

LIST = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Equivalent:
    """A change that makes no difference.

    Args:
        file: The file, relative to the folder `src` of its wheel.
        function: The function or method, as in a qualified name.
        before: The lines that are changed, stripped.
        after: The lines in their place, stripped.
        reason: Why nobody can tell.
    """

    file: str
    function: str
    before: str
    after: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Return whether the mutant is this change."""
        return (self.file, self.function, self.before, self.after) == (
            mutant.file,
            mutant.function,
            mutant.before,
            mutant.after,
        )


def read(path: Path = LIST) -> list[Equivalent]:
    """Return the list; each entry has to say all that `Equivalent` holds.

    Raises:
        TypeError: An entry lacks a key or has one that means nothing.
    """
    with path.open("rb") as file:
        return [Equivalent(**entry) for entry in tomllib.load(file).get("equivalent", [])]


def stale(entries: Iterable[Equivalent], mutants: Sequence[Mutant]) -> list[Equivalent]:
    """Return the entries about these files that name no survivor: killed, or not there any more."""
    files = {mutant.file for mutant in mutants}
    survivors = [mutant for mutant in mutants if not mutant.killed]
    return [
        entry
        for entry in entries
        if entry.file in files and not any(entry.covers(mutant) for mutant in survivors)
    ]
