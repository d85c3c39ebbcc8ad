"""The first-party sources as syntax trees, with names followed through imports.

Nothing is imported: a name is looked up in the file that uses it, then in the file it was imported
from, until the definition is reached. The place of a definition, `dsh.agent.events.AgentCreated`,
is its canonical name; two spellings of one class have one canonical name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from catalog.shapes import Workspace

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One source file."""

    name: str
    """Dotted name."""
    wheel: str
    """Distribution it belongs to."""
    file: str
    """Path relative to the root of the workspace."""
    tree: ast.Module
    names: dict[str, str]
    """What each imported name, and each name defined at top level, stands for."""

    @property
    def testing(self) -> bool:
        """Whether the file serves tests: a `testing` module, or anything of a test kit."""
        parts = self.name.split(".")
        return "testing" in parts or "testkit" in parts


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """One class statement."""

    canonical: str
    module: Module
    node: ast.ClassDef
    bases: tuple[str, ...]
    """Canonical names of its bases, without their type arguments."""


@dataclass
class Sources:
    """Every file under `packages/*/src` and `apps/*/src`."""

    modules: dict[str, Module] = field(default_factory=dict[str, Module])
    classes: dict[str, ClassInfo] = field(default_factory=dict[str, ClassInfo])

    def canonical(self, dotted: str) -> str:
        """Return where `dotted` is defined, or the name itself where that is out of sight."""
        seen: set[str] = set()
        while dotted not in seen:
            seen.add(dotted)
            module, rest = self._split(dotted)
            if module is None or not rest:
                break
            target = module.names.get(rest[0])
            if target is None:
                break
            dotted = ".".join([target, *rest[1:]])
        return dotted

    def _split(self, dotted: str) -> tuple[Module | None, list[str]]:
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            module = self.modules.get(".".join(parts[:length]))
            if module is not None:
                return module, parts[length:]
        return None, parts

    def resolve(self, module: Module, node: ast.expr) -> str | None:
        """Return the canonical name of what an expression names, or None if it names nothing."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parsed = _parsed(node.value)
            return None if parsed is None else self.resolve(module, parsed)
        if isinstance(node, ast.Subscript):
            return self.resolve(module, node.value)
        dotted = dotted_name(node)
        if dotted is None:
            return None
        first, _, rest = dotted.partition(".")
        target = module.names.get(first)
        if target is None:
            return None
        return self.canonical(f"{target}.{rest}" if rest else target)

    def annotated(self, module: Module, node: ast.expr | None) -> frozenset[str]:
        """Return the canonical names in an annotation: of each part of a union, None left out."""
        if node is None:
            return frozenset()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.annotated(module, _parsed(node.value))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.annotated(module, node.left) | self.annotated(module, node.right)
        found = self.resolve(module, node)
        return frozenset() if found is None else frozenset({found})

    def lineage(self, canonical: str) -> tuple[str, ...]:
        """Return a class and everything it derives from that can be seen, nearest first."""
        order: list[str] = []
        queue = [canonical]
        while queue:
            name = queue.pop(0)
            if name not in order:
                order.append(name)
                info = self.classes.get(name)
                queue += [] if info is None else info.bases
        return tuple(order)


@lru_cache(maxsize=1)
def read_sources(workspace: Workspace) -> Sources:
    """Parse the sources of a workspace, once for all that look at them; nobody changes them.

    Raises:
        SyntaxError: A file is no Python.
    """
    root, sources = workspace.root, Sources()
    for place in ("packages", "apps"):
        for path in sorted(root.glob(f"{place}/*/src/**/*.py")):
            module = _read(root, path)
            sources.modules[module.name] = module
    for module in sources.modules.values():
        for qualname, node in _classes(module.tree.body, ""):
            bases = (sources.resolve(module, base) for base in node.bases)
            canonical = f"{module.name}.{qualname}"
            sources.classes[canonical] = ClassInfo(
                canonical, module, node, tuple(base for base in bases if base is not None)
            )
    return sources


def dotted_name(node: ast.expr) -> str | None:
    """Return `a.b.c` for a chain of attributes that begins with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _read(root: Path, path: Path) -> Module:
    relative = path.relative_to(root)
    parts = list(relative.with_suffix("").parts[3:])
    package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if package else parts)
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=relative.as_posix())
    names = {local: target for node in ast.walk(tree) for local, target in _imported(node)}
    names |= {local: f"{name}.{local}" for local in _defined(tree.body)}
    # a definition leads to itself, which is where the search for it ends
    return Module(name, relative.parts[1], relative.as_posix(), tree, names)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            local = alias.asname or alias.name.split(".")[0]
            yield local, alias.name if alias.asname else local
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try():
                yield from _defined([*node.body, *node.orelse])
            case _:
                pass


def _classes(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node
            yield from _classes(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If):
            yield from _classes([*node.body, *node.orelse], prefix)
