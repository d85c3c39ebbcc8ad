"""Builds every wheel once a run, and makes empty environments to install them into.

With xdist the workers share what the first of them builds. Nothing is built in isolation:
hatchling comes from the environment of the tests. What the wheels need of others comes in the
locked versions.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120


def uv(*arguments: str | Path, cwd: Path = ROOT, code: int = 0) -> str:
    """Run uv and return what it printed."""
    program = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [str(program) if program.exists() else "uv", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def build(source: Path, kind: str, into: Path, *options: str) -> None:
    """Build an sdist or a wheel of a project, of an sdist, or of every wheel of the workspace."""
    tools = ("--no-build-isolation", "--python", sys.executable)
    uv("build", "-q", f"--{kind}", *tools, "-o", into, *options, source)


def metadata_of(wheel: Path) -> Message:
    """Return the core metadata inside a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode("utf-8"))


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a home of its own."""

    folder: Path
    constraints: Path
    """The versions of others' distributions."""

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def install(self, *what: str | Path) -> None:
        """Install wheels, projects, names or with options; a project is built first."""
        given = [self._built(item) if isinstance(item, Path) else item for item in what]
        uv("pip", "install", "-q", "--python", self.python, "-c", self.constraints, *given)

    def _built(self, item: Path) -> Path:
        if not item.is_dir():
            return item
        into = self.folder / "built" / item.name
        shutil.rmtree(into, ignore_errors=True)
        build(item, "wheel", into)
        (wheel,) = into.glob("*.whl")
        return wheel

    def uninstall(self, *names: str) -> None:
        uv("pip", "uninstall", "-q", "--python", self.python, *names)

    def run(
        self, *command: str, stdin: str = "", variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in an empty folder, with an empty home."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        given = {
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            **(variables or {}),
        }
        return subprocess.run(
            command,
            cwd=work,
            env=given,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def script(self, code: str, *arguments: str) -> str:
        """Run Python code, warnings being errors; return what it printed."""
        done = self.run(str(self.python), "-W", "error", "-c", code, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def installed(self) -> dict[str, str]:
        """Return the version of each distribution."""
        listed = uv("pip", "list", "-q", "--python", self.python, "--format", "json")
        return {item["name"]: item["version"] for item in json.loads(listed)}

    def write_config(self, text: str) -> None:
        """Write the user's own deployment."""
        folder = self.home / ".dsh"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "dsh.yaml").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Wheels:
    """The built wheels of the workspace."""

    by_name: dict[str, Path]
    dist: Path
    """The folder they lie in."""
    constraints: Path
    """A file with the locked version of each distribution of others."""

    def closure(self, *names: str) -> list[Path]:
        """Return the wheels that `names` say they need, themselves included."""
        return [self.by_name[name] for name in self.closure_names(*names)]

    def closure_names(self, *names: str) -> list[str]:
        """Return the names of what `closure` returns, sorted."""
        found: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in found or name not in self.by_name:
                continue
            found.add(name)
            required = metadata_of(self.by_name[name]).get_all("Requires-Dist", [])
            pending += [re.split(r"[^\w.-]", line)[0] for line in required if ";" not in line]
        return sorted(found)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheels"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def once(folder: Path, name: str) -> Generator[Path | None]:
    """Give the folder to fill to the first one that comes, and `None` to all after it."""
    made = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            yield None
            return
        fresh = folder / f"{name}.part"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        yield fresh
        fresh.rename(made)


@pytest.fixture(scope="session")
def wheels(shared: Path) -> Wheels:
    """Return every wheel, built from the tree."""
    with once(shared, "dist") as fresh:
        if fresh is not None:
            build(ROOT, "wheel", fresh, "--all-packages")
            locked = ("--all-packages", "--all-groups", "--no-emit-workspace", "--no-hashes")
            uv("export", "-q", "--frozen", *locked, "--no-header", "-o", fresh / "constraints.txt")
    dist = shared / "dist"
    built = {path.name.split("-")[0].replace("_", "-"): path for path in dist.glob("*.whl")}
    return Wheels(built, dist, dist / "constraints.txt")


@pytest.fixture(scope="session")
def sdists(shared: Path) -> dict[str, Path]:
    """Return every source distribution by the name of its wheel."""
    with once(shared, "sdist") as fresh:
        if fresh is not None:
            build(ROOT, "sdist", fresh, "--all-packages")
    return {
        path.name.rsplit("-", 1)[0].replace("_", "-"): path
        for path in (shared / "sdist").glob("*.tar.gz")
    }


@pytest.fixture(scope="session")
def build_wheel() -> Callable[[Path, Path], Path]:
    """Return a function that builds the wheel of a project or an sdist into a new folder."""

    def make(source: Path, into: Path) -> Path:
        build(source, "wheel", into)
        (wheel,) = into.glob("*.whl")
        return wheel

    return make


@pytest.fixture
def environment(tmp_path: Path, wheels: Wheels) -> Environment:
    """Return an environment with nothing in it."""
    uv("venv", "-q", "--python", sys.executable, tmp_path / "venv")
    (tmp_path / "home").mkdir()
    return Environment(tmp_path, wheels.constraints)


@pytest.fixture
def dsh(environment: Environment, wheels: Wheels) -> Environment:
    """Return an environment with what `pip install dsh-cli` gives."""
    environment.install(*wheels.closure("dsh-cli"))
    return environment


@pytest.fixture
def uv_pip() -> Callable[..., str]:
    """Return a function that runs `uv pip COMMAND` on an environment."""

    def run(where: Environment, command: str, *arguments: str | Path) -> str:
        return uv("pip", command, "--python", where.python, *arguments)

    return run


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


@pytest.fixture
def playing() -> Callable[..., str]:
    """Return a function that makes a deployment whose model plays steps, then says `finished`."""

    def deployment(*steps: dict[str, Any]) -> str:
        script = json.dumps([*steps, {"text": "finished"}])
        return f"""\
version: 1
model: replay/scripted
plugins:
  - {{use: llm-replay, config: {{script: {script}}}}}
"""

    return deployment
