"""Checks arguments against a JSON Schema. Total: it never raises and always ends.

The keywords that schemas for models use are understood: types, `required`, `properties`,
`additionalProperties` as a schema, `items`, `prefixItems`, `enum`, `const`, bounds, lengths,
`pattern`, `uniqueItems`, `anyOf`, `oneOf` (as `anyOf`), `allOf` and local `$ref`. Any other keyword
is no constraint. Extra properties are always allowed, and `default` fills nothing in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from dsh.core import JsonObject, JsonValue
from dsh.tools._schema_checks import TYPES, check_scalar, check_size, quote, type_words

__all__ = ["violations"]

Schema: TypeAlias = Mapping[str, JsonValue]

_MAX_VIOLATIONS: Final = 50
_MAX_DEPTH: Final = 120
_MAX_VISITS: Final = 100_000
_MAX_REFS: Final = 50


def violations(schema: JsonObject, value: object) -> list[str]:
    """Return one sentence for each way in which `value` does not fit; empty when it does.

    Args:
        schema: The schema; parts that are no JSON Schema are no constraint.
        value: Any object at all; what is no JSON fits no type.
    """
    check = _Check(schema)
    try:
        check.node(schema, value, "", 0)
    except _Stop as stop:
        check.found.append(str(stop))
    except RecursionError:
        check.found.append('"arguments" is nested too deeply')
    except Exception as error:  # noqa: BLE001 - keys and values may be objects of any behaviour
        check.found.append(f'"arguments" cannot be checked ({type(error).__name__})')
    return check.found


class _Stop(Exception):
    """Enough violations, or too much work."""


class _Check:
    """One walk of a schema over a value."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._visits = 0
        self.found: list[str] = []

    def node(self, schema: object, value: object, path: str, depth: int) -> None:
        """Check `value` and everything in it, collecting violations."""
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise _Stop(f"{quote(path)} is too large to be checked")
        if depth > _MAX_DEPTH:
            raise _Stop(f"{quote(path)} is nested too deeply")
        target = self._resolve(schema)
        if target is False:
            self._say(f"{quote(path)} is not allowed")
        if type(target) is not dict:
            return
        rules = cast("dict[str, JsonValue]", target)
        if self._wrong_type(rules, value, path):
            return
        for text in check_scalar(rules, value, path):
            self._say(text)
        self._container(rules, value, path, depth)
        self._combined(rules, value, path, depth)

    def _resolve(self, schema: object) -> object:
        """Follow local references; what cannot be followed is no constraint."""
        for _ in range(_MAX_REFS):
            if type(schema) is not dict:
                return schema
            ref = cast("dict[str, object]", schema).get("$ref")
            if type(ref) is not str:
                return cast("object", schema)
            schema = self._lookup(ref)
        return True

    def _lookup(self, ref: str) -> object:
        if not ref.startswith("#"):
            return True
        place: object = self._root
        for part in ref[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(place, Mapping) or key not in place:
                return True
            place = cast("Mapping[str, object]", place)[key]
        return place

    def _wrong_type(self, schema: Schema, value: object, path: str) -> bool:
        names = _type_names(schema)
        if not names or any(TYPES[name](value) for name in names):
            return False
        self._say(f"{quote(path)} must be {type_words(names)}")
        return True

    def _container(self, schema: Schema, value: object, path: str, depth: int) -> None:
        if type(value) is dict:
            self._object(schema, cast("dict[object, object]", value), path, depth)
        elif type(value) is list:
            self._array(schema, cast("list[object]", value), path, depth)

    def _object(self, schema: Schema, value: dict[object, object], path: str, depth: int) -> None:
        required = schema.get("required")
        for name in required if type(required) is list else ():
            if type(name) is str and name not in value:
                self._say(f"missing required property {quote(_join(path, name))}")
        properties = schema.get("properties")
        known = properties if type(properties) is dict else {}
        for name, part in known.items():
            if name in value:
                self.node(part, value[name], _join(path, name), depth + 1)
        extra = schema.get("additionalProperties")
        if type(extra) is not dict:
            return
        for key, item in value.items():
            if type(key) is str and key not in known:
                self.node(extra, item, _join(path, key), depth + 1)

    def _array(self, schema: Schema, value: list[object], path: str, depth: int) -> None:
        prefix = schema.get("prefixItems")
        heads = prefix if type(prefix) is list else []
        rest = schema.get("items")
        for index, item in enumerate(value):
            part = heads[index] if index < len(heads) else rest
            if part is not None:
                self.node(part, item, f"{path or 'arguments'}[{index}]", depth + 1)
        for text in check_size(schema, value, path):
            self._say(text)

    def _combined(self, schema: Schema, value: object, path: str, depth: int) -> None:
        parts = schema.get("allOf")
        for part in parts if type(parts) is list else ():
            self.node(part, value, path, depth)
        for keyword in ("anyOf", "oneOf"):
            options = schema.get(keyword)
            if type(options) is list and options:
                self._alternatives(schema, options, value, path, depth)

    def _alternatives(
        self, schema: Schema, options: list[JsonValue], value: object, path: str, depth: int
    ) -> None:
        """Accept a value that fits one option; else report against the one it was meant for."""
        attempts: list[list[str]] = []
        for option in options:
            found = self._attempt(option, value, path, depth)
            if not found:
                return
            attempts.append(found)
        resolved = [self._resolve(option) for option in options]
        meant = _meant(schema, options, resolved, value)
        if meant is not None:
            for text in attempts[meant]:
                self._say(text)
            return
        names = [name for option in resolved for name in _type_names(option)]
        typed = all(_type_names(option) for option in resolved)
        if typed and not any(TYPES[name](value) for name in names):
            self._say(f"{quote(path)} must be {type_words(list(dict.fromkeys(names)))}")
        else:
            self._say(f"{quote(path)} has none of the allowed forms")

    def _attempt(self, option: object, value: object, path: str, depth: int) -> list[str]:
        """Return what is wrong with `value` under one option; the work counts for the whole."""
        outer, self.found = self.found, []
        try:
            # one level deeper, so that options that refer to themselves come to an end
            self.node(option, value, path, depth + 1)
        finally:
            inner, self.found = self.found, outer
        return inner

    def _say(self, text: str) -> None:
        if len(self.found) >= _MAX_VIOLATIONS:
            raise _Stop("and more")
        self.found.append(text)


def _meant(
    schema: Schema, options: list[JsonValue], resolved: list[object], value: object
) -> int | None:
    """Index of the option a value was probably meant for: by its tag, or the only fitting type."""
    tagged = _tagged(schema, options, value)
    if tagged is not None:
        return tagged
    fitting = [
        index
        for index, option in enumerate(resolved)
        if not _type_names(option) or any(TYPES[name](value) for name in _type_names(option))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _tagged(schema: Schema, options: list[JsonValue], value: object) -> int | None:
    discriminator = schema.get("discriminator")
    if type(discriminator) is not dict or type(value) is not dict:
        return None
    mapping = discriminator.get("mapping")
    name = discriminator.get("propertyName")
    tag = cast("dict[object, object]", value).get(name) if type(name) is str else None
    if type(mapping) is not dict or type(tag) is not str:
        return None
    ref = mapping.get(tag)
    for index, option in enumerate(options):
        if type(option) is dict and ref is not None and option.get("$ref") == ref:
            return index
    return None


def _type_names(schema: object) -> list[str]:
    wanted = cast("dict[str, object]", schema).get("type") if type(schema) is dict else None
    names = cast("list[object]", wanted if type(wanted) is list else [wanted])
    return [name for name in names if type(name) is str and name in TYPES]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
