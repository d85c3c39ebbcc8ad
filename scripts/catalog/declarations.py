"""Reads event classes and the event types of the session log."""

from __future__ import annotations

import re
from typing import Literal

import griffe

from catalog import members
from catalog.docs import read_doc
from catalog.reader import Reader
from catalog.shapes import Event, Mode, Payload
from catalog.tree import MODES, literal, text_of

_EVENT_NAME = re.compile(r"[a-z][a-z0-9-]*(/[a-z][a-z0-9-]*)+")


def is_event(reader: Reader, cls: griffe.Class) -> bool:
    """Whether a class declares an event, also one whose base is not known."""
    name = literal(cls.keywords.get("name"))
    if name is None:
        return False
    return reader.tree.derives(cls, "Event", *MODES) or _EVENT_NAME.fullmatch(name) is not None


def event(reader: Reader, cls: griffe.Class) -> Event | None:
    """Read an event class, or report why it cannot be read."""
    name = literal(cls.keywords["name"]) or ""
    mode, result = _mode(reader, cls)
    if mode is None:
        bases = ", ".join(text_of(base) for base in cls.bases) or "nothing"
        reader.report(
            cls,
            f"event {name} ({cls.name}) derives from {bases}, which leads to none of "
            f"{', '.join(MODES)}; derive from one of them",
        )
        return None
    found = members.fields(reader.tree, reader.own(cls))
    reader.needs_doc(cls, f"event {name} ({cls.name})")
    reader.needs_public(cls, f"event {name} ({cls.name})")
    for item in found:
        if not item.doc:
            reader.report(cls, f"field {cls.name}.{item.name} of event {name} has no docstring")
    errors = literal(cls.keywords.get("errors")) or "contain"
    return Event(
        name=name,
        cls=cls.name,
        path=reader.tree.path(cls),
        mode=mode,
        result=None if result is None else text_of(result),
        scope=literal(cls.keywords.get("scope")),
        realm=_realm(reader, cls),
        errors="raise" if errors == "raise" else "contain",
        doc=read_doc(cls.docstring),
        fields=found,
        wheel=reader.tree.wheel(cls),
        source=reader.tree.source(cls),
        refs=reader.tree.refs(result),
    )


def _mode(reader: Reader, cls: griffe.Class) -> tuple[Mode | None, griffe.Expr | str | None]:
    """Return the mode and what listeners give, from the nearest base that says so."""
    for one in reader.tree.ancestry(cls):
        for base in one.bases:
            path = base if isinstance(base, str) else base.canonical_path
            target = reader.tree.find(path)
            name = target.name if target is not None else ""
            if target is not None and target.path.startswith("dsh.core.") and name in MODES:
                result = base.slice if isinstance(base, griffe.ExprSubscript) else None
                return MODES[name], result
    return None, None


def _realm(reader: Reader, cls: griffe.Class) -> str | None:
    realm = cls.keywords.get("realm")
    if realm is None or literal(realm) is not None:
        return literal(realm)
    # a class stands for the key it declares
    target = reader.tree.find(getattr(realm, "canonical_path", str(realm)))
    key = literal(target.keywords.get("key")) if isinstance(target, griffe.Class) else None
    if key is None:
        reader.report(cls, f"realm={text_of(realm)} of event class {cls.name} declares no key")
    return key


def is_payload(reader: Reader, cls: griffe.Class) -> bool:
    """Whether a class declares an event type of the session log."""
    return literal(cls.keywords.get("type")) is not None and any(
        base.path.startswith("dsh.session.") and base.name == "SessionData"
        for base in reader.tree.ancestry(cls)[1:]
    )


def payload(reader: Reader, cls: griffe.Class) -> Payload:
    """Read a payload class."""
    kind: Literal["surface", "log-only"] = (
        "surface" if text_of(cls.keywords.get("surface")) == "True" else "log-only"
    )
    name = literal(cls.keywords["type"]) or ""
    found = members.fields(reader.tree, reader.own(cls))
    reader.needs_doc(cls, f"session event {name} ({cls.name})")
    reader.needs_public(cls, f"session event {name} ({cls.name})")
    for item in found:
        if not item.doc:
            reader.report(
                cls, f"field {cls.name}.{item.name} of session event {name} has no docstring"
            )
    return Payload(
        type=name,
        cls=cls.name,
        path=reader.tree.path(cls),
        kind=kind,
        fields=found,
        doc=read_doc(cls.docstring),
        wheel=reader.tree.wheel(cls),
        source=reader.tree.source(cls),
        properties=members.properties(reader.tree, reader.own(cls)),
    )
