"""The environment that is measured: `dsh` as a user installs it, from wheels."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from benchmarks.children import ROOT

APP = "dsh-cli"
"""The distribution that is installed, with all it needs."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with `dsh` in it."""

    folder: Path
    wheels: Path | None = None
    """Where the wheels of this workspace are; None if it is not one of ours."""

    def beside(self, distributions: Sequence[str]) -> Environment:
        """Return an environment with these distributions, which is made when it is first needed.

        One that was given by hand has to have them itself.
        """
        if self.wheels is None:
            return self
        folder = self.folder.with_name("-".join(distributions))
        other = Environment(folder, self.wheels)
        if not folder.exists():
            other.install(distributions)
        return other

    def install(self, distributions: Sequence[str]) -> None:
        """Make the environment, with distributions from our wheels and what they need."""
        assert self.wheels is not None
        _uv("venv", "--python", sys.executable, self.folder)
        _uv(
            *("pip", "install", "--python", self.python, "--find-links", self.wheels),
            *("--compile-bytecode", "--link-mode", "copy", *distributions),
        )

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def dsh(self) -> Path:
        """Its `dsh` command."""
        return self.folder / "bin" / "dsh"

    @property
    def site_packages(self) -> Path:
        """Where its distributions are."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def contents(self) -> Contents:
        """Look at what is installed."""
        files = [path for path in self.site_packages.rglob("*") if path.is_file()]
        sizes = {path: path.stat().st_size for path in files}
        compiled = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
        found = distributions(path=[str(self.site_packages)])
        names = sorted(distribution.name for distribution in found)
        return Contents(
            own=tuple(name for name in names if name.startswith("dsh-")),
            foreign=tuple(name for name in names if not name.startswith("dsh-")),
            source_mb=(sum(sizes.values()) - compiled) / 1e6,
            compiled_mb=compiled / 1e6,
        )


@dataclass(frozen=True)
class Contents:
    """What an environment has installed."""

    own: tuple[str, ...]
    foreign: tuple[str, ...]
    source_mb: float
    """Size of what the wheels contain, in MB."""
    compiled_mb: float
    """Size of the bytecode an installer adds, in MB."""


@contextmanager
def installed() -> Generator[Environment]:
    """Build all wheels of the workspace and install `dsh` from them, for the time of a block."""
    with tempfile.TemporaryDirectory(prefix="dsh-benchmarks-") as name:
        folder = Path(name)
        wheels = folder / "wheels"
        _uv("build", "--all-packages", "--wheel", "--out-dir", wheels)
        environment = Environment(folder / "env", wheels)
        environment.install([APP])
        yield environment


def _uv(*words: str | Path) -> None:
    argv = [sys.executable, "-m", "uv", "--quiet", *map(str, words)]
    try:
        subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{' '.join(argv)} failed:\n{error.stderr}") from None
