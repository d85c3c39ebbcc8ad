"""An environment with another loop: neither the shipped one nor its bundle is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROJECTS = ROOT / "tests" / "wheels" / "projects"
LEFT_OUT = ("dsh-agent-core", "dsh-agent-loop")
OVERRIDES = "".join(f"{name}; sys_platform == 'never'\n" for name in LEFT_OUT)
"""What an operator tells uv to have requirements of these names left out."""

PYTEST_INI = """\
[pytest]
addopts = --import-mode=importlib --strict-markers -ra -p no:cacheprovider
anyio_mode = auto
xfail_strict = true
filterwarnings = error
"""


@pytest.fixture
def acme(environment: Any, wheels: Any) -> Any:
    """Return an environment with dsh-cli, dsh-testkit, acme-loop and acme-core."""
    overrides = environment.folder / "overrides.txt"
    overrides.write_text(OVERRIDES, encoding="utf-8")
    names = set(wheels.closure_names("dsh-cli", "dsh-testkit")) - set(LEFT_OUT)
    chosen = [wheels.by_name[name] for name in sorted(names)]
    ours = [PROJECTS / "acme-loop", PROJECTS / "acme-core"]
    environment.install("--override", str(overrides), *chosen, *ours)
    return environment


@pytest.fixture
def suite(acme: Any) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the repository's own test files with pytest in `acme`.

    The files are copied as they are, next to the README and the manifest of their wheel.
    """
    acme.install("pytest", "trio", "hypothesis", "trustme")
    work = acme.folder / "work"
    work.mkdir(exist_ok=True)
    (work / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
    shutil.copy(ROOT / "conftest.py", work)

    def run(*paths: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        for path in paths:
            _copy(ROOT / path, work / path)
        options = [f"--deselect={name}" for name in without]
        return acme.run(str(acme.python), "-m", "pytest", "-q", *options, *paths)

    return run


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    tests, copied = (source, target) if source.is_dir() else (source.parent, target.parent)
    if tests.name == "tests":
        for name in ("README.md", "pyproject.toml"):
            if (tests.parent / name).is_file():
                shutil.copy(tests.parent / name, copied.parent)
