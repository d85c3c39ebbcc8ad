"""Reads the members of classes: fields, properties, methods and their signatures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import griffe

from catalog.docs import read_doc, read_text
from catalog.shapes import Field, Method
from catalog.tree import SourceTree, text_of

_HIDDEN = {"__init__", "__post_init__", "__repr__", "__str__", "__init_subclass__"}
PROTOCOL = {
    "__add__": "`+`",
    "__aenter__": "`async with`",
    "__aiter__": "`async for`",
    "__anext__": "`anext()`",
    "__await__": "`await`",
    "__call__": "calling it",
    "__contains__": "`in`",
    "__enter__": "`with`",
    "__getitem__": "indexing",
    "__iter__": "`for`",
    "__len__": "`len()`",
}
"""Special methods that are part of how a class is used, with what they are there for."""


def fields(tree: SourceTree, classes: Iterable[griffe.Class]) -> tuple[Field, ...]:
    """Return the annotated fields of a dataclass or model, those of its bases first.

    Args:
        tree: The sources.
        classes: The class and those of its bases that count, nearest first.
    """
    found: dict[str, Field] = {}
    for cls in reversed(list(classes)):
        for name, member in cls.members.items():
            if isinstance(member, griffe.Attribute) and _is_field(name, member):
                found[name] = field(tree, member)
    return tuple(found.values())


def _is_field(name: str, member: griffe.Attribute) -> bool:
    if name.startswith("_") or "property" in member.labels or member.annotation is None:
        return False
    return not is_class_var(member)


def is_class_var(member: griffe.Attribute) -> bool:
    """Whether an annotated attribute is a `ClassVar`, which griffe tells by its labels only."""
    return "instance-attribute" not in member.labels


def field(tree: SourceTree, member: griffe.Attribute) -> Field:
    """Read one attribute."""
    value = None if member.value is None else text_of(member.value)
    init = value is None or "init=False" not in value.replace(" ", "")
    return Field(
        name=member.name,
        type=text_of(member.annotation) if member.annotation is not None else "",
        default=_default(value),
        doc=read_text(member.docstring),
        refs=tree.refs(member.annotation),
        init=init,
        aliases=tree.aliases(member.annotation),
    )


def _default(value: str | None) -> str | None:
    """Return the default a reader cares for: what `field()` makes, not the call itself."""
    if value is None or not value.startswith(("field(", "dataclasses.field(", "Field(")):
        return value
    call = value[value.index("(") + 1 : -1]
    for part in _arguments(call):
        key, equals, rest = part.partition("=")
        if equals and key.strip() == "default":
            return rest.strip()
        if equals and key.strip() == "default_factory":
            made = rest.strip().removeprefix("lambda:").strip()
            return made if made != rest.strip() else f"{made}()"
        if not equals and value.startswith("Field(") and part.strip() != "...":
            return part.strip()
    return None


def _arguments(text: str) -> Iterator[str]:
    """Split the arguments of a call at its own commas."""
    depth = 0
    current = ""
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            yield current
            current = ""
        else:
            current += char
    if current.strip():
        yield current


def properties(tree: SourceTree, classes: Iterable[griffe.Class]) -> tuple[Field, ...]:
    """Return the properties and documented attributes of a class, by name.

    Attributes without an annotation or made in `__init__` count once they have a docstring.
    """
    found: dict[str, Field] = {}
    for cls in classes:
        for name, member in cls.members.items():
            if name.startswith("_") or name in found or not isinstance(member, griffe.Attribute):
                continue
            documented = member.docstring is not None and not _is_declared(cls, name, member)
            if "property" in member.labels or documented:
                found[name] = field(tree, member)
    return tuple(found[name] for name in sorted(found))


def _is_declared(cls: griffe.Class, name: str, member: griffe.Attribute) -> bool:
    """Whether an attribute is a field of a dataclass or model, listed with the fields."""
    return _is_field(name, member) and (
        any("dataclass" in decorator.callable_path for decorator in cls.decorators)
        or any(text_of(base).split(".")[-1] in {"BaseModel", "PluginConfig"} for base in cls.bases)
    )


def methods(tree: SourceTree, classes: Iterable[griffe.Class]) -> tuple[Method, ...]:
    """Return the public methods of a class in the order of their declaration.

    A method that several classes define is listed once, as the nearest one documents it.

    Args:
        tree: The sources.
        classes: The class and those of its bases that count, nearest first.
    """
    ordered = list(classes)
    names: dict[str, griffe.Function] = {}
    for cls in reversed(ordered):
        for name, member in cls.members.items():
            if name in _HIDDEN or not isinstance(member, griffe.Function):
                continue
            silent = member.docstring is None
            if silent and (_is_known(name) or _is_listener(member)):
                continue
            if (not name.startswith("_") or name in PROTOCOL) and not (silent and name in names):
                names[name] = member
    return tuple(method(tree, member) for member in names.values())


def _is_known(name: str) -> bool:
    """Whether a name needs no words: the start of a plugin, or a case of a contract suite."""
    return name == "start" or name.startswith("test_")


def _is_listener(member: griffe.Function) -> bool:
    return any(text_of(d.value).startswith("on(") for d in member.decorators)


def method(tree: SourceTree, member: griffe.Function) -> Method:
    """Read a function or a method."""
    overloads = tuple(member.overloads or ())
    if not overloads and isinstance(member.parent, griffe.Class | griffe.Module):
        overloads = tuple(member.parent.overloads.get(member.name, ()))
    every = [member, *overloads]
    types = [p.annotation for one in every for p in one.parameters] + [one.returns for one in every]
    return Method(
        name=member.name,
        signature=signature(member),
        doc=read_doc(member.docstring),
        overloads=tuple(signature(one) for one in overloads),
        parameters=tuple(_parameter_name(p) for p in _visible(member)),
        refs=tree.refs(*types),
        path=tree.path(member),
        source=tree.source(member),
        wheel=tree.wheel(member),
        aliases=tree.aliases(*types),
        abstract="abstractmethod" in member.labels,
    )


def constructor(tree: SourceTree, cls: griffe.Class) -> Method | None:
    """Return how a class is made, or None where that is nobody's business but its maker's.

    It is told where the class or its constructor documents the parameters, or there are none.
    """
    for one in tree.ancestry(cls):
        member = one.members.get("__init__")
        if isinstance(member, griffe.Function):
            made = method(tree, member)
            documented = member.docstring is not None or read_doc(cls.docstring).params
            if not documented and made.parameters:
                return None
            return replace(made, signature=made.signature.replace("__init__", cls.name, 1))
    return None


def signature(member: griffe.Function) -> str:
    """Return the signature of a function on one line, without `self` and `cls`."""
    parts: list[str] = []
    seen_star = positional = False
    for parameter in _visible(member):
        kind = parameter.kind
        if kind is griffe.ParameterKind.positional_only:
            positional = True
        elif positional:
            parts.append("/")
            positional = False
        if kind is griffe.ParameterKind.keyword_only and not seen_star:
            parts.append("*")
            seen_star = True
        seen_star = seen_star or kind is griffe.ParameterKind.var_positional
        parts.append(_parameter(parameter))
    if positional:
        parts.append("/")
    text = f"{member.name}({', '.join(parts)})"
    if member.returns is not None:
        text += f" -> {text_of(member.returns)}"
    prefix = [word for word in ("classmethod", "staticmethod", "async") if word in member.labels]
    return " ".join([*prefix, text])


def _visible(member: griffe.Function) -> list[griffe.Parameter]:
    parameters = list(member.parameters)
    is_method = isinstance(member.parent, griffe.Class) and "staticmethod" not in member.labels
    return parameters[1:] if is_method and parameters else parameters


def _parameter_name(parameter: griffe.Parameter) -> str:
    stars = {
        griffe.ParameterKind.var_positional: "*",
        griffe.ParameterKind.var_keyword: "**",
    }
    return stars.get(parameter.kind or griffe.ParameterKind.keyword_only, "") + parameter.name


def _parameter(parameter: griffe.Parameter) -> str:
    text = _parameter_name(parameter)
    variadic = text.startswith("*")
    if parameter.annotation is not None:
        text += f": {text_of(parameter.annotation)}"
    if parameter.default is not None and not variadic:
        spaced = " = " if parameter.annotation is not None else "="
        text += f"{spaced}{text_of(parameter.default)}"
    return text
