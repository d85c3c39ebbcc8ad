"""What importing each wheel costs, and what it drags in.

Counted is what the modules of a wheel need for themselves, in a fresh interpreter with the garbage
collector off (its passes would be charged to whoever happens to be imported then), the least of
several runs. The unit is the time of `import httpx` on the same machine, so that a budget means
the same everywhere. What a wheel drags in is every package from outside that is loaded after the
import; that list is exact.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.machine import on_core

_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s+([\w.]+)")
_PACKAGES = """
import sys, {module}
found = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
marker = "/site-packages/"
print(*sorted({{path.partition(marker)[2].partition("/")[0].removesuffix(".py")
                for path in found if marker in path}}))
"""

YARDSTICK = "httpx"

ALLOWED = frozenset(
    {
        *("anyio", "typing_extensions"),
        *("pydantic", "pydantic_core", "annotated_types", "typing_inspection"),
    }
)
"""What importing any wheel may load."""

BUDGET = 0.15
"""What importing a wheel may cost for itself, as a share of the yardstick."""

BUDGETS = {
    "dsh.agent": 0.3,
    "dsh.core": 0.25,
    "dsh.llm": 0.4,
    "dsh.llm_deepseek": 0.2,
    "dsh.loader": 0.25,
    "dsh.session": 0.6,
    "dsh.tools": 0.35,
}
"""The budgets of wheels that define more."""


@dataclass(frozen=True)
class Cost:
    """What importing one module costs."""

    module: str
    own_ms: float
    """Time of the modules of its wheel."""
    all_ms: float
    """Time of everything a fresh interpreter imports for it."""
    foreign: tuple[str, ...]
    """Packages from outside that are loaded."""

    @property
    def budget(self) -> float:
        """What `own_ms` should not exceed, as a share of the yardstick."""
        return BUDGETS.get(self.module, BUDGET)

    @property
    def surplus(self) -> tuple[str, ...]:
        """Packages that an import should not load."""
        return tuple(name for name in self.foreign if name not in ALLOWED)

    def fits(self, yardstick_ms: float) -> bool:
        """Whether the wheel keeps to its budget."""
        return self.own_ms <= self.budget * yardstick_ms and not self.surplus


def wheels(site_packages: Path) -> list[str]:
    """Return the modules of the wheels that are installed."""
    return sorted(f"dsh.{path.parent.name}" for path in site_packages.glob("dsh/*/__init__.py"))


def costs(python: Path, modules: Sequence[str], core: int | None, repeat: int) -> list[Cost]:
    """Import modules in turns, each time in a fresh interpreter, and return what that took."""
    runs: dict[str, list[dict[str, float]]] = {module: [] for module in modules}
    for _ in range(repeat):
        for module in modules:
            runs[module].append(_import(python, module, core))
    return [_cost(python, module, runs[module]) for module in modules]


def _cost(python: Path, module: str, runs: Sequence[dict[str, float]]) -> Cost:
    own = [name for name in runs[0] if name == module or name.startswith(f"{module}.")]
    return Cost(
        module,
        own_ms=min(sum(run.get(name, 0) for name in own) for run in runs),
        all_ms=min(sum(run.values()) for run in runs),
        foreign=_foreign(python, module),
    )


def _import(python: Path, module: str, core: int | None) -> dict[str, float]:
    """Return the milliseconds of each module that `import module` loads, its own time alone."""
    with on_core(core):
        done = _python(
            python, "-X", "importtime", "-c", f"import gc; gc.disable(); import {module}"
        )
    found = [_LINE.match(line) for line in done.stderr.splitlines()]
    return {line[3]: int(line[1]) / 1000 for line in found if line}


def _foreign(python: Path, module: str) -> tuple[str, ...]:
    done = _python(python, "-c", _PACKAGES.format(module=module))
    return tuple(name for name in done.stdout.split() if name != "dsh")


def _python(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
