"""What is imported: declared, never private, and only what the other wheel makes public."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workspace.wheels import Wheel

MODULES_OF = {
    "ruamel-yaml": {"ruamel"},
    "griffelib": {"griffe"},
    # pydantic pins its core exactly, so declaring the core beside it would say nothing
    "pydantic": {"pydantic", "pydantic_core"},
}
"""Modules of distributions whose name does not spell them."""

_FOLDERS = ("tests", "benchmarks", "examples", "scripts")


@dataclass(frozen=True)
class Import:
    """A name that a file uses of another module.

    Args:
        line: Where it says so.
        parts: The dotted name; its last part may be a module or something in one.
        at_import: Whether importing the file needs it: it stands neither in a function, nor in a
            `try`, nor in a block for type checkers.
    """

    line: int
    parts: tuple[str, ...]
    at_import: bool

    @property
    def name(self) -> str:
        """The dotted name."""
        return ".".join(self.parts)


def imports_of(path: Path) -> Iterator[Import]:
    """Yield everything a file imports, wherever and however it does so."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from _imports(tree, at_import=True)
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.Import) and _binds_namespace(node) for node in nodes):
        # `dsh.core.App`, where `dsh.core` was imported as a whole
        for node in nodes:
            parts = _chain(node) if isinstance(node, ast.Attribute) else ()
            if len(parts) > 2 and parts[0] == "dsh":
                yield Import(getattr(node, "lineno", 1), parts, at_import=False)


def _binds_namespace(node: ast.Import) -> bool:
    return any(alias.name.partition(".")[0] == "dsh" and not alias.asname for alias in node.names)


def _imports(tree: ast.AST, *, at_import: bool) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        for name in _names(node):
            yield Import(getattr(node, "lineno", 1), tuple(name.split(".")), at_import)
        yield from _imports(node, at_import=at_import and not _is_later(node))


def _chain(node: ast.expr) -> tuple[str, ...]:
    """Return the names of `a.b.c`; nothing for what is no plain chain of names."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (before := _chain(node.value)):
        return (*before, node.attr)
    return ()


def _is_later(node: ast.AST) -> bool:
    """Whether importing the file may do without what stands in this node."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try)


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(module)):
            return [f"{module}.{alias.name}" for alias in node.names]
        case ast.Call(args=[ast.Constant(value=str(name)), *_], func=func):
            called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            return [name] if called in {"import_module", "__import__", "importorskip"} else []
        case _:
            return []


def check_dependencies(wheel: Wheel, own: dict[str, Wheel]) -> Iterator[str]:
    """Check that what a wheel imports is declared, and what it declares imported."""
    modules: set[str] = set()
    foreign: set[str] = set()
    for path in sorted(wheel.package.rglob("*.py")):
        for item in imports_of(path):
            if item.parts[0] == "dsh":
                modules |= set(item.parts[1:2]) - {wheel.module}
                continue
            foreign.add(item.parts[0])
            if item.at_import and item.parts[0] in _provided(wheel.optional, own):
                where = f"{path.relative_to(wheel.folder.parent.parent)}:{item.line}"
                yield (
                    f"{where}: imports {item.parts[0]}, which only an extra requires; import it "
                    "where it is used"
                )
    yield from _check_own(wheel, own, modules)
    yield from _check_foreign(wheel, own, foreign)


def _provided(names: Iterable[str], own: dict[str, Wheel]) -> set[str]:
    foreign = [name for name in names if name not in own]
    spelled = [MODULES_OF.get(name, {name.replace("-", "_")}) for name in foreign]
    return {module for modules in spelled for module in modules}


def _check_own(wheel: Wheel, own: dict[str, Wheel], modules: set[str]) -> Iterator[str]:
    names = {other.module: other.name for other in own.values()}
    declared = {own[name].module for name in wheel.dependencies if name in own}
    extra = {own[name].module for name in wheel.optional if name in own}
    for module in sorted(modules - declared - extra):
        if module in names:
            yield f"{wheel.name}: imports dsh.{module} without declaring {names[module]}"
    if wheel.role not in {"bundle", "app", "testkit"}:
        for module in sorted(declared - modules):
            yield f"{wheel.name}: declares {names[module]} without importing it"


def _check_foreign(wheel: Wheel, own: dict[str, Wheel], foreign: set[str]) -> Iterator[str]:
    known = _provided([*wheel.dependencies, *wheel.optional], own) | set(sys.stdlib_module_names)
    for module in sorted(foreign - known):
        yield f"{wheel.name}: imports {module} without declaring it"
    for name in sorted(wheel.dependencies):
        if name not in own and not _provided([name], own) & foreign:
            yield f"{wheel.name}: declares {name} without importing it"


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
