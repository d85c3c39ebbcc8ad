"""What `dsh new plugin` writes is held to the checks its manifest sets up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.cli import main

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("tool", "gate", "provider", "ui")
NAMES = ("x", "acme-words", "a234567890-b234567890-c234567890-d234567")
"""Names of all lengths, since a long one makes other line breaks than a short one."""


def run(folder: Path, *command: str) -> None:
    sources = [str(path) for path in sorted(ROOT.glob("*/*/src"))]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=os.environ | {"MYPYPATH": os.pathsep.join(["src", *sources])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a project of each kind under each name."""
    folder = tmp_path_factory.mktemp("projects")
    for kind in KINDS:
        for name in NAMES:
            where = str(folder / kind)
            assert main(["new", "plugin", name, "--kind", kind, "--into", where]) == 0
    return folder


def test_the_code_is_clean_under_any_name(projects: Path) -> None:
    run(projects, "ruff", "check", ".")
    run(projects, "ruff", "format", "--check", ".")


@pytest.mark.parametrize("kind", KINDS)
def test_pyright_is_content_with_the_code_and_its_tests(projects: Path, kind: str) -> None:
    folder = projects / kind / "acme-words"
    run(folder, "pyright", "--pythonpath", sys.executable)


@pytest.mark.parametrize("kind", KINDS)
def test_mypy_is_content_with_the_code_and_its_tests(projects: Path, kind: str) -> None:
    folder = projects / kind / "acme-words"
    options = ("--namespace-packages", "--explicit-package-bases", f"--cache-dir={projects}/mypy")
    run(folder, "mypy", *options, "src", "tests")
