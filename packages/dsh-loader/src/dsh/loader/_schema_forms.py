"""From what a plugin's model takes to what a person may write in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, cast

from dsh.core.json import JsonObject, JsonValue

_INSIDE: Final = r"(env:[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?|file:[^}]+)\}"

EXPRESSION: Final = rf"\$\{{{_INSIDE}"
"""Matches a text with an expression in it."""

SOUND: Final = rf"^(?!([\s\S]*[^$])?\$\{{(?!{_INSIDE}))"
"""Matches a text in which each `${` begins an expression or is written `$${`."""

EXPRESSION_REF: Final = "#/$defs/expression"

TEXT: Final[JsonObject] = {"allOf": [{"$ref": "#/$defs/text"}]}
"""What holds of every text."""

_WORDS: Final = {
    "integer": r"^\s*[+-]?[0-9][0-9_]*(\.0+)?\s*$",
    "number": r"^\s*[+-]?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
    r"|^[+-]?(inf|infinity|nan)$",
    "boolean": r"^([tT]([rR][uU][eE])?|[fF]([aA][lL][sS][eE])?|[yY]([eE][sS])?|[nN][oO]?"
    r"|[oO][nN]|[oO][fF][fF]|[01])$",
}
"""Texts that stand for a value of a type, which is what a variable has to offer."""

_TEXT_LIMITS: Final = ("pattern", "maxLength", "enum", "const", "contentEncoding")
_PLAIN_FORMATS: Final = frozenset({"password", "path", "file-path", "directory-path", "binary"})
_NOTES: Final = ("title", "description", "default", "deprecated", "examples", "deprecationMessage")
_ONE: Final = ("items", "contains", "additionalProperties", "not", "if", "then", "else")
_MANY: Final = ("anyOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "$defs")


def as_written(schema: JsonObject) -> JsonObject:
    """Return a schema of values as the schema of what stands in a file.

    Where a scalar stands, an expression may stand, and a number or a truth value may be a text,
    as it is once an expression has been resolved.

    Args:
        schema: The schema of a plugin's settings, or a part of it.
    """
    result = _each_part(schema, as_written)
    if "oneOf" in result:  # an expression may fit several of the alternatives
        result["anyOf"] = result.pop("oneOf")
        result.pop("discriminator", None)
    return _scalar(result)


def _scalar(schema: JsonObject) -> JsonObject:
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        return _or_expression(schema)
    if isinstance(kind, str) and kind in _WORDS:
        return {
            **schema,
            "type": [kind, "string"],
            "pattern": f"{_WORDS[kind]}|{EXPRESSION}",
            "patternErrorMessage": f"This takes a value of type {kind}, or ${{env:NAME}}.",
        }
    if kind != "string":
        return schema
    limited = any(key in schema for key in _TEXT_LIMITS)
    if limited or schema.get("format", "password") not in _PLAIN_FORMATS:
        return _or_expression(schema)
    return {**schema, **TEXT}


def _or_expression(schema: JsonObject) -> JsonObject:
    outside: JsonObject = {key: schema[key] for key in _NOTES if key in schema}
    inside: JsonObject = {key: item for key, item in schema.items() if key not in outside}
    return {**outside, "anyOf": [inside, {"$ref": EXPRESSION_REF}]}


def _each_part(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Return a copy with every schema in it changed; values in it, such as defaults, stay."""
    result: JsonObject = {}
    for key, item in schema.items():
        if key in _ONE and isinstance(item, dict):
            result[key] = change(item)
        elif key in (*_MANY, "oneOf") and isinstance(item, list):
            result[key] = [change(part) if isinstance(part, dict) else part for part in item]
        elif key in _NAMED and isinstance(item, dict):
            result[key] = {
                name: change(part) if isinstance(part, dict) else part
                for name, part in item.items()
            }
        else:
            result[key] = deepcopy(item)
    return result


class Overlays:
    """Makes schemas of settings of which another layer may say the rest.

    Mappings merge across layers, so a field that is required may be absent in any one of them;
    lists are replaced whole, so what is required inside a list stays required.

    Args:
        definitions: All definitions; those that an overlay needs are added.
    """

    def __init__(self, definitions: dict[str, JsonObject]) -> None:
        self._definitions = definitions

    def of(self, name: str) -> str:
        """Return the name of the overlay of a definition, which is itself if nothing is required.

        Args:
            name: Name of the definition.
        """
        if not self._requires(name, set()):
            return name
        overlay = f"overlay.{name}"
        if overlay not in self._definitions:
            self._definitions[overlay] = {}  # stops a definition that refers to itself
            self._definitions[overlay] = self._loosened(self._definitions[name])
        return overlay

    def _loosened(self, schema: JsonObject) -> JsonObject:
        result: JsonObject = {}
        for key, item in schema.items():
            if key == "required":
                continue
            if key == "$ref" and isinstance(item, str) and item != EXPRESSION_REF:
                result[key] = reference(self.of(_name_of(item)))["$ref"]
            elif key == "properties" and isinstance(item, dict):
                result[key] = {name: self._part(part) for name, part in item.items()}
            elif key in {"anyOf", "allOf"} and isinstance(item, list):
                result[key] = [self._part(part) for part in item]
            elif key == "additionalProperties":
                result[key] = self._part(item)
            else:
                result[key] = deepcopy(item)
        return result

    def _part(self, part: JsonValue) -> JsonValue:
        return self._loosened(part) if isinstance(part, dict) else part

    def _requires(self, name: str, seen: set[str]) -> bool:
        """Whether anything that is reached through mappings alone is required."""
        if name in seen:
            return False
        seen.add(name)
        pending: list[JsonValue] = [self._definitions[name]]
        while pending:
            schema = pending.pop()
            if not isinstance(schema, dict):
                continue
            if schema.get("required"):
                return True
            target = schema.get("$ref", EXPRESSION_REF)
            if target != EXPRESSION_REF and self._requires(_name_of(str(target)), seen):
                return True
            for key in ("anyOf", "allOf"):
                pending.extend(cast("list[JsonValue]", schema.get(key, [])))
            pending.extend(cast("JsonObject", schema.get("properties", {})).values())
            pending.append(schema.get("additionalProperties"))
        return False


def reference(name: str) -> dict[str, str]:
    """Return a reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def _name_of(target: str) -> str:
    return target.removeprefix("#/$defs/")


def merged(schemas: list[Any]) -> JsonObject:
    """Return a schema that takes what any of the given ones takes; equal ones count once."""
    distinct = {json.dumps(item, sort_keys=True): item for item in schemas}
    kinds: list[Any] = list(distinct.values())
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
