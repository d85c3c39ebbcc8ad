"""Gate: every wheel of the workspace is whole, honest about its imports, and in its place.

Checks per wheel: one portion under `src/dsh` with `__init__.py` and `py.typed` and nothing in the
shared namespace folder; README, LICENSE, lockstep version and `==` pins between own wheels;
declared dependencies equal imported ones; no private module of another wheel is imported; entry
points name modules that exist; roles depend only on roles below them; files stay short.

Usage: `python scripts/check_workspace.py [ROOT]`. Prints one line per finding; exits 1 if any.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HARD_LINES = 600
HARD_TEST_LINES = 1000
LONG_FILES: dict[str, int] = {}
"""Files over the limit, with the size they may not exceed; this list only shrinks."""

ALLOWED_ROLES: dict[str, frozenset[str]] = {
    "kernel": frozenset(),
    "library": frozenset({"kernel", "library", "interface"}),
    "interface": frozenset({"kernel", "library", "interface"}),
    "provider": frozenset({"kernel", "library", "interface"}),
    "consumer": frozenset({"kernel", "library", "interface"}),
    "bundle": frozenset({"kernel", "library", "interface", "provider", "consumer"}),
    "testkit": frozenset({"kernel", "library", "interface", "provider", "consumer", "bundle"}),
    "app": frozenset({"kernel", "library", "interface", "provider", "consumer", "bundle"}),
}

MODULES_OF = {
    "ruamel-yaml": {"ruamel"},
    "griffelib": {"griffe"},
    # pydantic pins its core exactly, so declaring the core beside it would say nothing
    "pydantic": {"pydantic", "pydantic_core"},
}
"""Modules of distributions whose name does not spell them."""


@dataclass
class Wheel:
    """One wheel as its manifest and its sources describe it."""

    folder: Path
    name: str
    version: str
    role: str
    dependencies: dict[str, str]
    entry_points: dict[str, dict[str, str]]
    imports: set[str] = field(default_factory=set[str])

    @property
    def module(self) -> str:
        """The portion of the namespace it owns."""
        return self.name.removeprefix("dsh-").replace("-", "_")

    @property
    def package(self) -> Path:
        """Where that portion lies."""
        return self.folder / "src" / "dsh" / self.module


def read_wheels(root: Path) -> list[Wheel]:
    """Read every manifest of the workspace."""
    wheels: list[Wheel] = []
    for manifest in sorted(
        [*root.glob("packages/*/pyproject.toml"), *root.glob("apps/*/pyproject.toml")]
    ):
        data: dict[str, Any] = tomllib.loads(manifest.read_text(encoding="utf-8"))
        project = data["project"]
        points = dict(project.get("entry-points", {}))
        points["console"] = project.get("scripts", {})
        wheels.append(
            Wheel(
                folder=manifest.parent,
                name=project["name"],
                version=project["version"],
                role=data.get("tool", {}).get("dsh", {}).get("role", ""),
                dependencies=dict(_requirement(line) for line in project["dependencies"]),
                entry_points=points,
            )
        )
    return wheels


def _requirement(line: str) -> tuple[str, str]:
    found = re.match(r"([A-Za-z0-9._-]+)(\[[^]]*\])?\s*(.*)", line)
    if found is None:
        raise SystemExit(f"cannot read requirement {line!r}")
    return found[1].lower().replace("_", "-").replace(".", "-"), found[3].split(";")[0].strip()


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Yield `(line, dotted name)` of everything a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "dsh":
                yield from ((node.lineno, f"dsh.{alias.name}") for alias in node.names)
            else:
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def check_layout(wheel: Wheel) -> Iterator[str]:
    """Check files that every wheel has."""
    for name in ("README.md", "LICENSE"):
        if not (wheel.folder / name).is_file():
            yield f"{wheel.name}: {name} is missing"
    namespace = wheel.folder / "src" / "dsh"
    if (namespace / "__init__.py").exists():
        yield f"{wheel.name}: src/dsh/__init__.py would break every other wheel; remove it"
    entries = {p.name for p in namespace.iterdir() if p.name != "__pycache__"}
    if entries - {"__init__.py"} != {wheel.module}:
        yield f"{wheel.name}: src/dsh must hold {wheel.module} alone, not {sorted(entries)}"
    for name in ("__init__.py", "py.typed"):
        if not (wheel.package / name).is_file():
            yield f"{wheel.name}: {wheel.module}/{name} is missing"
    if wheel.role not in ALLOWED_ROLES:
        yield f"{wheel.name}: [tool.dsh] role {wheel.role!r} is not one of {sorted(ALLOWED_ROLES)}"
    readme = wheel.folder / "README.md"
    if readme.is_file() and len(readme.read_text(encoding="utf-8").split()) < 60:
        yield f"{wheel.name}: README.md says next to nothing"


def check_versions(wheel: Wheel, own: dict[str, Wheel], version: str) -> Iterator[str]:
    """Check the lockstep version and the pins between own wheels."""
    if wheel.version != version:
        yield f"{wheel.name}: version {wheel.version} differs from dsh-core's {version}"
    for name, constraint in wheel.dependencies.items():
        if name in own and constraint != f"=={version}":
            yield f"{wheel.name}: {name} must be pinned =={version}, not {constraint or 'nothing'}"
        if name not in own and constraint.startswith("=="):
            yield f"{wheel.name}: {name}{constraint} pins a foreign distribution; give a floor"


def check_imports(wheel: Wheel, own: dict[str, Wheel]) -> Iterator[str]:
    """Check that what is imported is declared, and what is declared imported."""
    by_module = {w.module: w for w in own.values()}
    foreign: set[str] = set()
    for path in sorted(wheel.package.rglob("*.py")):
        for line, name in imported_modules(path):
            parts = name.split(".")
            if parts[0] != "dsh" or len(parts) == 1:
                foreign.add(parts[0])
            elif parts[1] != wheel.module:
                wheel.imports.add(parts[1])
                where = f"{path.relative_to(wheel.folder.parent.parent)}:{line}"
                yield from _check_sibling(parts, name, where, by_module)
    yield from _check_own(wheel, own, by_module)
    yield from _check_foreign(wheel, own, foreign - {"dsh"})


def _check_sibling(
    parts: list[str], name: str, where: str, by_module: dict[str, Wheel]
) -> Iterator[str]:
    if parts[1] not in by_module:
        yield f"{where}: imports unknown wheel dsh.{parts[1]}"
    if any(part.startswith("_") for part in parts[2:]):
        yield f"{where}: imports {name}, which is private to dsh.{parts[1]}"


def _check_own(wheel: Wheel, own: dict[str, Wheel], by_module: dict[str, Wheel]) -> Iterator[str]:
    declared = {own[name].module for name in wheel.dependencies if name in own}
    for module in sorted(wheel.imports - declared):
        if module in by_module:
            yield f"{wheel.name}: imports dsh.{module} without declaring {by_module[module].name}"
    if wheel.role not in {"bundle", "app", "testkit"}:
        for module in sorted(declared - wheel.imports):
            yield f"{wheel.name}: declares {by_module[module].name} without importing it"


def _check_foreign(wheel: Wheel, own: dict[str, Wheel], foreign: set[str]) -> Iterator[str]:
    third = {
        name: MODULES_OF.get(name, {name.replace("-", "_")})
        for name in wheel.dependencies
        if name not in own
    }
    provided = {module for modules in third.values() for module in modules}
    for module in sorted(foreign - provided - set(sys.stdlib_module_names)):
        yield f"{wheel.name}: imports {module} without declaring it"
    for name, modules in sorted(third.items()):
        if not modules & foreign:
            yield f"{wheel.name}: declares {name} without importing it"


def check_roles(wheel: Wheel, own: dict[str, Wheel]) -> Iterator[str]:
    """Check that a role depends only on roles below it, and the loop only on nobody."""
    allowed = ALLOWED_ROLES.get(wheel.role, frozenset())
    for name in wheel.dependencies:
        if name not in own:
            continue
        if own[name].role not in allowed:
            yield f"{wheel.name} ({wheel.role}) may not depend on {name} ({own[name].role})"
        if name == "dsh-agent-loop" and wheel.role != "bundle":
            yield f"{wheel.name}: only a bundle may depend on dsh-agent-loop"


def check_entry_points(wheel: Wheel) -> Iterator[str]:
    """Check that entry points name modules of this wheel, and seams repeat the plugin."""
    plugins = wheel.entry_points.get("dsh.plugins", {})
    for group, points in wheel.entry_points.items():
        # other programs' groups (pytest11) may name a whole module
        whole = group != "console" and not group.startswith("dsh.")
        for name, value in points.items():
            module, _, attribute = value.partition(":")
            path = wheel.folder / "src" / Path(*module.split("."))
            found = (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()
            if not found or not (attribute or whole):
                yield f"{wheel.name}: entry point {name} = {value} names no module:attribute of it"
            if group.startswith("dsh.seam.") and plugins.get(name) != value:
                yield f"{wheel.name}: {group} offers {name}, which dsh.plugins does not"


def check_sizes(root: Path, folder: Path) -> Iterator[str]:
    """Check that the files of a folder stay short enough to read."""
    for path in sorted(folder.rglob("*.py")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        relative = str(path.relative_to(root))
        limit = HARD_TEST_LINES if "tests" in path.relative_to(root).parts else HARD_LINES
        limit = LONG_FILES.get(relative, limit)
        if lines > limit:
            yield f"{relative}: {lines} lines, more than {limit}; split it by subject"


def check_root(root: Path, wheels: list[Wheel]) -> Iterator[str]:
    """Check that the workspace root names every wheel and the lock no private registry."""
    data: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    names = {wheel.name for wheel in wheels}
    for label, listed in (
        ("dependencies", set(data["project"]["dependencies"])),
        ("tool.uv.sources", set(data["tool"]["uv"]["sources"])),
    ):
        for name in sorted(names ^ listed):
            yield f"pyproject.toml: {label} and the workspace disagree about {name}"
    lock = root / "uv.lock"
    if lock.is_file():
        hosts = set(re.findall(r"https?://([^/\"]+)", lock.read_text(encoding="utf-8")))
        for host in sorted(hosts - {"pypi.org", "files.pythonhosted.org"}):
            yield f"uv.lock: records the host {host}; lock against the public index"


def check(root: Path) -> list[str]:
    """Return every finding of the workspace at `root`."""
    wheels = read_wheels(root)
    own = {wheel.name: wheel for wheel in wheels}
    kernel = own.get("dsh-core")
    if kernel is None:
        return ["the workspace has no dsh-core"]
    findings = list(check_root(root, wheels))
    for folder in ("scripts", "tests", "benchmarks"):
        findings += check_sizes(root, root / folder)
    for wheel in wheels:
        findings += check_layout(wheel)
        findings += check_versions(wheel, own, kernel.version)
        findings += check_imports(wheel, own)
        findings += check_roles(wheel, own)
        findings += check_entry_points(wheel)
        findings += check_sizes(root, wheel.folder)
    return findings


def main() -> int:
    """Run the gate on the workspace given, or on this one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"workspace: {len(findings)} findings\n")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
