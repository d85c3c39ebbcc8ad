"""The checks of a single value: its type, its bounds, its size."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

from dsh.core import JsonValue

__all__ = ["TYPES", "check_scalar", "check_size", "json_equal", "quote", "type_words"]

_MAX_QUOTED_OPTIONS: Final = 2_000
_MAX_PATH: Final = 200
_MAX_UNIQUE: Final = 1_000


def quote(path: str) -> str:
    """Return a path as violations name it; the top level is `"arguments"`."""
    if len(path) > _MAX_PATH:
        path = f"{path[: _MAX_PATH // 2]}…{path[-_MAX_PATH // 2 :]}"
    return f'"{path or "arguments"}"'


def _is_number(value: object) -> bool:
    if type(value) is int:
        return True
    return type(value) is float and math.isfinite(value)


def _is_integer(value: object) -> bool:
    # 1.0 and 1 are one number in JSON
    return type(value) is int or (_is_number(value) and cast("float", value).is_integer())


TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": lambda value: type(value) is str,
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: type(value) is bool,
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "null": lambda value: value is None,
}

_WORDS: Final = {
    "null": "null",
    "integer": "an integer",
    "object": "an object",
    "array": "an array",
}


def type_words(names: Sequence[str]) -> str:
    """Return `a string`, `an integer or null` and the like."""
    words = [_WORDS.get(name, f"a {name}") for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def json_equal(left: object, right: object) -> bool:
    """Compare scalars as JSON does: true is not 1, 1.0 is 1; other values are never equal."""
    if type(left) is bool:
        return left is right
    if _is_number(left) and _is_number(right):
        return left == right
    return type(left) is type(right) and type(left) in (str, type(None)) and left == right


def check_scalar(schema: Mapping[str, JsonValue], value: object, path: str) -> Iterator[str]:
    """Yield what is wrong with a value that is no container."""
    if type(value) in (dict, list):
        return
    options = schema.get("enum")
    if type(options) is list and not any(json_equal(value, option) for option in options):
        yield f"{quote(path)} must be one of {_dump(options)}"
    if "const" in schema and not json_equal(value, schema["const"]):
        yield f"{quote(path)} must be {_dump(schema['const'])}"
    if type(value) is str:
        yield from _check_text(schema, value, path)
    elif _is_number(value):
        yield from _check_number(schema, cast("float", value), path)


def check_size(
    schema: Mapping[str, JsonValue], value: Sequence[object], path: str
) -> Iterator[str]:
    """Yield what is wrong with the length of an array and with repeated items."""
    yield from _between(schema, "minItems", "maxItems", len(value), "item", path)
    if schema.get("uniqueItems") is True and len(value) <= _MAX_UNIQUE:
        for index, item in enumerate(value):
            if any(json_equal(item, earlier) for earlier in value[:index]):
                yield f"{quote(path)} must not repeat items"
                return


def _check_text(schema: Mapping[str, JsonValue], value: str, path: str) -> Iterator[str]:
    yield from _between(schema, "minLength", "maxLength", len(value), "character", path)
    pattern = schema.get("pattern")
    if type(pattern) is str:
        try:
            found = re.search(pattern, value)
        except (re.error, RecursionError, OverflowError):
            return
        if found is None:
            yield f"{quote(path)} must match the pattern {_dump(pattern)}"


def _check_number(schema: Mapping[str, JsonValue], value: float, path: str) -> Iterator[str]:
    for keyword, words, fits in _BOUNDS:
        bound = schema.get(keyword)
        if _is_number(bound) and not fits(value, cast("float", bound)):
            yield f"{quote(path)} must be {words} {_dump(bound)}"
    step = schema.get("multipleOf")
    if _is_number(step) and cast("float", step) > 0 and not _is_multiple(value, step):
        yield f"{quote(path)} must be a multiple of {_dump(step)}"


_BOUNDS: Final[Sequence[tuple[str, str, Callable[[float, float], bool]]]] = (
    ("minimum", "at least", lambda value, bound: value >= bound),
    ("maximum", "at most", lambda value, bound: value <= bound),
    ("exclusiveMinimum", "greater than", lambda value, bound: value > bound),
    ("exclusiveMaximum", "less than", lambda value, bound: value < bound),
)


def _is_multiple(value: float, step: object) -> bool:
    if type(value) is int and type(step) is int:
        return value % step == 0
    try:
        quotient = value / cast("float", step)
        return math.isclose(quotient, round(quotient))
    except (OverflowError, ValueError):
        return True


def _between(
    schema: Mapping[str, JsonValue], low: str, high: str, size: int, unit: str, path: str
) -> Iterator[str]:
    least, most = schema.get(low), schema.get(high)
    if _is_number(least) and size < cast("float", least):
        yield f"{quote(path)} must have at least {_count(least, unit)}"
    if _is_number(most) and size > cast("float", most):
        yield f"{quote(path)} must have at most {_count(most, unit)}"


def _count(number: object, unit: str) -> str:
    return f"{_dump(number)} {unit}" if number == 1 else f"{_dump(number)} {unit}s"


def _dump(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _MAX_QUOTED_OPTIONS:
        return text[:_MAX_QUOTED_OPTIONS] + "…"
    return text
