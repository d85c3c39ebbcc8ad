"""The fields of a JSON Schema as the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

Schema = Mapping[str, Any]

_DEFINITION: Final = "#/$defs/"
_SIZES: Final = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
_NAMES: Final = {"array": "list", "object": "mapping"}
_ANYTHING: Final = "anything"
NO_DEFAULT: Final = "required"


@dataclass(frozen=True, slots=True)
class Row:
    """One field."""

    path: str
    """Where it stands: `retry.mode`, `models[].id`."""
    type: str
    """What it takes."""
    default: str
    """Its default as JSON, `required`, or nothing where its own fields have theirs."""
    limits: str
    """What else a value has to fulfil."""
    doc: str
    """What it does."""


def rows_of(schema: Schema, definitions: Mapping[str, Schema] | None = None) -> tuple[Row, ...]:
    """Return the fields of a schema and of whatever is inside them, in order.

    A definition that occurs twice is written out once; further fields of its type refer to there.

    Args:
        schema: The schema of a mapping.
        definitions: What it refers to; its own `$defs` if not given.
    """
    known: Mapping[str, Schema] = schema.get("$defs", {}) if definitions is None else definitions
    return tuple(_Reader(known).fields(schema, ""))


class _Reader:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._written: dict[str, str] = {}
        """Where the fields of each definition stand."""

    def fields(self, schema: Schema, prefix: str) -> Iterator[Row]:
        """Yield the rows of a mapping's fields."""
        schema = self._resolved(schema)
        required = schema.get("required", ())
        for name, field in schema.get("properties", {}).items():
            path = f"{prefix}{name}"
            inner = list(self._inside(field, path))
            doc = str(field.get("description", self._resolved(field).get("description", "")))
            yield Row(
                path=path,
                type=self.type_of(field, path),
                default=_default(field, name in required, self._has_fields(field)),
                limits="; ".join(dict.fromkeys(self._limits(field))),
                doc=doc,
            )
            yield from inner

    def type_of(self, schema: Schema, path: str = "") -> str:
        """Return in words what a schema takes."""
        if "$ref" in schema:
            place = self._written.get(schema["$ref"], path)
            text = self.type_of(self._resolved(schema))
            return text if place in {path, ""} else f"{text} as in `{place}`"
        options = schema.get("anyOf", schema.get("oneOf"))
        if options:
            return " or ".join(dict.fromkeys(self.type_of(option, path) for option in options))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return " or ".join(f"`{_shown(value)}`" for value in values)
        kind = schema.get("type")
        if kind == "array":
            items = schema.get("items")
            return f"list of {_one(self.type_of(items, f'{path}[]'))}" if items else "list"
        if kind == "object" and schema.get("additionalProperties") not in (None, True, False):
            held = self.type_of(schema["additionalProperties"], f"{path}.*")
            return "mapping" if held == _ANYTHING else f"mapping to {_one(held)}"
        if isinstance(kind, list):
            kinds = cast("list[str]", kind)
            return " or ".join(_NAMES.get(part, part) for part in kinds)
        return _NAMES.get(str(kind), str(kind)) if kind else _ANYTHING

    def _inside(self, schema: Schema, path: str) -> Iterator[Row]:
        for target, place in self._places(schema, path):
            reference = target.get("$ref")
            if reference is not None:
                if reference in self._written:
                    continue
                self._written[reference] = place
            yield from self.fields(target, f"{place}.")

    def _places(self, schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
        """Yield each mapping with fields of its own that a field can hold, and where."""
        for option in schema.get("anyOf", schema.get("oneOf", ())):
            yield from self._places(option, path)
        if isinstance(schema.get("items"), Mapping):
            yield from self._places(schema["items"], f"{path}[]")
        if isinstance(schema.get("additionalProperties"), Mapping):
            yield from self._places(schema["additionalProperties"], f"{path}.*")
        if self._resolved(schema).get("properties"):
            yield schema, path

    def _has_fields(self, schema: Schema) -> bool:
        return bool(self._resolved(schema).get("properties"))

    def _limits(self, schema: Schema) -> Iterator[str]:
        schema = self._resolved(schema)
        for key, text in _SIZES.items():
            if key in schema:
                yield _counted(text, schema[key])
        if "pattern" in schema:
            yield f"matches `{schema['pattern']}`"
        if str(schema.get("format", "")) not in {"", "password", "path"}:
            yield str(schema["format"])
        for option in schema.get("anyOf", schema.get("oneOf", ())):
            if "$ref" not in option:
                yield from self._limits(option)
        if isinstance(schema.get("items"), Mapping) and "$ref" not in schema["items"]:
            yield from (f"each {text}" for text in self._limits(schema["items"]))

    def _resolved(self, schema: Schema) -> Schema:
        target = schema.get("$ref")
        return schema if target is None else self._definitions[target.removeprefix(_DEFINITION)]


def _default(field: Schema, required: bool, has_fields: bool) -> str:
    if required:
        return NO_DEFAULT
    return "" if has_fields or "default" not in field else f"`{_shown(field['default'])}`"


def _shown(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _one(text: str) -> str:
    return f"({text})" if " or " in text else text


def _counted(text: str, size: object) -> str:
    told = text.format(size)
    return told.removesuffix("s") if size == 1 and told.startswith("at") else told
