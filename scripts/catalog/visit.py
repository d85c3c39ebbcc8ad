"""A walk through a file that always knows the scope it is in."""

from __future__ import annotations

import ast

from catalog.flow import Scope
from catalog.sources import ClassInfo, Function, Module, Sources


class ScopedVisitor(ast.NodeVisitor):
    """Keeps `self.scope` up to date: the function, or the file, around the node being visited."""

    def __init__(self, sources: Sources, module: Module) -> None:
        self.sources = sources
        self.module = module
        self.scope: Scope = Scope(module, module.tree, None, None, "")
        self._owner: ClassInfo | None = None

    def walk(self) -> None:
        """Visit the whole file."""
        self.visit(self.module.tree)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit a class. Its methods do not see the names of its body, so it is no scope."""
        scope, owner = self.scope, self._owner
        qualname = f"{scope.qualname}.{node.name}".lstrip(".")
        self._owner = self.sources.classes.get(f"{self.module.name}.{qualname}", owner)
        self.scope = scope.inside(self._owner, qualname)
        self.generic_visit(node)
        self.scope, self._owner = scope, owner

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visit a function in a scope of its own."""
        self._enter(node, f"{self.scope.qualname}.{node.name}".lstrip("."))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Visit a function in a scope of its own."""
        self._enter(node, f"{self.scope.qualname}.{node.name}".lstrip("."))

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Visit a lambda in a scope of its own, under the name of what surrounds it."""
        self._enter(node, self.scope.qualname)

    def _enter(self, node: Function | ast.Lambda, qualname: str) -> None:
        outer = self.scope
        self.scope = Scope(self.module, node, outer, self._owner, qualname)
        self.generic_visit(node)
        self.scope = outer
