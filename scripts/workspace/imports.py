"""What is imported: declared, never private, and only what the other wheel makes public."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from workspace.import_reader import Import, imports_of
from workspace.wheels import Wheel

MODULES_OF = {
    "ruamel-yaml": {"ruamel"},
    "griffelib": {"griffe"},
    # pydantic pins its core exactly, so declaring the core beside it would say nothing
    "pydantic": {"pydantic", "pydantic_core"},
}
"""Modules of distributions whose name does not spell them."""

_ISOLATED = "_helper"
"""Folder of a wheel for what a bare interpreter runs, which has the standard library alone."""

_FOLDERS = ("tests", "benchmarks", "examples", "scripts")


def check_dependencies(wheel: Wheel, own: dict[str, Wheel]) -> Iterator[str]:
    """Check that what a wheel imports is declared, and what it declares imported."""
    seen = _Seen()
    for path in sorted(wheel.package.rglob("*.py")):
        for item in imports_of(path):
            seen.add(item)
            if item.parts[0] == "dsh":
                continue
            if item.at_import and item.parts[0] in _provided(wheel.optional, own):
                where = f"{path.relative_to(wheel.folder.parent.parent)}:{item.line}"
                yield (
                    f"{where}: imports {item.parts[0]}, which only an extra requires; import it "
                    "where it is used"
                )
    yield from _check_own(wheel, own, seen)
    yield from _check_foreign(wheel, own, seen)


def check_isolated(wheel: Wheel) -> Iterator[str]:
    """Check that what a bare interpreter runs imports nothing but the standard library."""
    home = ("dsh", wheel.module, _ISOLATED)
    for path in sorted((wheel.package / _ISOLATED).rglob("*.py")):
        for item in imports_of(path):
            if item.parts[0] not in sys.stdlib_module_names and item.parts[:3] != home:
                where = f"{path.relative_to(wheel.folder.parent.parent)}:{item.line}"
                yield f"{where}: imports {item.name}, where only the standard library is at hand"


@dataclass
class _Seen:
    """What a wheel imports: top-level modules, and `dsh.x` for portions of the namespace."""

    every: set[str] = field(default_factory=set[str])
    running: set[str] = field(default_factory=set[str])
    """Those of them that the code imports when it runs."""

    def add(self, item: Import) -> None:
        """Take note of an import."""
        name = ".".join(item.parts[:2]) if item.parts[0] == "dsh" else item.parts[0]
        self.every.add(name)
        if not item.for_types:
            self.running.add(name)


def _use(wheel: Wheel, name: str, modules: set[str], seen: _Seen) -> str | None:
    """Say what is wrong with a requirement that the wheel declares."""
    if not modules & seen.every:
        return f"{wheel.name}: declares {name} without importing it"
    if not modules & seen.running:
        # it would be installed for nothing
        alone = "which it imports for type checkers alone; do without it"
        return f"{wheel.name}: declares {name}, {alone}"
    return None


def _provided(names: Iterable[str], own: dict[str, Wheel]) -> set[str]:
    foreign = [name for name in names if name not in own]
    spelled = [MODULES_OF.get(name, {name.replace("-", "_")}) for name in foreign]
    return {module for modules in spelled for module in modules}


def _check_own(wheel: Wheel, own: dict[str, Wheel], seen: _Seen) -> Iterator[str]:
    names = {f"dsh.{other.module}": other.name for other in own.values() if other is not wheel}
    known = {*wheel.dependencies, *wheel.optional}
    for module in sorted(seen.every & names.keys()):
        if names[module] not in known:
            yield f"{wheel.name}: imports {module} without declaring {names[module]}"
    if wheel.role not in {"bundle", "app", "testkit"}:
        for module, name in sorted(names.items()):
            problem = _use(wheel, name, {module}, seen) if name in wheel.dependencies else None
            if problem is not None:
                yield problem


def _check_foreign(wheel: Wheel, own: dict[str, Wheel], seen: _Seen) -> Iterator[str]:
    known = _provided([*wheel.dependencies, *wheel.optional], own) | set(sys.stdlib_module_names)
    foreign = {name for name in seen.every if name.partition(".")[0] != "dsh"}
    for module in sorted(foreign - known):
        yield f"{wheel.name}: imports {module} without declaring it"
    for name in sorted(wheel.dependencies):
        problem = None if name in own else _use(wheel, name, _provided([name], own), seen)
        if problem is not None:
            yield problem


class Faces:
    """What the wheels make public."""

    def __init__(self, wheels: Iterable[Wheel]) -> None:
        self._packages = {wheel.module: wheel.package for wheel in wheels}
        self._names: dict[Path, frozenset[str] | None] = {}

    def problem(self, item: Import, home: str | None) -> str | None:
        """Say what is wrong with an import of the namespace.

        Args:
            item: The import.
            home: The portion that the importing file belongs to, if it does.
        """
        parts = item.parts
        if len(parts) < 2 or parts[0] != "dsh" or parts[1] == home:
            return None
        package = self._packages.get(parts[1])
        if package is None:
            return f"imports unknown wheel dsh.{parts[1]}"
        if any(part.startswith("_") and part != "__main__" for part in parts[2:]):
            return f"imports {item.name}, which is private to dsh.{parts[1]}"
        module, rest = _split(package, parts[2:])
        if not rest or rest[0] == "*":
            return None
        where = ".".join(parts[: len(parts) - len(rest)])
        names = self._public(module)
        if names is not None and rest[0] not in names:
            return f"imports {rest[0]}, which {where} does not make public; list it in its __all__"
        return None

    def _public(self, module: Path) -> frozenset[str] | None:
        if module not in self._names:
            self._names[module] = public_names(module)
        return self._names[module]


def _split(package: Path, parts: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Return the file of the module that a name is in, and the parts inside of it."""
    folder = package
    for number, part in enumerate(parts):
        if (folder / part / "__init__.py").is_file():
            folder = folder / part
        elif (folder / f"{part}.py").is_file():
            return folder / f"{part}.py", parts[number + 1 :]
        else:
            return folder / "__init__.py", parts[number:]
    return folder / "__init__.py", ()


def public_names(module: Path) -> frozenset[str] | None:
    """Return what `__all__` lists, else what the module itself defines; None if there is none."""
    if not module.is_file():
        return None
    defined: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                defined.add(node.name)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                if "__all__" in names and node.value is not None:
                    return frozenset(ast.literal_eval(node.value))
                defined |= names
            case _:
                pass
    return frozenset(name for name in defined if not name.startswith("_"))


def check_faces(root: Path, wheels: list[Wheel]) -> Iterator[str]:
    """Check that every file uses of another wheel only what that makes public."""
    faces = Faces(wheels)
    for wheel in wheels:
        init = wheel.package / "__init__.py"
        if init.is_file() and "__all__" not in init.read_text(encoding="utf-8"):
            yield f"{wheel.name}: {wheel.module}/__init__.py has no __all__; list what is public"
        yield from _check_files(root, wheel.folder, faces, wheel.module)
    for folder in _FOLDERS:
        yield from _check_files(root, root / folder, faces, None)


def _check_files(root: Path, folder: Path, faces: Faces, home: str | None) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        found = {(item.line, faces.problem(item, home)) for item in imports_of(path)}
        for line, problem in sorted((line, text) for line, text in found if text):
            yield f"{path.relative_to(root)}:{line}: {problem}"
