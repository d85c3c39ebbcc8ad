"""What a name may hold at the place where it is used: enough to follow an event to its dispatch."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TypeAlias

from catalog.sources import ClassInfo, Function, Module, Sources

_Attributes: TypeAlias = Mapping[str, list[ast.expr | None]]
"""Attributes of a class, with the annotations, or None, of the places that set them."""

_DEPTH = 8
"""Assignments followed one after the other; a cycle ends here."""
_COPIES = frozenset({"dataclasses.replace", "copy.copy", "copy.replace", "copy.deepcopy"})


@dataclass(frozen=True, slots=True)
class Binding:
    """One way in which a scope gives a name its value."""

    value: ast.expr | None = None
    annotation: ast.expr | None = None
    element: bool = False
    """The name holds the elements of `value`, one after the other."""
    managed: bool = False
    """`value` is a context manager, and the name is what entering it gave."""
    position: int | None = None
    """Of a parameter: its place among the positional ones, -1 for one given by keyword only."""


@dataclass
class Scope:
    """A function, or the top level of a file, with what it binds."""

    module: Module
    node: Function | ast.Lambda | ast.Module
    outer: Scope | None
    owner: ClassInfo | None
    """The class whose method this is, or that surrounds it."""
    qualname: str
    bindings: dict[str, list[Binding]] = field(default_factory=dict[str, list[Binding]])

    def __post_init__(self) -> None:
        if isinstance(self.node, ast.Module):
            statements: list[ast.stmt] = self.node.body
        else:
            self._add_parameters(self.node.args)
            statements = [] if isinstance(self.node, ast.Lambda) else self.node.body
        for node in _own_nodes(statements):
            self._add(node)

    def inside(self, owner: ClassInfo | None, qualname: str) -> Scope:
        """Return the scope as the body of a class in it has it: the names are those around it."""
        inner = copy(self)
        inner.owner, inner.qualname = owner, qualname
        return inner

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """Return the innermost scope that binds `name`, and how."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings:
                return scope, scope.bindings[name]
            scope = scope.outer
        return None

    def _add_parameters(self, args: ast.arguments) -> None:
        for position, arg in enumerate([*args.posonlyargs, *args.args]):
            self._bind(arg.arg, Binding(annotation=arg.annotation, position=position))
        for arg in args.kwonlyargs:
            self._bind(arg.arg, Binding(annotation=arg.annotation, position=-1))
        for arg in (args.vararg, args.kwarg):
            if arg is not None:
                self._bind(arg.arg, Binding())

    def _add(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind_target(target, value)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                self._bind(name, Binding(value, annotation))
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                self._bind(name, Binding(value))
            case ast.For(target=ast.Name(id=name), iter=value):
                self._bind(name, Binding(value, element=True))
            case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)):
                self._bind(name, Binding(value, managed=True))
            case (
                ast.AsyncFor(target=target)
                | ast.For(target=target)
                | ast.comprehension(target=target)
            ):
                self._bind_target(target, None)
            case _:
                pass

    def _bind_target(self, target: ast.expr, value: ast.expr | None) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._bind(name, Binding(value))
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, its_value in zip(targets, values, strict=True):
                    self._bind_target(one, its_value)
            case ast.Tuple(elts=targets), _:
                for one in targets:
                    self._bind_target(one, None)
            case _:
                pass

    def _bind(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)


