"""What the wheels make public: their modules, and the symbols those list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import griffe

KERNEL = "dsh.core"
ERROR = "dsh.core.errors.DshError"
EVENT = "dsh.core._events.Event"
PLUGIN = "dsh.core._plugins.Plugin"
SERVICE = "dsh.core._plugins.Service"
PAYLOAD = "dsh.session._session_data.SessionData"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where."""

    path: Path
    line: int
    text: str

    def show(self, root: Path) -> str:
        """Return the finding as one line, its path relative to `root`."""
        return f"{self.path.relative_to(root)}:{self.line}: {self.text}"


@dataclass
class Api:
    """The `dsh` namespace of a workspace."""

    root: Path
    namespace: griffe.Module
    _trees: dict[Path, dict[str, ast.AST]] = field(default_factory=dict[Path, dict[str, ast.AST]])

    @classmethod
    def load(cls, root: Path) -> Api:
        """Read every portion of the namespace below `root`; import none."""
        sources = [*root.glob("packages/*/src"), *root.glob("apps/*/src")]
        loader = griffe.GriffeLoader(
            search_paths=sorted(str(path) for path in sources), allow_inspection=False
        )
        namespace = loader.load("dsh")
        loader.resolve_aliases()
        assert isinstance(namespace, griffe.Module)
        return cls(root, namespace)

    @cached_property
    def wheels(self) -> list[griffe.Module]:
        """The portions of the namespace."""
        found = [m for m in self.namespace.members.values() if isinstance(m, griffe.Module)]
        return sorted(found, key=lambda module: module.path)

    @cached_property
    def public_modules(self) -> list[griffe.Module]:
        """Every module without a leading underscore on its path."""
        return [module for wheel in self.wheels for module in _public(wheel)]

    @cached_property
    def symbols(self) -> dict[str, griffe.Object]:
        """The public symbols by the path they are imported by; each object once."""
        found: dict[str, griffe.Object] = {}
        seen: set[str] = set()
        for module in self.public_modules:
            for name in exported(module):
                target = _target(module, name)
                if target is None or isinstance(target, griffe.Module):
                    continue
                if target.path.startswith("dsh.") and target.path not in seen:
                    seen.add(target.path)
                    found[f"{module.path}.{name}"] = target
        return found

    def is_public(self, item: griffe.Object) -> bool:
        """Tell whether some public module lists `item`."""
        return item.path in self._public_paths

    @cached_property
    def _public_paths(self) -> frozenset[str]:
        return frozenset(item.path for item in self.symbols.values())

    def missing(self) -> Iterator[Finding]:
        """Yield what a module lists as public and does not have."""
        for module in self.public_modules:
            for name in exported(module):
                if _target(module, name) is None and not _foreign(module, name):
                    yield finding(module, f"{module.path} lists {name}, which does not exist")

    @cached_property
    def classes(self) -> list[griffe.Class]:
        """Every class of the namespace, public or not, in the order of its path."""
        found = [item for wheel in self.wheels for item in _classes(wheel)]
        return sorted(found, key=lambda item: item.path)

    def node(self, item: griffe.Object) -> ast.AST | None:
        """Return the syntax tree of a class or function."""
        path = file_of(item)
        if path not in self._trees:
            self._trees[path] = dict(_nodes(ast.parse(path.read_text(encoding="utf-8")), ""))
        return self._trees[path].get(item.path.removeprefix(f"{item.module.path}."))


def file_of(item: griffe.Object) -> Path:
    """Return the file that `item` is written in."""
    path = item.filepath
    assert isinstance(path, Path)
    return path


def finding(item: griffe.Object, text: str) -> Finding:
    """Return a finding at the place of `item`."""
    return Finding(file_of(item), item.lineno or 1, text)


def exported(module: griffe.Module) -> list[str]:
    """Return what a module makes public: its `__all__`, else its own names without underscore."""
    if module.exports is not None:
        return [str(name) for name in module.exports]
    own = [name for name, item in module.members.items() if not isinstance(item, griffe.Alias)]
    return [
        name
        for name in own
        if not name.startswith("_") and not isinstance(module.members[name], griffe.Module)
    ]


def bases(item: griffe.Class) -> list[griffe.Class]:
    """Return the base classes of `item` that are in the namespace, nearest first."""
    try:
        return list(item.mro())
    except ValueError:  # a base that is not a class in this namespace, twice over
        return [base for base in item.resolved_bases if isinstance(base, griffe.Class)]


def is_a(item: griffe.Object, ancestor: str) -> bool:
    """Tell whether `item` is the class with the path `ancestor`, or derives from it."""
    if not isinstance(item, griffe.Class):
        return False
    return item.path == ancestor or any(base.path == ancestor for base in bases(item))


def _target(module: griffe.Module, name: str) -> griffe.Object | None:
    """Return what a name of a module stands for, if that is in the namespace."""
    item = module.members.get(name)
    if not isinstance(item, griffe.Alias):
        return item if isinstance(item, griffe.Object) else None
    try:
        return item.final_target
    except (griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None


def _foreign(module: griffe.Module, name: str) -> bool:
    """Whether a name comes from outside of the namespace, or is only made when it is asked for."""
    item = module.members.get(name)
    if isinstance(item, griffe.Alias):
        return not item.target_path.startswith("dsh.")
    return "__getattr__" in module.members


def _public(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for name, item in sorted(module.members.items()):
        if isinstance(item, griffe.Module) and not name.startswith("_"):
            yield from _public(item)


def _classes(item: griffe.Object) -> Iterator[griffe.Class]:
    for member in item.members.values():
        if isinstance(member, griffe.Class):
            yield member
        if isinstance(member, griffe.Class | griffe.Module):
            yield from _classes(member)


def _nodes(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _nodes(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _nodes(node, prefix)
