"""Reads the stable codes of errors, with what each of them means."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import dedent

import griffe

from catalog.docs import read_text
from catalog.reader import Reader
from catalog.shapes import Code
from catalog.tree import literal

_CODE = re.compile(r"[A-Z][A-Z0-9_]*")


def read_codes(reader: Reader, cls: griffe.Class) -> tuple[Code, ...]:
    """Return the codes an error can have, sorted.

    They are the constants of the class, its `code`, and what its methods pass on as `code=`. An
    error that says nothing of codes has the one it inherits.
    """
    found: dict[str, Code] = {}
    for name, member in cls.members.items():
        if isinstance(member, griffe.Attribute) and name.isupper():
            code = _value(reader, cls, str(member.value))
            if code is not None:
                found[code] = Code(code, name, read_text(member.docstring))
    own = cls.members.get("code")
    given = [str(own.value)] if isinstance(own, griffe.Attribute) and own.value else []
    for expression in [*given, *_passed_on(cls)]:
        code = _value(reader, cls, expression)
        if code is not None:
            found.setdefault(code, Code(code, "code", _meaning(reader, cls, expression)))
    if not found:
        inherited = _value(reader, cls, "self.code")
        if inherited is not None:
            found[inherited] = Code(inherited, "code")
    return tuple(found[code] for code in sorted(found))


def _passed_on(cls: griffe.Class) -> Iterator[str]:
    """Yield what the body of a class gives as `code`, as far as it is told there."""
    for node in ast.walk(ast.parse(dedent(cls.source))):
        if isinstance(node, ast.keyword) and node.arg == "code":
            parts = ast.walk(node.value)
            yield from (
                ast.unparse(p) for p in parts if isinstance(p, ast.Constant | ast.Attribute)
            )


def _value(reader: Reader, cls: griffe.Class, expression: str) -> str | None:
    """Return the code that an expression in a class stands for, or None if it is none."""
    code = literal(expression)
    if code is None:
        member = _member(reader, cls, expression)
        if member is None or member.value is None or str(member.value) == expression:
            return None
        owner = member.parent
        return _value(reader, owner, str(member.value)) if isinstance(owner, griffe.Class) else None
    return code if _CODE.fullmatch(code) else None


def _meaning(reader: Reader, cls: griffe.Class, expression: str) -> str:
    member = None if literal(expression) else _member(reader, cls, expression)
    return "" if member is None or member.name == "code" else read_text(member.docstring)


def _member(reader: Reader, cls: griffe.Class, expression: str) -> griffe.Attribute | None:
    """Return the class attribute that `self.X`, `cls.X`, `Class.X` or `X` names."""
    owner, _, name = expression.rpartition(".")
    found: griffe.Object | None = cls
    if owner not in {"", "self", "cls"}:
        try:
            found = reader.tree.find(cls.module.resolve(owner))
        except griffe.NameResolutionError:
            return None
    for one in reader.tree.ancestry(found) if isinstance(found, griffe.Class) else ():
        member = one.members.get(name)
        if isinstance(member, griffe.Attribute) and "class-attribute" in member.labels:
            return member
    return None
