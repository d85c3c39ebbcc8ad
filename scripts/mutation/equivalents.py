"""The survivors that no test can kill, with the reason, from `equivalent.toml`."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation.results import Mutant

LIST = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Equivalent:
    """A change that makes no difference, or all changes of a place where none does.

    Args:
        file: The file, relative to the folder `src` of its wheel; may be a pattern.
        function: The function or method, as in a qualified name; may be a pattern.
        reason: Why nobody can tell.
        before: The lines that are changed, stripped; any if it is left out.
        after: The lines in their place, stripped; any if it is left out.
    """

    file: str
    function: str
    reason: str
    before: str | None = None
    after: str | None = None

    def covers(self, mutant: Mutant) -> bool:
        """Return whether the mutant is this change."""
        return (
            fnmatch.fnmatchcase(mutant.file, self.file)
            and fnmatch.fnmatchcase(mutant.function, self.function)
            and self.before in {None, mutant.before}
            and self.after in {None, mutant.after}
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
        if fnmatch.filter(files, entry.file) and not any(entry.covers(m) for m in survivors)
    ]
