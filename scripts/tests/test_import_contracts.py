"""The import contracts of this workspace refuse what they are there to refuse."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOOP = "Only a bundle may import the concrete agent loop"
CYCLES = "No wheel imports, over however many steps, one that imports it"
PORTIONS = (
    *("agent", "agent_core", "agent_loop", "cli", "core", "llm", "loader", "session", "testkit"),
    *("tool_bash", "tools"),
)
RUN = "from importlinter.cli import lint_imports_command; lint_imports_command()"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("importlinter") is None,
    reason="needs import-linter, from the dependency group lint",
)


class Namespace:
    """A tiny `dsh` namespace with a few empty portions, under the contracts of this workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        section = text[text.index("[tool.importlinter]") :]
        (root / "pyproject.toml").write_text(section, encoding="utf-8")
        for name in PORTIONS:
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


@pytest.mark.parametrize("way", [["llm", "tools"], ["llm", "session", "agent", "tools"]])
def test_a_cycle_is_refused_however_long_it_is(namespace: Any, way: list[str]) -> None:
    for importer, imported in zip(way, [*way[1:], way[0]], strict=True):
        namespace.portion(importer, f"from dsh.{imported} import inner\n")
    code, out = namespace.lint()
    assert code == 1
    assert f"{CYCLES} BROKEN" in out
    assert f"{LOOP} KEPT" in out


def test_an_import_for_the_type_checker_counts_too(namespace: Any) -> None:
    code = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dsh.tools.inner\n"
    namespace.portion("agent", code)
    namespace.portion("tools", "import dsh.agent.inner\n")
    assert f"{CYCLES} BROKEN" in namespace.lint()[1]
