"""The command lines of the gates: each says how it is used, and none passes on nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1]
EVERY = sorted(path.name for path in SCRIPTS.glob("*.py") if "main(" in path.read_text("utf-8"))
OF_A_WORKSPACE = [
    "check_docstrings.py",
    "check_events.py",
    "check_types.py",
    "check_workspace.py",
    "generate.py",
]
"""Scripts that take the workspace as their argument and look at its wheels."""


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", [name for name in EVERY if name != "build_site.py"])
def test_every_script_explains_itself(script: str) -> None:
    """`build_site.py` may run itself again, in an environment that is made for it."""
    done = run(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {script} ")


@pytest.mark.parametrize("script", [*OF_A_WORKSPACE, "check_conformance.py"])
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_no_workspace(script: str, there: bool, tmp_path: Path) -> None:
    root = tmp_path / "elsewhere"
    if there:
        (root / "packages").mkdir(parents=True)
    done = run(script, root)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"error: argument ROOT: {root} is no " in done.stderr or (
        f"error: {root} is no workspace: there is no tests/conformance.md in it" in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert not (root / "docs").exists()


def test_a_root_without_pages(tmp_path: Path) -> None:
    done = run("check_docs.py", "--root", tmp_path)
    assert done.returncode == 2
    assert f"error: --root {tmp_path}: no page is there to be checked" in done.stderr


def test_a_page_of_the_documentation_that_is_not_there(tmp_path: Path) -> None:
    done = run("check_docs.py", tmp_path / "typo.md")
    assert done.returncode == 2
    assert f"error: there is no page {tmp_path / 'typo.md'}" in done.stderr


def test_a_page_of_the_catalog_that_is_not_there() -> None:
    done = run("generate.py", "--check", "--only", "typo.md", "--only", "errors.md")
    assert done.returncode == 2
    assert "error: no page typo.md; there are README.md, a-turn.md, " in done.stderr


def test_a_new_package_in_a_folder_that_is_no_workspace(tmp_path: Path) -> None:
    done = run("new_package.py", "dsh-x", "An x", "--role", "library", "--root", tmp_path)
    assert done.returncode == 2
    assert f"error: --root {tmp_path} is no workspace" in done.stderr
    assert not (tmp_path / "packages").exists()


def test_a_gate_that_is_not_there() -> None:
    done = run("gates.py", "ruff", "typo")
    assert done.returncode == 2
    assert "error: no gate or group typo; there are the gates " in done.stderr
