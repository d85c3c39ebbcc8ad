"""The import contracts of this workspace refuse what they are there to refuse."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOOP = "Only a bundle may import the concrete agent loop"
LAYERS = "kernel < libraries and interfaces < implementations and consumers < bundles < apps"
RUN = "from importlinter.cli import lint_imports_command; lint_imports_command()"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("importlinter") is None,
    reason="needs import-linter, from the dependency group lint",
)


class Namespace:
    """A tiny `dsh` namespace with one empty portion for each one the contracts name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        section = text[text.index("[tool.importlinter]") :]
        (root / "pyproject.toml").write_text(section, encoding="utf-8")
        contracts: list[Any] = tomllib.loads(section)["tool"]["importlinter"]["contracts"]
        layers = next(item["layers"] for item in contracts if item["id"] == "layers")
        for name in [name.strip() for layer in layers for name in layer.split("|")]:
            self.portion(name, "")

    def portion(self, name: str, code: str) -> None:
        """Write a portion, in a source folder of its own as wheels are installed for work."""
        folder = self.root / f"dsh-{name}" / "dsh" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("", encoding="utf-8")
        (folder / "inner.py").write_text(code, encoding="utf-8")

    def lint(self) -> tuple[int, str]:
        """Run the linter where the workspace's own portions cannot be seen."""
        sources = sorted(str(path) for path in self.root.glob("dsh-*"))
        # -S leaves the .pth files alone through which the real portions are installed
        path = os.pathsep.join([*sources, sysconfig.get_path("purelib")])
        done = subprocess.run(
            [sys.executable, "-S", "-c", RUN, "--no-cache"],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def namespace(tmp_path: Path) -> Namespace:
    return Namespace(tmp_path)


def test_imports_that_go_down_pass(namespace: Any) -> None:
    namespace.portion("agent_core", "import dsh.agent_loop.inner\n")
    namespace.portion("cli", "import dsh.agent_core\nimport dsh.core\n")
    namespace.portion("agent_loop", "from dsh.tools import inner\n")
    code, out = namespace.lint()
    assert code == 0, out
    assert "Contracts: 2 kept, 0 broken." in out


@pytest.mark.parametrize("importer", ["cli", "testkit", "loader", "tool_bash", "core"])
def test_only_a_bundle_imports_the_loop(namespace: Any, importer: str) -> None:
    where = "dsh.agent_loop.inner" if importer == "cli" else "dsh.agent_loop"
    namespace.portion(importer, f"import {where}\n")
    code, out = namespace.lint()
    assert code == 1
    assert f"{LOOP} BROKEN" in out
    assert f"dsh.{importer}.inner -> {where} (l.1)" in out


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("core", "process"),
        ("llm", "session"),
        ("session", "session_persistence"),
        ("agent", "tools"),
        ("tools", "bash_local"),
        ("bash_local", "agent_core"),
        ("agent_core", "cli"),
        ("testkit", "cli"),
        ("bash_local", "tool_bash"),
        ("llm_replay", "llm_deepseek"),
        ("loader", "invariants"),
        ("approval", "system_prompt"),
    ],
)
def test_nobody_imports_a_sibling_or_upwards(namespace: Any, importer: str, imported: str) -> None:
    namespace.portion(importer, f"from dsh import {imported}\n")
    code, out = namespace.lint()
    assert code == 1
    assert f"{LAYERS} BROKEN" in out
    assert f"dsh.{importer} is not allowed to import dsh.{imported}" in out


def test_an_import_for_the_type_checker_counts_too(namespace: Any) -> None:
    code = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dsh.tools.inner\n"
    namespace.portion("agent", code)
    assert "dsh.agent is not allowed to import dsh.tools" in namespace.lint()[1]


def test_a_portion_without_a_layer(namespace: Any) -> None:
    namespace.portion("newcomer", "")
    code, out = namespace.lint()
    assert code == 1
    assert f"{LAYERS} BROKEN" in out
    assert "newcomer" in out
