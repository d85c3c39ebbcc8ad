"""Checks a value against a JSON Schema. Total: it never raises and always ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from dsh.core.json import JsonValue
from dsh.core.json_schema._pointer import follow
from dsh.core.json_schema._values import (
    TYPES,
    Rules,
    bound_faults,
    matches,
    type_names,
    type_words,
)

__all__ = ["violations"]

_MAX_VIOLATIONS: Final = 50
_MAX_DEPTH: Final = 120
_MAX_VISITS: Final = 100_000
_MAX_PATH: Final = 200


def violations(
    schema: Mapping[str, Any], value: object, *, root: str = "value", strict: bool = False
) -> list[str]:
    """Return one sentence for each way in which `value` does not fit; empty when it does.

    Understood are the keywords that schemas for models use: types, `required`, `properties`,
    `patternProperties`, `additionalProperties`, `items`, `prefixItems`, `enum`, `const`, bounds,
    sizes, `pattern`, `uniqueItems`, `anyOf`, `oneOf`, `allOf`, `not` and `$ref` into the schema.
    Any other keyword is no constraint, nor is what is no JSON Schema, and `default` fills
    nothing in. Never raises.

    Args:
        schema: The schema.
        value: Any object at all; what is no JSON fits no type.
        root: What the sentences call the value itself.
        strict: Take the schema at its word. If not, a value is fit for use even where it has
            properties that `additionalProperties: false` excludes, fits several options of
            `oneOf`, or has a list or an object that `enum` or `const` does not name.
    """
    check = _Check(schema, root, strict)
    try:
        check.node(schema, value, "", 0)
    except _Stop as stop:
        check.found.append(str(stop))
    except RecursionError:
        check.found.append(f'"{root}" is nested too deeply')
    except Exception as error:  # noqa: BLE001 - keys and values may be objects of any behaviour
        check.found.append(f'"{root}" cannot be checked ({type(error).__name__})')
    return check.found


class _Stop(Exception):
    """The check ends here: too much work."""


class _Enough(_Stop):
    """The check of this value ends here: so much is wrong that the rest does not matter."""


class _Check:
    """One walk of a schema over a value."""

    def __init__(self, schema: Rules, root: str, strict: bool) -> None:
        self._schema = schema
        self._root = root
        self._strict = strict
        self._visits = 0
        self.found: list[str] = []

    def node(self, schema: object, value: object, path: str, depth: int) -> None:
        """Check `value` and everything in it, collecting violations."""
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise _Stop(f"{self._quote(path)} is too large to be checked")
        if depth > _MAX_DEPTH:
            raise _Stop(f"{self._quote(path)} is nested too deeply")
        for part in self._resolve(schema):
            if part is False:
                self._say(f"{self._quote(path)} is not allowed")
            elif isinstance(part, dict):
                self._rules(cast("Rules", part), value, path, depth)

    def _rules(self, rules: Rules, value: object, path: str, depth: int) -> None:
        names = type_names(rules)
        if names and not any(TYPES[name](value) for name in names):
            self._say(f"{self._quote(path)} must be {type_words(names)}")
            return
        for text in bound_faults(rules, value, self._quote(path), self._strict):
            self._say(text)
        kind = type(value)
        if issubclass(kind, dict):
            self._object(rules, cast("dict[object, object]", value), path, depth)
        elif issubclass(kind, list):
            self._array(rules, cast("list[object]", value), path, depth)
        self._combined(rules, value, path, depth)

    def _resolve(self, schema: object) -> list[object]:
        """Return a schema and what it refers to; what cannot be followed is no constraint."""
        chain = [schema]
        while isinstance(schema, dict) and "$ref" in schema:
            ref = cast("dict[str, object]", schema)["$ref"]
            try:
                schema = follow(self._schema, ref) if type(ref) is str else True
            except LookupError:
                break
            if any(schema is one for one in chain):
                break
            chain.append(schema)
        return chain[::-1]

    def _object(self, rules: Rules, value: dict[object, object], path: str, depth: int) -> None:
        required = rules.get("required")
        for name in required if isinstance(required, list) else ():
            if type(name) is str and name not in value:
                self._say(f"missing required property {self._quote(_join(path, name))}")
        for name, part in _mapping(rules, "properties").items():
            if name in value:
                self.node(part, value[name], _join(path, name), depth + 1)
        for key, item in value.items():
            if type(key) is str:
                self._property(rules, key, item, _join(path, key), depth + 1)

    def _property(self, rules: Rules, key: str, item: object, path: str, depth: int) -> None:
        """Check a property by its name's pattern or, if no keyword names it, as an extra one."""
        patterns = _mapping(rules, "patternProperties").items()
        fitting = [part for pattern, part in patterns if matches(pattern, key)]
        for part in fitting:
            self.node(part, item, path, depth)
        if fitting or key in _mapping(rules, "properties"):
            return
        extra = rules.get("additionalProperties")
        if extra is False and self._strict:
            self._say(f"unknown property {self._quote(path)}")
        elif isinstance(extra, dict):
            self.node(extra, item, path, depth)

    def _array(self, rules: Rules, value: list[object], path: str, depth: int) -> None:
        prefix = rules.get("prefixItems")
        heads = prefix if isinstance(prefix, list) else []
        rest = rules.get("items")
        for index, item in enumerate(value):
            part = heads[index] if index < len(heads) else rest
            if part is not None:
                self.node(part, item, f"{path or self._root}[{index}]", depth + 1)

    def _combined(self, rules: Rules, value: object, path: str, depth: int) -> None:
        parts = rules.get("allOf")
        for part in parts if isinstance(parts, list) else ():
            self.node(part, value, path, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            options = rules.get(keyword)
            if isinstance(options, list) and options:
                alone = keyword == "oneOf" and self._strict
                self._alternatives(rules, options, value, path, depth, alone)
        if "not" in rules and not self._attempt(rules["not"], value, path, depth):
            self._say(f"{self._quote(path)} has a form that is excluded")

    def _alternatives(
        self,
        rules: Rules,
        options: list[JsonValue],
        value: object,
        path: str,
        depth: int,
        alone: bool,
    ) -> None:
        """Accept a value that fits an option; else report against the one it was meant for."""
        attempts: list[list[str]] = []
        for option in options:
            attempts.append(self._attempt(option, value, path, depth))
            if not attempts[-1] and not alone:
                return
        fitting = attempts.count([])
        if fitting > 1:
            self._say(f"{self._quote(path)} fits {fitting} of the forms, of which it must fit one")
        if fitting:
            return
        for text in self._nearest(rules, options, attempts, value, self._quote(path)):
            self._say(text)

    def _nearest(
        self,
        rules: Rules,
        options: list[JsonValue],
        attempts: list[list[str]],
        value: object,
        where: str,
    ) -> list[str]:
        """Return what is wrong under the option a value was meant for: by its tag or its type."""
        tagged = _tagged(rules, options, value)
        if tagged is not None:
            return attempts[tagged]
        types = [self._types(option) for option in options]
        possible = [
            index
            for index, names in enumerate(types)
            if not names or any(TYPES[name](value) for name in names)
        ]
        if len(possible) == 1:
            return attempts[possible[0]]
        if possible:
            return [f"{where} has none of the allowed forms"]
        every = dict.fromkeys(name for names in types for name in names)
        return [f"{where} must be {type_words(list(every))}"]

    def _attempt(self, option: object, value: object, path: str, depth: int) -> list[str]:
        """Return what is wrong with `value` under one option; the work counts for the whole."""
        outer, self.found = self.found, []
        try:
            # one level deeper, so that options that refer to themselves come to an end
            self.node(option, value, path, depth + 1)
        except _Enough:
            pass
        finally:
            inner, self.found = self.found, outer
        return inner

    def _types(self, option: object) -> list[str]:
        for part in self._resolve(option):
            names = type_names(cast("Rules", part)) if isinstance(part, dict) else []
            if names:
                return names
        return []

    def _say(self, text: str) -> None:
        if len(self.found) >= _MAX_VIOLATIONS:
            raise _Enough("and more")
        self.found.append(text)

    def _quote(self, path: str) -> str:
        if len(path) > _MAX_PATH:
            path = f"{path[: _MAX_PATH // 2]}…{path[-_MAX_PATH // 2 :]}"
        return f'"{path or self._root}"'


def _tagged(rules: Rules, options: list[JsonValue], value: object) -> int | None:
    """Index of the option that a value's own tag names."""
    discriminator = _mapping(rules, "discriminator")
    mapping, name = _mapping(discriminator, "mapping"), discriminator.get("propertyName")
    if type(name) is not str or not isinstance(value, dict):
        return None
    tag = cast("dict[object, object]", value).get(name)
    ref = mapping.get(tag) if type(tag) is str else None
    for index, option in enumerate(options):
        if isinstance(option, dict) and ref is not None and option.get("$ref") == ref:
            return index
    return None


def _mapping(rules: Rules, keyword: str) -> Rules:
    part = rules.get(keyword)
    return part if isinstance(part, dict) else {}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
