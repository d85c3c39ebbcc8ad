"""Reads services and plugins."""

from __future__ import annotations

import re

import griffe

from catalog import members, values
from catalog.docs import read_doc
from catalog.reader import Reader
from catalog.shapes import Injection, PluginClass, Provider, ServiceClass
from catalog.tree import literal, text_of


def is_service(reader: Reader, cls: griffe.Class) -> bool:
    """Whether a class declares a service key."""
    return literal(cls.keywords.get("key")) is not None and reader.tree.derives(cls, "Service")


def is_abstract(reader: Reader, cls: griffe.Class) -> bool:
    """Whether a class cannot be mounted: methods of it are still abstract, or it says ABC."""
    if any(text_of(base).split(".")[-1] in {"ABC", "Protocol"} for base in cls.bases):
        return True
    seen: set[str] = set()
    for one in reader.tree.ancestry(cls):
        for name, member in one.members.items():
            if name not in seen and "abstractmethod" in member.labels:
                return True
            seen.add(name)
    return False


def service(reader: Reader, cls: griffe.Class, providers: tuple[Provider, ...]) -> ServiceClass:
    """Read the class that declares a key."""
    key = literal(cls.keywords["key"]) or ""
    reader.needs_doc(cls, f"service {key!r} ({cls.name})")
    reader.needs_public(cls, f"service {key!r} ({cls.name})")
    found = members.methods(reader.tree, reader.own(cls))
    for one in found:
        if not one.doc:
            reader.report(cls, f"method {cls.name}.{one.name} of service {key!r} has no docstring")
        reader.checks_params(cls, f"{cls.name}.{one.name}", one.doc.params, one.parameters)
    shown = members.properties(reader.tree, reader.own(cls))
    for item in shown:
        if not item.doc:
            reader.report(
                cls, f"property {cls.name}.{item.name} of service {key!r} has no docstring"
            )
    return ServiceClass(
        key=key,
        cls=cls.name,
        path=reader.tree.path(cls),
        abstract=is_abstract(reader, cls),
        doc=read_doc(cls.docstring),
        methods=found,
        properties=tuple(item for item in shown if item.name != "name"),
        providers=providers,
        wheel=reader.tree.wheel(cls),
        source=reader.tree.source(cls),
        nested=values.nested(reader, reader.own(cls)),
    )


def provider(reader: Reader, cls: griffe.Class, key: str) -> Provider:
    """Describe a class that can be mounted as a service."""
    return Provider(
        cls=cls.name,
        path=reader.tree.path(cls),
        wheel=reader.tree.wheel(cls),
        entry_points=entry_points(reader, cls, "dsh.plugins"),
        seam=bool(entry_points(reader, cls, f"dsh.seam.{key}")),
        source=reader.tree.source(cls),
    )


def entry_points(reader: Reader, thing: griffe.Object, group: str) -> tuple[str, ...]:
    """Return the names under which the wheels list a class or function."""
    return reader.listed.get((group, thing.path), ())


def key_of(reader: Reader, cls: griffe.Class) -> str | None:
    """Return the service key that a class or a base of it declares."""
    for one in reader.tree.ancestry(cls):
        if is_service(reader, one):
            return literal(one.keywords["key"])
    return None


def plugin(reader: Reader, cls: griffe.Class) -> PluginClass:
    """Read a plugin class."""
    config = _config(reader, cls)
    shown = () if config is None else members.fields(reader.tree, reader.own(config))
    if not is_service(reader, cls):  # that one has been asked already
        reader.needs_doc(cls, f"plugin {cls.name}")
    for item in shown:
        # the entry of a public class asks for those of its own `Config`
        asked = reader.tree.is_public(cls) and config is not None and config.parent is cls
        if not item.doc and config is not None and not asked:
            reader.report(config, f"configuration field {cls.name}: {item.name} has no docstring")
    return PluginClass(
        name=_plugin_name(reader, cls),
        cls=cls.name,
        path=reader.tree.path(cls),
        config=shown,
        injects=_injections(reader, cls),
        provides=key_of(reader, cls),
        doc=read_doc(cls.docstring),
        wheel=reader.tree.wheel(cls),
        source=reader.tree.source(cls),
        entry_points=entry_points(reader, cls, "dsh.plugins"),
    )


def function_plugin(reader: Reader, fn: griffe.Function) -> PluginClass:
    """Read a plugin that is a function listed by an entry point."""
    reader.needs_doc(fn, f"plugin {fn.name}")
    return PluginClass(
        name=kebab(fn.name),
        cls=fn.name,
        path=reader.tree.path(fn),
        config=(),
        injects=(),
        provides=None,
        doc=read_doc(fn.docstring),
        wheel=reader.tree.wheel(fn),
        source=reader.tree.source(fn),
        entry_points=entry_points(reader, fn, "dsh.plugins"),
    )


def _plugin_name(reader: Reader, cls: griffe.Class) -> str:
    member = cls.members.get("name")
    given = literal(member.value) if isinstance(member, griffe.Attribute) else None
    return given or kebab(cls.name)


def _config(reader: Reader, cls: griffe.Class) -> griffe.Class | None:
    for one in reader.tree.ancestry(cls):
        member = one.members.get("Config")
        if isinstance(member, griffe.Class):
            return member
        if isinstance(member, griffe.Attribute) and isinstance(member.value, griffe.Expr):
            found = reader.tree.find(member.value.canonical_path)
            if isinstance(found, griffe.Class):
                return found
    return None


def _injections(reader: Reader, cls: griffe.Class) -> tuple[Injection, ...]:
    found: dict[str, Injection] = {}
    for one in reversed(reader.tree.ancestry(cls)):
        for name, member in one.members.items():
            injection = _injection(reader, name, member)
            if injection is not None:
                found[name] = injection
            elif name in found:
                del found[name]
    return tuple(sorted(found.values(), key=lambda item: (item.key, item.attribute)))


def _injection(reader: Reader, name: str, member: griffe.Object | griffe.Alias) -> Injection | None:
    if not isinstance(member, griffe.Attribute):
        return None
    value = member.value
    if not isinstance(value, griffe.ExprCall) or not value.arguments:
        return None
    if str(value.function).split(".")[-1] != "inject":
        return None
    first = value.arguments[0]
    optional = any(text_of(part).replace(" ", "") == "optional=True" for part in value.arguments)
    service = reader.tree.find(first.canonical_path) if isinstance(first, griffe.Expr) else None
    key = key_of(reader, service) if isinstance(service, griffe.Class) else None
    if key is None:
        reader.report(
            member, f"{name} = {text_of(value)} injects a class that declares no service key"
        )
        return None
    return Injection(name, key, optional)


def kebab(name: str) -> str:
    """Return a class or function name the way the kernel names a plugin after it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", name).strip("-").lower()
