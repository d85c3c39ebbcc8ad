"""Builds every wheel once, and makes empty environments to install them into."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def uv(*arguments: str, cwd: Path = ROOT) -> str:
    """Run uv and return what it printed."""
    program = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [str(program) if program.exists() else "uv", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a home of its own."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def install(self, *what: str | Path) -> None:
        uv("pip", "install", "-q", "--python", str(self.python), *map(str, what))

    def uninstall(self, *names: str) -> None:
        uv("pip", "uninstall", "-q", "--python", str(self.python), *names)

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in an empty folder, with an empty home."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        variables = {
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            command,
            cwd=work,
            env=variables,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def write_config(self, text: str) -> None:
        folder = self.home / ".dsh"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "dsh.yaml").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Wheels:
    """The built wheels of the workspace."""

    by_name: dict[str, Path]

    def closure(self, *names: str) -> Sequence[Path]:
        """Return the wheels that `names` need, themselves included."""
        found: dict[str, Path] = {}
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in found or name not in self.by_name:
                continue
            found[name] = self.by_name[name]
            pending += [line.split("==")[0] for line in _dependencies(name)]
        return sorted(found.values())


def _dependencies(name: str) -> list[str]:
    for folder in ("packages", "apps"):
        manifest = ROOT / folder / name / "pyproject.toml"
        if manifest.is_file():
            data = tomllib.loads(manifest.read_text(encoding="utf-8"))
            return [str(item) for item in data["project"]["dependencies"]]
    return []


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    dist = tmp_path_factory.mktemp("dist")
    uv("build", "-q", "--all-packages", "--wheel", "-o", str(dist))
    built = {path.name.split("-")[0].replace("_", "-"): path for path in dist.glob("*.whl")}
    return Wheels(built)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    uv("venv", "-q", "--python", sys.executable, str(tmp_path / "venv"))
    (tmp_path / "home").mkdir()
    return Environment(tmp_path)


@pytest.fixture
def dsh(environment: Environment, wheels: Wheels) -> Environment:
    environment.install(*wheels.closure("dsh-cli"))
    return environment


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small project and returns its folder."""

    def write(name: str, module: str, source: str, entry_points: str) -> Path:
        folder = tmp_path / name
        (folder / "src").mkdir(parents=True)
        (folder / "src" / f"{module}.py").write_text(source, encoding="utf-8")
        (folder / "pyproject.toml").write_text(
            f"""\
[build-system]
requires = ["hatchling>=1.27,<2"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"

{entry_points}

[tool.hatch.build.targets.wheel]
only-include = ["src/{module}.py"]
sources = ["src"]
core-metadata-version = "2.4"
""",
            encoding="utf-8",
        )
        return folder

    return write
