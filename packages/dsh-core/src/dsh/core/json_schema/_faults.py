"""Finding what is wrong with a JSON Schema itself, before a model is asked to keep to it.

Looks at the keywords that `violations` checks and at every place that holds a schema;
unknown keywords are left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from dsh.core.json import JsonValue
from dsh.core.json_schema._pointer import follow
from dsh.core.json_schema._values import TYPES

_MAX_REPORTED: Final = 20
_ONE: Final = (
    "items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_MANY: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
)  # fmt: skip


def faults(schema: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with `schema`, one line each with the place; empty when it is sound.

    Args:
        schema: JSON, nested no deeper than a log accepts.
    """
    check = _Soundness(schema)
    check.run()
    return check.found[:_MAX_REPORTED]


class _Soundness:
    """One walk over a schema; places are JSON pointers, as in `$ref`."""

    def __init__(self, root: Mapping[str, JsonValue]) -> None:
        self._root = root
        self._left: list[tuple[JsonValue, str]] = [(cast("JsonValue", root), "#")]
        self._seen: set[int] = set()
        self.found: list[str] = []

    def run(self) -> None:
        while self._left:
            node, place = self._left.pop()
            if isinstance(node, bool) or id(node) in self._seen:
                continue
            self._seen.add(id(node))
            if isinstance(node, dict):
                self._keywords(node, place)
                self._parts(node, place)
            else:
                self._say(place, f"must be a schema (an object or a boolean), not {_show(node)}")

    def _say(self, place: str, what: str) -> None:
        self.found.append(f"{place} {what}")

    def _keywords(self, node: dict[str, JsonValue], place: str) -> None:
        if "type" in node:
            self._type(node["type"], f"{place}/type")
        if "pattern" in node:
            self._pattern(node["pattern"], f"{place}/pattern")
        if "$ref" in node:
            self._reference(node, f"{place}/$ref")
        if "enum" in node and not isinstance(node["enum"], list):
            self._say(f"{place}/enum", f"must be an array, not {_show(node['enum'])}")
        required = node.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            self._say(f"{place}/required", f"must be an array of names, not {_show(required)}")
        for keyword in _NUMBERS:
            if keyword in node and not TYPES["number"](node[keyword]):
                self._say(f"{place}/{keyword}", f"must be a number, not {_show(node[keyword])}")
        for keyword in _COUNTS:
            if keyword in node and not TYPES["integer"](node[keyword]):
                self._say(f"{place}/{keyword}", f"must be an integer, not {_show(node[keyword])}")

    def _type(self, wanted: JsonValue, place: str) -> None:
        names = wanted if isinstance(wanted, list) else [wanted]
        bad = [name for name in names if not isinstance(name, str) or name not in TYPES]
        if bad or not names:
            what = _show(bad[0] if bad else wanted)
            self._say(place, f"names no type: {what} (there are {', '.join(TYPES)})")

    def _pattern(self, pattern: JsonValue, place: str) -> None:
        if not isinstance(pattern, str):
            self._say(place, f"must be a regular expression, not {_show(pattern)}")
            return
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            self._say(place, f"is no valid regular expression: {_show(pattern)} ({error})")

    def _reference(self, node: dict[str, JsonValue], place: str) -> None:
        passed: set[str] = set()
        target: JsonValue = node
        while isinstance(target, dict) and "$ref" in target:
            ref = target["$ref"]
            if not isinstance(ref, str):
                self._say(place, f'must be a text such as "#/$defs/name", not {_show(ref)}')
                return
            if ref in passed:
                self._say(place, f"leads back to itself: {_show(ref)}")
                return
            passed.add(ref)
            try:
                target = follow(self._root, ref)
            except LookupError:
                self._say(place, f"points at nothing in the schema: {_show(ref)}")
                return
            self._left.append((target, ref))

    def _parts(self, node: dict[str, JsonValue], place: str) -> None:
        parts: list[tuple[JsonValue, str]] = []
        for keyword in _ONE:
            part = node.get(keyword, True)
            if keyword == "items" and isinstance(part, list):  # as in older drafts
                parts += [(item, f"{place}/items/{at}") for at, item in enumerate(part)]
            else:
                parts.append((part, f"{place}/{keyword}"))
        for keyword in _MANY:
            part = node.get(keyword, [])
            if isinstance(part, list):
                parts += [(item, f"{place}/{keyword}/{at}") for at, item in enumerate(part)]
            else:
                self._say(f"{place}/{keyword}", f"must be an array of schemas, not {_show(part)}")
        for keyword in _NAMED:
            part = node.get(keyword, {})
            if not isinstance(part, dict):
                self._say(f"{place}/{keyword}", f"must be an object of schemas, not {_show(part)}")
                continue
            for name, item in part.items():
                here = f"{place}/{keyword}/{name.replace('~', '~0').replace('/', '~1')}"
                parts.append((item, here))
                if keyword == "patternProperties":
                    self._pattern(name, here)
        self._left.extend(reversed(parts))


def _show(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
