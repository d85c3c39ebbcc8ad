"""The gate scripts as modules, and small workspaces to feed them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from catalog.shapes import Workspace

ROOT = Path(__file__).resolve().parents[2]

# the scripts import what lies beside them, as they do when they are run
sys.path.insert(0, str(ROOT / "scripts"))

README = (
    "# {name}\n\n"
    + "A wheel that exists to be looked at by a gate, word for word. " * 6
    + "\n\n```python\nimport dsh.{module}\n```\n\n## Limits\n\nNone.\n"
)
METADATA = """description = "A wheel"
readme = "README.md"
license = "MIT"
license-files = ["LICENSE"]
requires-python = ">=3.11"
authors = [{ name = "somebody" }]
classifiers = ["Typing :: Typed"]
"""
KERNEL = """import anyio

__all__ = ["App", "Plugin", "Service", "errors"]


class App: ...


class Plugin:
    name = ""


class Service(Plugin):
    service_key = "shell"
"""
LOCAL = """import dsh.core
from dsh import shell

__all__ = ["Local"]


class Local(dsh.core.Service):
    name = "local-shell"
"""


class Tree:
    """A workspace in a folder of its own, sound until a test breaks it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: list[str] = []
        (root / "LICENSE").write_text("Permission is granted.\n", encoding="utf-8")
        core = self.wheel("dsh-core", "kernel", ["anyio>=4.9"], KERNEL)
        (core / "errors.py").write_text("class Broken(Exception): ...\n", encoding="utf-8")
        self.wheel("dsh-shell", "interface", ["dsh-core==1.0"], "from dsh.core import App\n")
        self.wheel(
            "dsh-local-shell",
            "provider",
            ["dsh-core==1.0", "dsh-shell==1.0"],
            LOCAL,
            {
                "dsh.plugins": {"local-shell": "dsh.local_shell:Local"},
                "dsh.seam.shell": {"local-shell": "dsh.local_shell:Local"},
            },
        )
        self.wheel("dsh-agent-loop", "provider", ["dsh-core==1.0"], "import dsh.core.errors\n")
        self.wheel("dsh-agent-core", "bundle", ["dsh-agent-loop==1.0"], "import dsh.agent_loop\n")
        code, points = "def run() -> None: ...\n", {"scripts": {"d": "dsh.app:run"}}
        self.wheel("dsh-app", "app", ["dsh-agent-core==1.0"], code, points)
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
        readme = README.format(name=name, module=module)
        (folder / "README.md").write_text(readme, encoding="utf-8")
        (folder / "LICENSE").write_text("Permission is granted.\n", encoding="utf-8")
        face = "" if "__all__" in code else "__all__: list[str] = []\n"
        text = f'"""{name}."""\n{code}{face}'
        (package / "__init__.py").write_text(text, encoding="utf-8")
        (package / "py.typed").touch()
        groups = ""
        for group, entries in (points or {}).items():
            head = "project.scripts" if group == "scripts" else f'project.entry-points."{group}"'
            lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in entries.items())
            groups += f"\n[{head}]\n{lines}"
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "{version}"\n{METADATA}'
            f"dependencies = {json.dumps(list(needs))}\n{groups}\n"
            f'[tool.hatch.build.targets.wheel]\nonly-include = ["src/dsh/{module}"]\n\n'
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
            '[project]\nname = "workspace"\nversion = "0"\nrequires-python = ">=3.11"\n'
            "dependencies = [\n"
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


CATALOG_KERNEL = """
from enum import Enum
from typing import Generic, TypeVar
from pydantic import BaseModel

R = TypeVar("R")


class Event: ...
class Emit(Event): ...
class Parallel(Event): ...
class Serial(Event, Generic[R]): ...
class Waterfall(Event, Generic[R]): ...
class StreamWaterfall(Event, Generic[R]): ...
class Next(Generic[R]): ...
class PluginConfig(BaseModel): ...
class Plugin:
    async def start(self) -> None: ...
class Service(Plugin): ...
def inject(service, *, optional=False): ...
def settings(model): ...
def on(event): ...
"""
"""What the catalog has to know a kernel by; not exported, so that no page shows it."""

CATALOG_IMPORTS = """
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, overload
from dsh.core import (
    Emit, Next, Parallel, Plugin, PluginConfig, Serial, Service, StreamWaterfall, Waterfall,
    inject, on, settings,
)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def declared(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a workspace of a small kernel and a wheel `dsh-lamp`.

    It takes the code of the private module `dsh.lamp._lamp`, the names that `dsh.lamp` offers,
    and the entry points of the wheel, and returns the root.
    """
    root = tmp_path / "declared"

    def write(
        code: str, exports: Sequence[str], points: Mapping[str, Mapping[str, str]] | None = None
    ) -> Path:
        names = ", ".join(exports)
        face = f"from dsh.lamp._lamp import {names}\n" if names else ""
        files = {
            "core/__init__.py": f'"""A kernel."""\n__all__: list[str] = []\n{CATALOG_KERNEL}',
            "lamp/__init__.py": f'"""Lamps."""\n{face}__all__ = {list(exports)!r}\n',
            "lamp/_lamp.py": f'"""Lamps."""\n{CATALOG_IMPORTS}\n{code}',
        }
        for wheel, role, entries in (("core", "kernel", {}), ("lamp", "interface", points or {})):
            folder = root / "packages" / f"dsh-{wheel}"
            package = folder / "src" / "dsh" / wheel
            package.mkdir(parents=True, exist_ok=True)
            for file, text in files.items():
                if file.startswith(f"{wheel}/"):
                    (package.parent / file).write_text(text, encoding="utf-8")
            groups = "".join(
                f'[project.entry-points."{group}"]\n'
                + "".join(f"{name} = {json.dumps(value)}\n" for name, value in rows.items())
                for group, rows in entries.items()
            )
            (folder / "pyproject.toml").write_text(
                f'[project]\nname = "dsh-{wheel}"\ndescription = "A {wheel}"\n'
                f'dependencies = []\n{groups}\n[tool.dsh]\nrole = "{role}"\n',
                encoding="utf-8",
            )
        return root

    return write


@pytest.fixture(scope="session")
def workspace() -> Workspace:
    """Return this workspace as the catalog has it; reading it takes seconds."""
    from catalog.model import load_workspace

    return load_workspace(ROOT)


@pytest.fixture(scope="session")
def copy_workspace() -> Callable[[Path], Path]:
    """Return a function that copies what the catalog is made from, and returns the folder."""

    def copy(root: Path) -> Path:
        for place in ("packages", "apps"):
            for manifest in ROOT.glob(f"{place}/*/pyproject.toml"):
                target = root / place / manifest.parent.name
                target.mkdir(parents=True)
                shutil.copy(manifest, target)
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(manifest.parent / "src", target / "src", ignore=ignore)
        return root

    return copy


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


@pytest.fixture
def findings(script: Any, tree: Any) -> Any:
    """Return a function that says what the gate `workspace` finds in the tree."""
    return lambda: script("check_workspace").check(tree.root)
