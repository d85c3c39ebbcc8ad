"""The gate scripts as modules, and small workspaces to feed them."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

README = "# {name}\n\n" + "A wheel that exists to be looked at by a gate, word for word. " * 6


class Tree:
    """A workspace in a folder of its own, sound until a test breaks it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: list[str] = []
        (root / "LICENSE").write_text("Permission is granted.\n", encoding="utf-8")
        self.wheel("dsh-core", "kernel", ["anyio>=4.9"], "import anyio\n")
        self.wheel("dsh-shell", "interface", ["dsh-core==1.0"], "from dsh.core import App\n")
        self.wheel(
            "dsh-local-shell",
            "provider",
            ["dsh-core==1.0", "dsh-shell==1.0"],
            "import dsh.core\nfrom dsh import shell\n\n\nclass Local: ...\n",
            {
                "dsh.plugins": {"local-shell": "dsh.local_shell:Local"},
                "dsh.seam.shell": {"local-shell": "dsh.local_shell:Local"},
            },
        )
        self.wheel("dsh-agent-loop", "provider", ["dsh-core==1.0"], "import dsh.core.errors\n")
        self.wheel("dsh-agent-core", "bundle", ["dsh-agent-loop==1.0"], "import dsh.agent_loop\n")
        self.wheel("dsh-app", "app", ["dsh-agent-core==1.0"], "", {"scripts": {"d": "dsh.app:run"}})
        self.write_root()

    def wheel(
        self,
        name: str,
        role: str,
        needs: Sequence[str] = (),
        code: str = "",
        points: Mapping[str, Mapping[str, str]] | None = None,
        version: str = "1.0",
    ) -> Path:
        """Write a wheel, or write it anew, and return its package."""
        folder = self.folder(name) or self.root / ("apps" if role == "app" else "packages") / name
        module = name.removeprefix("dsh-").replace("-", "_")
        package = folder / "src" / "dsh" / module
        package.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(README.format(name=name), encoding="utf-8")
        (folder / "LICENSE").write_text("Permission is granted.\n", encoding="utf-8")
        (package / "__init__.py").write_text(f'"""{name}."""\n{code}', encoding="utf-8")
        (package / "py.typed").touch()
        groups = ""
        for group, entries in (points or {}).items():
            head = "project.scripts" if group == "scripts" else f'project.entry-points."{group}"'
            lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in entries.items())
            groups += f"\n[{head}]\n{lines}"
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "{version}"\n'
            f"dependencies = {json.dumps(list(needs))}\n{groups}\n"
            f'[tool.dsh]\nrole = "{role}"\n',
            encoding="utf-8",
        )
        if name not in self.names:
            self.names.append(name)
        return package

    def folder(self, name: str) -> Path | None:
        """Return the folder of a wheel that was written."""
        for place in ("packages", "apps"):
            if (self.root / place / name).is_dir():
                return self.root / place / name
        return None

    def write_root(self) -> None:
        """Write the root manifest, naming every wheel."""
        sources = "".join(f"{name} = {{ workspace = true }}\n" for name in self.names)
        self.write(
            "pyproject.toml",
            '[project]\nname = "workspace"\nversion = "0"\ndependencies = [\n'
            + "".join(f'    "{name}",\n' for name in self.names)
            + f"]\n\n[tool.uv]\npackage = false\n\n[tool.uv.sources]\n{sources}\n",
        )

    def write(self, path: str, text: str) -> Path:
        """Write a file below the root."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that stands in a file once."""
        target = self.root / path
        text = target.read_text(encoding="utf-8")
        assert text.count(old) == 1, (path, old)
        target.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """Return a function that imports a gate script by its name."""

    def load(name: str) -> ModuleType:
        key = f"gate_script_{name}"
        if key not in sys.modules:
            spec = importlib.util.spec_from_file_location(key, ROOT / "scripts" / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[key] = module  # dataclasses look their module up
            spec.loader.exec_module(module)
        return sys.modules[key]

    return load
