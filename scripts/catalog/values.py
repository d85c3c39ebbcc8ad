"""Reads what else the wheels offer: values, aliases, errors, classes with behaviour, functions."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable

import griffe

from catalog import members
from catalog.codes import read_codes
from catalog.docs import read_doc
from catalog.reader import Reader
from catalog.shapes import Doc, Field, Method, PublicModule, Value, ValueKind
from catalog.tree import exported, literal, text_of

_ALIASES = {"TypeAlias", "typing.TypeAlias", "typing_extensions.TypeAlias"}


def value(reader: Reader, thing: griffe.Class | griffe.Attribute) -> Value:
    """Read a public class, alias or constant."""
    if isinstance(thing, griffe.Attribute):
        return _assigned(reader, thing)
    return _class(reader, thing)


def function(reader: Reader, fn: griffe.Function) -> Method:
    """Read a public function."""
    reader.needs_doc(fn, f"function {reader.tree.path(fn)}")
    found = members.method(reader.tree, fn)
    reader.checks_params(fn, found.path, found.doc.params, found.parameters)
    return found


def module(reader: Reader, thing: griffe.Module) -> PublicModule:
    """Read a public module."""
    tree = reader.tree
    offers: list[tuple[str, str]] = []
    for name in exported(thing):
        target = tree.find(f"{thing.path}.{name}")
        if target is not None and not isinstance(target, griffe.Module):
            offers.append((name, tree.path(target)))
    return PublicModule(
        path=thing.path,
        doc=read_doc(thing.docstring),
        offers=tuple(offers),
        wheel=tree.wheel(thing),
        source=tree.source(thing),
    )


def _assigned(reader: Reader, thing: griffe.Attribute) -> Value:
    annotation = text_of(thing.annotation) if thing.annotation is not None else ""
    made = text_of(thing.value) if thing.value is not None else ""
    alias = annotation in _ALIASES or _is_implicit_alias(thing)
    if alias and literal(made) is not None:
        made = literal(made) or made
    return Value(
        cls=thing.name,
        path=reader.tree.path(thing),
        kind="alias" if alias else "constant",
        doc=_assigned_doc(reader, thing, "alias" if alias else "constant"),
        fields=(),
        wheel=reader.tree.wheel(thing),
        source=reader.tree.source(thing),
        text=made,
        refs=reader.tree.refs(thing.value),
    )


def _assigned_doc(reader: Reader, thing: griffe.Attribute, what: str) -> Doc:
    reader.needs_doc(thing, f"{what} {reader.tree.path(thing)}")
    return read_doc(thing.docstring)


def _is_implicit_alias(thing: griffe.Attribute) -> bool:
    """Whether an unannotated assignment of a CamelCase name makes a type of types."""
    return (
        thing.annotation is None
        and re.fullmatch(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", thing.name) is not None
        and re.match(
            r"(Literal|Annotated|Callable|Union|Mapping|NewType)\b|.* \| ", text_of(thing.value)
        )
        is not None
    )


def _class(reader: Reader, cls: griffe.Class) -> Value:
    tree = reader.tree
    path = tree.path(cls)
    kind = _kind(reader, cls)
    reader.needs_doc(cls, f"class {path}")
    fields = _fields(reader, cls, kind)
    for item in fields:
        if not item.doc and not path.split(".")[-2].endswith(("testing", "server")):
            reader.report(cls, f"{path}.{item.name} has no docstring")
    # what a public base offers is shown there, also what it has from private ones
    shown = {
        one.path
        for base in tree.ancestry(cls)[1:]
        if tree.is_public(base)
        for one in tree.ancestry(base)
    }
    own = [one for one in reader.own(cls) if one.path not in shown]
    abstract = any("abstractmethod" in member.labels for member in cls.members.values())
    # nobody but the kernel makes a plugin
    made = kind in {"class", "error"} and not abstract and not tree.derives(cls, "Plugin")
    codes = read_codes(reader, cls) if kind == "error" else ()
    constants = {code.name for code in codes}
    return Value(
        cls=cls.name,
        path=path,
        kind=kind,
        doc=read_doc(cls.docstring),
        fields=fields,
        wheel=tree.wheel(cls),
        source=tree.source(cls),
        bases=tuple(_base(reader, base) for base in cls.bases),
        tag=_tag(cls),
        refs=tree.refs(*cls.bases),
        properties=tuple(
            item for item in members.properties(tree, own) if item.name not in constants
        ),
        methods=members.methods(tree, own),
        codes=codes,
        abstract=abstract,
        constructor=members.constructor(tree, cls) if made else None,
        nested=nested(reader, own),
    )


def nested(reader: Reader, classes: Iterable[griffe.Class]) -> tuple[Value, ...]:
    """Read the public classes inside of a class and of those of its bases that count."""
    found: dict[str, griffe.Class] = {}
    for cls in classes:
        for name, member in cls.members.items():
            if isinstance(member, griffe.Class) and not name.startswith("_"):
                found.setdefault(name, member)
    return tuple(_class(reader, found[name]) for name in sorted(found))


def _base(reader: Reader, base: griffe.Expr | str) -> str:
    found = None if isinstance(base, str) else reader.tree.find(base.canonical_path)
    return text_of(base) if found is None else reader.tree.path(found)


def _kind(reader: Reader, cls: griffe.Class) -> ValueKind:
    family = reader.tree.ancestry(cls)
    bases = {text_of(base).split("[")[0].split(".")[-1] for one in family for base in one.bases}
    if any(_is_exception(name) for name in bases):
        return "error"
    if bases & {"Enum", "StrEnum", "IntEnum", "Flag"}:
        return "enum"
    if bases & {"BaseModel", "PluginConfig"}:
        return "model"
    if "TypedDict" in bases:
        return "typed-dict"
    if _is_dataclass(cls):
        return "dataclass"
    if any(text_of(base).split("[")[0] == "Protocol" for base in cls.bases):
        return "protocol"
    return "class"


def _is_dataclass(cls: griffe.Class) -> bool:
    return any("dataclass" in decorator.callable_path for decorator in cls.decorators)


def _is_exception(name: str) -> bool:
    known = getattr(builtins, name, None)
    return isinstance(known, type) and issubclass(known, BaseException)


def _fields(reader: Reader, cls: griffe.Class, kind: ValueKind) -> tuple[Field, ...]:
    if kind == "dataclass":
        # what another base annotates says what its subclasses have, and is no field
        return members.fields(reader.tree, filter(_is_dataclass, reader.own(cls)))
    if kind in {"model", "typed-dict", "protocol"}:
        return members.fields(reader.tree, reader.own(cls))
    if kind != "enum":
        return ()
    return tuple(
        members.field(reader.tree, member)
        for name, member in cls.members.items()
        if isinstance(member, griffe.Attribute)
        and not name.startswith("_")
        and member.value is not None
    )


def _tag(cls: griffe.Class) -> str | None:
    """Return the constant that names a member of a tagged union on the wire."""
    for name in ("type", "kind"):
        given = literal(cls.keywords.get(name))
        if given is not None:
            return given
        member = cls.members.get(name)
        if isinstance(member, griffe.Attribute) and members.is_class_var(member):
            return literal(member.value)
    return None
