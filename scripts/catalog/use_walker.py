"""A walk through one file that records how it uses events and services."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Literal

from catalog.sources import Module, dotted_name
from catalog.use_record import EVERY_EVENT, Helper, Scan, UseKind
from catalog.visit import ScopedVisitor

KERNEL = "dsh.core"
"""Not scanned: it carries every event and hands out every service, and names none of them."""

_DISPATCH = ("emit", "parallel", "serial", "waterfall", "stream")
_LISTEN = ("on", "once", "subscribe")
_CONTEXT_NAMES = frozenset({"ctx", "_ctx"})
_APP_NAMES = frozenset({"app", "_app"})


class UseWalker(ScopedVisitor):
    """Records what one file uses."""

    def __init__(self, run: Scan, module: Module) -> None:
        super().__init__(run.sources, module)
        self._run = run
        self._called: set[int] = set()

    def visit_If(self, node: ast.If) -> None:
        """Leave out the branch of a constant condition that never runs."""
        self._branches(node, node.test, node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Leave out the branch of a constant condition that never runs."""
        self._branches(node, node.test, [node.body], [node.orelse])

    def visit_While(self, node: ast.While) -> None:
        """Leave out the body of a loop whose condition never holds."""
        if isinstance(node.test, ast.Constant) and not node.test.value:
            self._branches(node, node.test, node.body, node.orelse)
        else:
            self.generic_visit(node)

    def _branches(
        self,
        node: ast.AST,
        test: ast.expr,
        body: Sequence[ast.AST],
        orelse: Sequence[ast.AST],
    ) -> None:
        if not isinstance(test, ast.Constant):
            self.generic_visit(node)
            return
        for one in body if test.value else orelse:
            self.visit(one)

    def visit_Call(self, node: ast.Call) -> None:
        """Look at a call."""
        self._run.calls.append((node, self.scope))
        self._called.add(id(node.func))
        if isinstance(node.func, ast.Attribute):
            self._method(node, node.func)
        else:
            self._function(node)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Look for a dispatching method that is handed on."""
        handed_on = id(node) not in self._called and node.attr in (*_DISPATCH, "on", "once")
        if handed_on and isinstance(node.ctx, ast.Load) and self._is_context(node.value):
            self._run.find(
                node,
                self.scope,
                f"`{ast.unparse(node)}` is handed on, which hides the event; call it",
            )
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Look for a service that is read."""
        reaches = self._is_context(node.value) or self._is_app(node.value)
        if reaches and isinstance(node.ctx, ast.Load):
            # `list[BashExecutor]` is a type; only what is certainly a context hands out services
            self._services("read", "ctx[]", node, node.slice, certain=True)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Look for the services that a function declares."""
        match node.targets:
            case [ast.Attribute(attr="injects")]:
                self._list("inject", "injects", node.value, node.value)
            case _:
                pass
        self.generic_visit(node)

    def _method(self, node: ast.Call, func: ast.Attribute) -> None:
        context = self._is_context(func.value)
        first = _argument(node, 0, "service" if func.attr in ("get", "provide") else "event")
        if func.attr in _DISPATCH:
            self._dispatch(node, func, first, context)
        elif func.attr in _LISTEN:
            self._listen(node, func.attr, first, context)
        elif func.attr == "get" and first is not None:
            certain = context or self._is_app(func.value)
            self._services("read", "get", node, first, certain=certain, optional=True)
        elif func.attr == "provide" and context:
            self._services("provide", "provide", node, first, certain=True)
        elif func.attr == "when" and context:
            # the body waits, the plugin that says so does not
            services = _argument(node, 0, "services")
            self._list("inject", "when", node, services, optional=True)
        elif func.attr == "on_dispatch":
            self._run.use("observe", EVERY_EVENT, "on_dispatch", node, self.scope)

    def _function(self, node: ast.Call) -> None:
        name = self._run.sources.resolve(self.module, node.func) or ""
        if name == "getattr" or (isinstance(node.func, ast.Name) and node.func.id == "getattr"):
            computed = len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
            if computed and self._is_context(node.args[0]):
                self._run.find(
                    node, self.scope, "a method of a context is looked up by a computed name"
                )
        if not name.startswith(f"{KERNEL}."):
            return
        last = name.rpartition(".")[2]
        if last == "on":
            self._listen(node, "@on", _argument(node, 0, "event"), context=True)
        elif last == "inject":
            optional = any(
                word.arg == "optional" and not _is_false(word.value) for word in node.keywords
            )
            first = _argument(node, 0, "service")
            self._services("inject", "inject", node, first, certain=True, optional=optional)

    def _dispatch(
        self, node: ast.Call, func: ast.Attribute, event: ast.expr | None, context: bool
    ) -> None:
        names = self._run.events_in(self._run.flow.instances(event, self.scope))
        text = ast.unparse(func)
        for name in names:
            self._run.use("dispatch", name, func.attr, node, self.scope)
        if names and not context:
            self._run.find(
                node, self.scope, f"`{text}` dispatches {names[0]}, but not through a context"
            )
        if names or (func.attr == "stream" and not context):
            return
        if not self._helper("dispatch", func.attr, node, event):
            self._run.find(
                node, self.scope, f"`{text}(...)`: which event is dispatched cannot be seen"
            )

    def _listen(self, node: ast.Call, how: str, event: ast.expr | None, context: bool) -> None:
        names = self._run.events_in(self._run.flow.classes(event, self.scope))
        for name in names:
            self._run.use("listen", name, how, node, self.scope)
        if not names and context and not self._helper("listen", how, node, event):
            self._run.find(
                node, self.scope, f"`{how}(...)`: which event is listened to cannot be seen"
            )

    def _helper(
        self, kind: Literal["dispatch", "listen"], how: str, node: ast.Call, event: ast.expr | None
    ) -> bool:
        found = self._run.flow.parameter(event, self.scope)
        if found is not None:
            self._run.helpers.append(Helper(*found, kind, how, node))
        return found is not None

    def _list(
        self,
        kind: UseKind,
        how: str,
        node: ast.expr,
        given: ast.expr | None,
        *,
        optional: bool = False,
    ) -> None:
        if isinstance(given, ast.Tuple | ast.List):
            for item in given.elts:
                self._services(kind, how, node, item, certain=True, optional=optional)
        else:
            self._run.find(node, self.scope, f"`{how}`: which services it names cannot be seen")

    def _services(
        self,
        kind: UseKind,
        how: str,
        node: ast.expr,
        service: ast.expr | None,
        *,
        certain: bool,
        optional: bool = False,
    ) -> None:
        run = self._run
        keys = {
            run.services[one]
            for one in run.flow.classes(service, self.scope)
            if one in run.services
        }
        match service:
            case ast.Constant(value=str(key)) if certain and key in run.services.values():
                keys.add(key)
            case _:
                pass
        for key in sorted(keys):
            run.use(kind, key, how, node, self.scope, optional=optional)
        if not keys and certain:
            run.find(node, self.scope, f"`{ast.unparse(node)}`: which service is meant")

    def _is_context(self, node: ast.expr) -> bool:
        last = (dotted_name(node) or getattr(node, "attr", "")).rpartition(".")[2]
        return last in _CONTEXT_NAMES or self._run.flow.is_a(node, self.scope, "Context")

    def _is_app(self, node: ast.expr) -> bool:
        last = (dotted_name(node) or getattr(node, "attr", "")).rpartition(".")[2]
        return last in _APP_NAMES or self._run.flow.is_a(node, self.scope, "App")


def _argument(node: ast.Call, position: int, name: str) -> ast.expr | None:
    if len(node.args) > position:
        return node.args[position]
    return next((word.value for word in node.keywords if word.arg == name), None)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
