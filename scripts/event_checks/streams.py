"""Every stream that is consumed has somebody who closes it.

An `async for` left early leaves the generator below it suspended, with whatever it holds. So it
may iterate only over a name that a `with` statement owns, `async with aclosing(...) as chunks`, or
over something that is declared to be no generator and has nothing to close. A call has no owner:
`async for chunk in adapter.stream(request)` is the mistake this is about.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from catalog.flow import Binding, Flow, Scope
from catalog.sources import Function, Module, Sources
from catalog.uses import Finding
from catalog.visit import ScopedVisitor

CLOSED_OTHERWISE: dict[str, str] = {
    "dsh.core._dispatch:_closing": (
        "closes every generator of the waterfall itself, in order, the one iterated included"
    ),
}
"""Functions that close what they iterate in a way of their own, with how they do it."""

_NOTHING_TO_CLOSE = frozenset(
    {
        "collections.abc.AsyncIterator",
        "collections.abc.AsyncIterable",
        "typing.AsyncIterator",
        "typing.AsyncIterable",
    }
)
_NO_CLOSERS = frozenset({"contextlib.nullcontext"})


def check_streams(sources: Sources) -> Iterator[Finding]:
    """Yield every `async for` whose stream nobody closes."""
    excused: set[str] = set()
    for module in sources.modules.values():
        visitor = _Loops(sources, module)
        visitor.walk()
        yield from visitor.findings
        excused |= visitor.excused
    for place in sorted(CLOSED_OTHERWISE.keys() - excused):
        module = sources.modules.get(place.partition(":")[0])
        if module is not None and _defines(module, place.partition(":")[2]):
            yield Finding(module.file, 1, f"CLOSED_OTHERWISE excuses {place} without need")


def _defines(module: Module, name: str) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        for node in module.tree.body
    )


class _Loops(ScopedVisitor):
    def __init__(self, sources: Sources, module: Module) -> None:
        super().__init__(sources, module)
        self.findings: list[Finding] = []
        self.excused: set[str] = set()
        self._flow = Flow(sources)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self._check(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        if node.is_async:
            self._check(node.iter)
        self.generic_visit(node)

    def _check(self, stream: ast.expr) -> None:
        reason = self._why_open(stream)
        place = f"{self.module.name}:{self.scope.qualname}"
        if reason is None:
            return
        if place in CLOSED_OTHERWISE:
            self.excused.add(place)
            return
        text = ast.unparse(stream)
        self.findings.append(
            Finding(
                self.module.file,
                stream.lineno,
                f"`async for` over `{text}`, {reason}; write "
                f"`async with aclosing({text}) as ...` and iterate over that",
            )
        )

    def _why_open(self, stream: ast.expr) -> str | None:
        """Return why nobody is sure to close what is iterated, or None."""
        match stream:
            case ast.Call():
                return "a call that nobody closes"
            case ast.Name(id=name):
                found = self.scope.find(name)
                if found is None:
                    return "a name bound out of sight"
                where, bindings = found
                if _closed_finally(self.scope, name):
                    return None
                reasons = [self._why_binding_open(one, where) for one in bindings]
                return next((reason for reason in reasons if reason is not None), None)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if self.scope.owner:
                types = self._flow.attribute(self.scope.owner.canonical, attr)
                return None if types and types <= _NOTHING_TO_CLOSE else "which outlives the loop"
            case _:
                return "which nobody closes"

    def _why_binding_open(self, binding: Binding, where: Scope) -> str | None:
        if binding.managed:
            entered = binding.value.func if isinstance(binding.value, ast.Call) else None
            named = None if entered is None else self.sources.resolve(where.module, entered)
            return "entered without closing it" if named in _NO_CLOSERS else None
        types = self.sources.annotated(where.module, binding.annotation)
        if types and types <= _NOTHING_TO_CLOSE:
            return None
        return "a parameter" if binding.position is not None else "which no `with` owns"


def _closed_finally(scope: Scope, name: str) -> bool:
    """Whether the function itself closes the stream: `finally: await name.aclose()`."""
    if not isinstance(scope.node, Function):
        return False
    return any(
        ast.unparse(node) == f"{name}.aclose()"
        for block in ast.walk(scope.node)
        if isinstance(block, ast.Try)
        for statement in block.finalbody
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    )