def _own_nodes(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    """Walk statements without entering functions and classes below them."""
    queue: list[ast.AST] = list(statements)
    while queue:
        node = queue.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            queue += ast.iter_child_nodes(node)


class Flow:
    """Follows values through the scopes of a workspace."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._attributes: dict[str, _Attributes] = {}
        """The attributes of each class that was asked for."""

    def instances(self, node: ast.expr | None, scope: Scope, depth: int = _DEPTH) -> frozenset[str]:
        """Return the canonical names of the classes that the value may be an instance of."""
        if node is None or depth == 0:
            return frozenset()
        match node:
            case ast.Call():
                return self._made(node, scope, depth - 1)
            case ast.Name(id=name):
                return self._held(name, scope, depth - 1)
            case ast.IfExp(body=one, orelse=other):
                return self.instances(one, scope, depth - 1) | self.instances(
                    other, scope, depth - 1
                )
            case ast.NamedExpr(value=value):
                return self.instances(value, scope, depth - 1)
            case ast.Attribute(value=value, attr=attr):
                return self._attribute(value, attr, scope, depth - 1)
            case _:
                return frozenset()

    def classes(self, node: ast.expr | None, scope: Scope, depth: int = _DEPTH) -> frozenset[str]:
        """Return the canonical names of the classes that the value may be."""
        if node is None or depth == 0:
            return frozenset()
        if isinstance(node, ast.IfExp):
            return self.classes(node.body, scope, depth - 1) | self.classes(
                node.orelse, scope, depth - 1
            )
        found = scope.find(node.id) if isinstance(node, ast.Name) else None
        if found is None or isinstance(found[0].node, ast.Module):
            canonical = self._sources.resolve(scope.module, node)
            if canonical is not None and (found is None or canonical in self._sources.classes):
                return frozenset({canonical})
        if found is None:
            return frozenset()
        where, bindings = found
        values = (value for binding in bindings for value in _values(binding))
        return frozenset[str]().union(*(self.classes(value, where, depth - 1) for value in values))

    def parameter(self, node: ast.expr | None, scope: Scope) -> tuple[Scope, str, int] | None:
        """Return the function, name and position of the parameter that `node` is, if it is one."""
        found = scope.find(node.id) if isinstance(node, ast.Name) else None
        if found is None or not isinstance(node, ast.Name):
            return None
        where, bindings = found
        position = bindings[0].position
        return None if position is None or len(bindings) > 1 else (where, node.id, position)

    def is_a(self, node: ast.expr, scope: Scope, base: str) -> bool:
        """Whether the value is known to be an instance of a class of the kernel."""
        return any(
            one.startswith("dsh.core.") and one.rpartition(".")[2] == base
            for found in self.instances(node, scope)
            for one in self._sources.lineage(found)
        )

    def _made(self, node: ast.Call, scope: Scope, depth: int) -> frozenset[str]:
        callee = self._sources.resolve(scope.module, node.func)
        if callee in _COPIES and node.args:
            return self.instances(node.args[0], scope, depth)
        if callee == "typing.cast" and node.args:
            return self._sources.annotated(scope.module, node.args[0])
        local = isinstance(node.func, ast.Name) and scope.find(node.func.id)
        if local and not isinstance(local[0].node, ast.Module):
            return self.classes(node.func, scope, depth)
        return frozenset({callee}) if callee in self._sources.classes else frozenset()

    def _held(self, name: str, scope: Scope, depth: int) -> frozenset[str]:
        found = scope.find(name)
        if found is None:
            return frozenset()
        where, bindings = found
        held: frozenset[str] = frozenset()
        for binding in bindings:
            held |= self._sources.annotated(where.module, binding.annotation)
            if binding.annotation is None:
                for value in _values(binding):
                    held |= self.instances(value, where, depth)
        return held

    def _attribute(self, value: ast.expr, attr: str, scope: Scope, depth: int) -> frozenset[str]:
        if isinstance(value, ast.Name) and value.id == "self" and scope.owner is not None:
            owners = frozenset({scope.owner.canonical})
        else:
            owners = self.instances(value, scope, depth)
        return frozenset[str]().union(*(self.attribute(one, attr) or () for one in owners))

    def attribute(self, canonical: str, attr: str) -> frozenset[str] | None:
        """Return the classes of an attribute, empty where they are out of sight.

        Returns:
            None when neither the class nor a base that can be seen has such an attribute.
        """
        for name in self._sources.lineage(canonical):
            info = self._sources.classes.get(name)
            if info is None:
                continue
            if name not in self._attributes:
                self._attributes[name] = _attributes(info.node)
            annotations = self._attributes[name].get(attr)
            if annotations:
                parts = (self._sources.annotated(info.module, one) for one in annotations)
                return frozenset[str]().union(*parts)
        return None


def _values(binding: Binding) -> Iterator[ast.expr]:
    if binding.value is None or binding.managed:
        return
    if not binding.element:
        yield binding.value
    elif isinstance(binding.value, ast.Tuple | ast.List | ast.Set):
        yield from binding.value.elts


def _attributes(node: ast.ClassDef) -> _Attributes:
    """Return what a class sets, in its body or on `self`."""
    found: defaultdict[str, list[ast.expr | None]] = defaultdict(list)
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                found[name].append(annotation)
            case ast.Assign(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        found[target.id].append(None)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found[name].append(statement.returns if _is_property(statement) else None)
                for attr, annotation in _set_on_self(statement):
                    found[attr].append(annotation)
            case _:
                pass
    return found


def _is_property(node: Function) -> bool:
    names = {one.id if isinstance(one, ast.Name) else "" for one in node.decorator_list}
    return bool(names & {"property", "cached_property"})


def _set_on_self(function: Function) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each `self.attr` with its annotation: its own, or of the parameter it is set from."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    parameters = {arg.arg: arg.annotation for arg in every}
    for node in ast.walk(function):
        match node:
            case ast.AnnAssign(
                target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation
            ):
                yield name, annotation
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value
            ):
                if isinstance(value, ast.Name) and value.id in parameters:
                    yield name, parameters[value.id]
                elif isinstance(value, ast.Call):
                    yield name, value.func
                else:
                    yield name, None
            case _:
                pass
