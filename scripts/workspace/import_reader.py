"""Everything a file imports, wherever and however it does so."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_IMPORTERS = frozenset({"import_module", "__import__", "importorskip"})
"""Functions that import what a text names."""


@dataclass(frozen=True)
class Import:
    """A name that a file uses of another module.

    Args:
        line: Where it says so.
        parts: The dotted name; its last part may be a module or something in one.
        at_import: Whether importing the file needs it: it stands neither in a function, nor in a
            `try`, nor in a block for type checkers.
        for_types: Whether it stands in a block for type checkers, which never runs.
    """

    line: int
    parts: tuple[str, ...]
    at_import: bool
    for_types: bool = False

    @property
    def name(self) -> str:
        """The dotted name."""
        return ".".join(self.parts)


def imports_of(path: Path) -> Iterator[Import]:
    """Yield everything a file imports, wherever and however it does so."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    importers = _importers(nodes)
    yield from _imports(tree, importers, at_import=True, for_types=False)
    if any(isinstance(node, ast.Import) and _binds_namespace(node) for node in nodes):
        # `dsh.core.App`, where `dsh.core` was imported as a whole
        for node in nodes:
            parts = _chain(node) if isinstance(node, ast.Attribute) else ()
            if len(parts) > 2 and parts[0] == "dsh":
                yield Import(getattr(node, "lineno", 1), parts, at_import=False)


def _binds_namespace(node: ast.Import) -> bool:
    return any(alias.name.partition(".")[0] == "dsh" and not alias.asname for alias in node.names)


def _importers(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Return the functions that import by name, under every name a file gives them."""
    names = set(_IMPORTERS)
    before = 0
    while len(names) > before:
        before = len(names)
        for node in nodes:
            match node:
                case ast.ImportFrom():
                    names |= {a.asname for a in node.names if a.asname and a.name in names}
                case ast.Assign(value=value) if _last(value) in names:
                    names |= {_last(target) for target in node.targets}
                case ast.AnnAssign(value=ast.expr() as value) if _last(value) in names:
                    names.add(_last(node.target))
                case _:
                    pass
    return frozenset(names - {""})


def _last(node: ast.expr) -> str:
    """Return the last name of `a.b.c`; nothing for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _imports(
    tree: ast.AST, importers: frozenset[str], *, at_import: bool, for_types: bool
) -> Iterator[Import]:
    typed = list(_typed(tree))
    for node in ast.iter_child_nodes(tree):
        hidden = for_types or node in typed
        now = at_import and not hidden
        for name in _names(node, importers):
            parts = tuple(name.split("."))
            yield Import(getattr(node, "lineno", 1), parts, now, hidden)
        later = not now or _is_later(node)
        yield from _imports(node, importers, at_import=not later, for_types=hidden)


def _typed(node: ast.AST) -> Sequence[ast.AST]:
    """Return the statements of an `if` that only a type checker reads."""
    match node:
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test), orelse=found):
            pass
        case ast.If(test=test, body=found):
            pass
        case _:
            return ()
    return found if _last(test) == "TYPE_CHECKING" else ()


def _chain(node: ast.expr) -> tuple[str, ...]:
    """Return the names of `a.b.c`; nothing for what is no plain chain of names."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (before := _chain(node.value)):
        return (*before, node.attr)
    return ()


def _is_later(node: ast.AST) -> bool:
    """Whether importing the file may do without what stands in this node."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try)


def _names(node: ast.AST, importers: frozenset[str]) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(module)):
            return [f"{module}.{alias.name}" for alias in node.names]
        case ast.Call(func=func) if _last(func) in importers:
            name = _text(node, 0, "name") or _text(node, 0, "modname")
            if name.startswith("."):
                package = _text(node, 1, "package")
                name = f"{package}{name}" if package and not name.startswith("..") else ""
            return [name] if name else []
        case _:
            return []


def _text(node: ast.Call, position: int, name: str) -> str:
    """Return an argument that is a text as written; nothing for one that is made."""
    given = node.args[position : position + 1]
    given += [word.value for word in node.keywords if word.arg == name]
    texts = [one.value for one in given if isinstance(one, ast.Constant)]
    return next((text for text in texts if isinstance(text, str)), "")
