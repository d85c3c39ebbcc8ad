"""Checking a JSON value against a JSON Schema.

Covers the keywords that models are given in practice; unknown keywords constrain nothing.
References may point into the schema itself (`#/...`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote

from dsh.core import JsonValue

JsonSchema: TypeAlias = Mapping[str, JsonValue]
Schema: TypeAlias = JsonSchema | bool
_MAX_DEPTH: Final = 400
_MAX_REPORTED: Final = 20


def violations(schema: Mapping[str, Any], value: object) -> tuple[str, ...]:
    """Return what is wrong with `value`, one line each; empty when it fits.

    Args:
        schema: The JSON Schema.
        value: The value, nested no deeper than a log accepts.
    """
    check = _Check(schema)
    check.walk(schema, cast("JsonValue", value), "$", 0)
    return tuple(check.found[:_MAX_REPORTED])


def follow(root: JsonSchema, ref: str) -> JsonValue:
    """Return what a reference of the form `#` or `#/a/b/0` points at.

    Raises:
        LookupError: It points at nothing, or out of the schema.
    """
    start, *parts = ref.split("/")
    if start != "#":
        raise LookupError(ref)
    node = cast("JsonValue", root)
    for part in parts:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node[key]
        elif isinstance(node, list) and key.isdecimal():
            node = node[int(key)]
        else:
            raise LookupError(ref)
    return node


class _Check:
    """One walk over a schema and a value."""

    def __init__(self, root: JsonSchema) -> None:
        self.root = root
        self.found: list[str] = []

    def walk(self, schema: Schema, value: JsonValue, path: str, depth: int) -> None:
        if schema is True:
            return
        if schema is False or depth > _MAX_DEPTH:
            self.say(path, "is not allowed" if schema is False else "has an endless schema")
            return
        ref = schema.get("$ref")
        if isinstance(ref, str):
            self.walk(self.resolve(ref), value, path, depth + 1)
        before = len(self.found)
        self.own_type(schema, value, path)
        if len(self.found) > before:
            return
        self.fixed(schema, value, path)
        if isinstance(value, dict):
            self.mapping(schema, value, path, depth)
        elif isinstance(value, list):
            self.array(schema, value, path, depth)
        elif isinstance(value, str):
            self.text(schema, value, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.number(schema, value, path)
        self.combined(schema, value, path, depth)

    def say(self, path: str, what: str) -> None:
        self.found.append(f"{path} {what}")

    def fits(self, schema: Schema, value: JsonValue, depth: int) -> bool:
        inner = _Check(self.root)
        inner.walk(schema, value, "$", depth + 1)
        return not inner.found

    def resolve(self, ref: str) -> Schema:
        if not ref.startswith("#"):
            return True
        try:
            return _schema(follow(self.root, ref))
        except LookupError:
            return False

    def own_type(self, schema: JsonSchema, value: JsonValue, path: str) -> None:
        wanted = schema.get("type")
        names = [wanted] if isinstance(wanted, str) else wanted
        if not isinstance(names, list) or not names:
            return
        known = [name for name in names if isinstance(name, str) and name in TYPES]
        if known and not any(TYPES[name](value) for name in known):
            self.say(path, f"must be {' or '.join(known)}, not {_type_name(value)}")

    def fixed(self, schema: JsonSchema, value: JsonValue, path: str) -> None:
        options = schema.get("enum")
        if isinstance(options, list) and not any(_same(value, item) for item in options):
            self.say(path, f"must be one of {json.dumps(options)}")
        if "const" in schema and not _same(value, schema["const"]):
            self.say(path, f"must be {json.dumps(schema['const'])}")

    def mapping(
        self, schema: JsonSchema, value: dict[str, JsonValue], path: str, depth: int
    ) -> None:
        required = schema.get("required")
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str) and name not in value:
                self.say(path, f"lacks the property {json.dumps(name)}")
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        extra = _schema(schema.get("additionalProperties", True))
        for name, item in value.items():
            here = f"{path}.{name}"
            if name in known:
                self.walk(_schema(known[name]), item, here, depth + 1)
            elif extra is False:
                self.say(path, f"has the unknown property {json.dumps(name)}")
            else:
                self.walk(extra, item, here, depth + 1)
        self.size(schema, len(value), path, "minProperties", "maxProperties", "properties")

    def array(self, schema: JsonSchema, value: list[JsonValue], path: str, depth: int) -> None:
        prefix = schema.get("prefixItems")
        heads = prefix if isinstance(prefix, list) else []
        rest = _schema(schema.get("items", True))
        for index, item in enumerate(value):
            part = _schema(heads[index]) if index < len(heads) else rest
            self.walk(part, item, f"{path}[{index}]", depth + 1)
        if schema.get("uniqueItems") is True:
            texts = [json.dumps(item, sort_keys=True) for item in value]
            if len(set(texts)) != len(texts):
                self.say(path, "must not repeat an item")
        self.size(schema, len(value), path, "minItems", "maxItems", "items")

    def text(self, schema: JsonSchema, value: str, path: str) -> None:
        self.size(schema, len(value), path, "minLength", "maxLength", "characters")
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            try:
                matches = re.search(pattern, value) is not None
            except re.error:
                return
            if not matches:
                self.say(path, f"must match the pattern {pattern}")

    def number(self, schema: JsonSchema, value: float, path: str) -> None:
        for keyword, (holds, words) in _BOUNDS.items():
            bound = schema.get(keyword)
            if _is_number(bound) and not holds(value, cast("float", bound)):
                self.say(path, f"must be {words} {bound}")
        step = schema.get("multipleOf")
        if _is_number(step) and cast("float", step) > 0:
            quotient = value / cast("float", step)
            if math.isfinite(quotient) and abs(quotient - round(quotient)) > 1e-9:
                self.say(path, f"must be a multiple of {step}")

    def size(
        self, schema: JsonSchema, size: int, path: str, low: str, high: str, what: str
    ) -> None:
        least, most = schema.get(low), schema.get(high)
        if isinstance(least, int) and size < least:
            self.say(path, f"must have at least {least} {what}")
        if isinstance(most, int) and size > most:
            self.say(path, f"must have at most {most} {what}")

    def combined(self, schema: JsonSchema, value: JsonValue, path: str, depth: int) -> None:
        for part in _schemas(schema.get("allOf")):
            self.walk(part, value, path, depth + 1)
        options = _schemas(schema.get("anyOf"))
        if options and not any(self.fits(part, value, depth) for part in options):
            self.say(path, "fits none of the alternatives")
        options = _schemas(schema.get("oneOf"))
        if options and sum(self.fits(part, value, depth) for part in options) != 1:
            self.say(path, "must fit exactly one of the alternatives")
        if "not" in schema and self.fits(_schema(schema["not"]), value, depth):
            self.say(path, "fits what it must not be")


def _schema(node: JsonValue) -> Schema:
    if isinstance(node, bool | Mapping):
        return node
    return True


def _schemas(node: JsonValue) -> list[Schema]:
    return [_schema(item) for item in node] if isinstance(node, list) else []


def _same(left: JsonValue, right: JsonValue) -> bool:
    # true is 1 in Python and is not in JSON
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return _is_number(value) and float(cast("float", value)).is_integer()


TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": _is_number,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}

_BOUNDS: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "more than"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "less than"),
}


def _type_name(value: JsonValue) -> str:
    for name in ("boolean", "integer", "number", "string", "array", "object"):
        if TYPES[name](value):
            return name
    return "null"
