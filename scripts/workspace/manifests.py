"""What every wheel carries: its files, its metadata, its README, its place among the others."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workspace.wheels import ROLES, Wheel

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def check_layout(wheel: Wheel, root: Path) -> Iterator[str]:
    """Check the files of a wheel."""
    for name in ("README.md", "LICENSE"):
        if not (wheel.folder / name).is_file():
            yield f"{wheel.name}: {name} is missing"
    own, common = wheel.folder / "LICENSE", root / "LICENSE"
    if own.is_file() and common.is_file() and own.read_bytes() != common.read_bytes():
        yield f"{wheel.name}: LICENSE differs from the one of the workspace; copy that"
    namespace = wheel.folder / "src" / "dsh"
    if (namespace / "__init__.py").exists():
        yield f"{wheel.name}: src/dsh/__init__.py would break every other wheel; remove it"
    entries = {p.name for p in namespace.iterdir() if p.name != "__pycache__"}
    if entries - {"__init__.py"} != {wheel.module}:
        yield f"{wheel.name}: src/dsh must hold {wheel.module} alone, not {sorted(entries)}"
    for name in ("__init__.py", "py.typed"):
        if not (wheel.package / name).is_file():
            yield f"{wheel.name}: {wheel.module}/{name} is missing"
    if wheel.role not in ROLES:
        yield f"{wheel.name}: [tool.dsh] role {wheel.role!r} is not one of {sorted(ROLES)}"


def check_metadata(wheel: Wheel, root_project: dict[str, Any]) -> Iterator[str]:
    """Check what an index shows of a wheel.

    There are no URLs: the project has no public address yet.
    """
    project = wheel.project
    description = project.get("description", "")
    if not description or len(description) > 100 or description.endswith("."):
        yield (
            f"{wheel.name}: description must say in one line of at most 100 characters, without "
            "a full stop, what the wheel is"
        )
    expected = {
        "readme": "README.md",
        "license": "MIT",
        "license-files": ["LICENSE"],
        "requires-python": root_project.get("requires-python"),
    }
    for key, value in expected.items():
        if project.get(key) != value:
            yield f"{wheel.name}: {key} must be {value!r}, not {project.get(key)!r}"
    if not project.get("authors"):
        yield f"{wheel.name}: authors is missing"
    if "Typing :: Typed" not in project.get("classifiers", []):
        yield f"{wheel.name}: classifiers must have 'Typing :: Typed': it ships py.typed"
    build = wheel.manifest.get("tool", {}).get("hatch", {}).get("build", {})
    included = build.get("targets", {}).get("wheel", {}).get("only-include")
    if included != [f"src/dsh/{wheel.module}"]:
        yield f"{wheel.name}: the wheel must only-include src/dsh/{wheel.module}, not {included}"


def check_readme(wheel: Wheel) -> Iterator[str]:
    """Check that a README says what the wheel is, shows it, and says what it does not do."""
    path = wheel.folder / "README.md"
    if not path.is_file():
        return
    text = path.read_text(encoding="utf-8")
    if len(text.split()) < 60:
        yield f"{wheel.name}: README.md says next to nothing"
        return
    if not text.startswith(f"# {wheel.name}\n"):
        yield f"{wheel.name}: README.md must begin with the heading '# {wheel.name}'"
    if not re.match(r"#.*\n\n[A-Z`*]", text):
        yield f"{wheel.name}: README.md must say under its heading what the wheel is"
    if not _FENCE.search(text):
        yield f"{wheel.name}: README.md shows no example; add a block of code, a file or a command"
    if not re.search(r"^##+ Limits\b", _FENCE.sub("", text), re.MULTILINE):
        yield f"{wheel.name}: README.md has no section '## Limits'; say what the wheel does not do"


def check_versions(wheel: Wheel, own: dict[str, Wheel], version: str) -> Iterator[str]:
    """Check the lockstep version and the pins between own wheels."""
    if wheel.version != version:
        yield f"{wheel.name}: version {wheel.version} differs from dsh-core's {version}"
    for name, constraint in wheel.dependencies.items():
        if name in own and constraint != f"=={version}":
            yield f"{wheel.name}: {name} must be pinned =={version}, not {constraint or 'nothing'}"
        if name not in own and constraint.startswith("=="):
            yield f"{wheel.name}: {name}{constraint} pins a foreign distribution; give a floor"


def check_roles(wheel: Wheel, own: dict[str, Wheel]) -> Iterator[str]:
    """Check that a role depends only on roles below it, and the loop only on nobody."""
    allowed = ROLES.get(wheel.role, frozenset())
    for name in wheel.dependencies:
        if name not in own:
            continue
        if own[name].role not in allowed:
            yield f"{wheel.name} ({wheel.role}) may not depend on {name} ({own[name].role})"
        if name == "dsh-agent-loop" and wheel.role != "bundle":
            yield f"{wheel.name}: only a bundle may depend on dsh-agent-loop"


def root_project(root: Path) -> dict[str, Any]:
    """Return the `[project]` table of the workspace's own manifest."""
    project: dict[str, Any] = _root_manifest(root)["project"]
    return project


def check_root(root: Path, wheels: list[Wheel]) -> Iterator[str]:
    """Check that the workspace's own manifest names every wheel."""
    data = _root_manifest(root)
    names = {wheel.name for wheel in wheels}
    for label, listed in (
        ("dependencies", set(data["project"]["dependencies"])),
        ("tool.uv.sources", set(data["tool"]["uv"]["sources"])),
    ):
        for name in sorted(names ^ listed):
            yield f"pyproject.toml: {label} and the workspace disagree about {name}"


def _root_manifest(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
