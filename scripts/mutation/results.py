"""What became of the mutants, read from what mutmut has written down."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import json
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.targets import TEST_TOOLS, Target
from mutation.wording import is_meaningless_line


@dataclass(frozen=True)
class Mutant:
    """One change and what became of it.

    Args:
        name: What mutmut calls it.
        file: Its file, relative to the folder `src`.
        function: The function or method, as in a qualified name.
        before: The lines that are changed, stripped.
        after: The lines in their place, stripped.
        status: mutmut's word for how it ended.
    """

    name: str
    file: str
    function: str
    before: str
    after: str
    status: str

    @property
    def killed(self) -> bool:
        """Whether the tests noticed; not ending is noticed too."""
        return self.status in {"killed", "timeout", "segfault"}


def results(target: Target, bench: Path) -> list[Mutant]:
    """Return every mutant there is, in the order of the files."""
    with inside(bench):
        apply: Any = importlib.import_module("mutmut.mutation.diff_apply")
        stats: Any = importlib.import_module("mutmut.stats")
        found: list[Mutant] = []
        for path in sorted(Path("src").rglob("*.py")):
            if not _is_mutated(target, path) or not Path("mutants", f"{path}.meta").is_file():
                continue
            meta = json.loads(Path("mutants", f"{path}.meta").read_text(encoding="utf-8"))
            for name, code in meta["exit_code_by_key"].items():
                before, after = _lines(apply.get_diff_for_mutant(name, path=path))
                if is_meaningless_line(before, after):
                    continue
                status = stats.status_by_exit_code[code]
                file = path.relative_to("src").as_posix()
                found.append(Mutant(name, file, _function(name), before, after, status))
        return found


def _is_mutated(target: Target, path: Path) -> bool:
    place = path.relative_to("src/dsh").as_posix()
    return any(fnmatch.fnmatch(place, pattern) for pattern in target.mutate) and not (
        fnmatch.fnmatch(place, TEST_TOOLS)
    )


def _lines(diff: str) -> tuple[str, str]:
    sides: tuple[list[str], list[str]] = ([], [])
    for line in diff.splitlines():
        if line[:3] in {"---", "+++"}:
            continue
        if line[:1] in {"-", "+"}:
            sides[line[0] == "+"].append(line[1:].strip())
    return "\n".join(sides[0]), "\n".join(sides[1])


def _function(name: str) -> str:
    words = name.rpartition(".")[2].partition("__mutmut_")[0]
    return words[2:].replace("ǁ", ".")


@contextlib.contextmanager
def inside(folder: Path) -> Generator[None]:
    """Work in a folder: mutmut reads its settings and its records from where it runs."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
