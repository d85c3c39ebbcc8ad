"""The checks that look at one value alone: its type, its bounds, its size."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

from dsh.core.json import JsonValue

__all__ = ["TYPES", "Rules", "bound_faults", "canonical", "matches", "type_names", "type_words"]

Rules: TypeAlias = Mapping[str, JsonValue]
"""A JSON Schema that is an object."""

_MAX_QUOTED: Final = 2_000


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _is_integer(value: object) -> bool:
    # 1.0 and 1 are one number in JSON
    return type(value) is int or (_is_number(value) and cast("float", value).is_integer())


TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": lambda value: type(value) is str,
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: type(value) is bool,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}
"""The types by name: whether a value is of one."""

_WORDS: Final = {
    "null": "null",
    "integer": "an integer",
    "object": "an object",
    "array": "an array",
}


def type_names(rules: Rules) -> list[str]:
    """Return the known types that a schema allows; none means any."""
    wanted = rules.get("type")
    names = wanted if isinstance(wanted, list) else [wanted]
    return [name for name in names if type(name) is str and name in TYPES]


def type_words(names: Sequence[str]) -> str:
    """Return `a string`, `an integer or null` and the like."""
    words = [_WORDS.get(name, f"a {name}") for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def canonical(value: object) -> object:
    """Return what equals that of another value exactly if the two are the same JSON.

    True is not 1, 1.0 is 1, the order of keys is nothing; what is no JSON equals nothing.
    """
    if value is None or type(value) is str:
        return value
    if type(value) is bool:
        return ("boolean", value)
    if _is_number(value):
        return ("number", value)
    if isinstance(value, list):
        return ("array", tuple(canonical(item) for item in cast("list[object]", value)))
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return ("object", frozenset((key, canonical(item)) for key, item in pairs))
    return object()


def matches(pattern: object, text: str) -> bool:
    """Tell whether a pattern is found in a text; what is no pattern is found in all."""
    if type(pattern) is not str:
        return True
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return True


def bound_faults(rules: Rules, value: object, where: str, strict: bool) -> Iterator[str]:
    """Yield what is wrong with a value apart from its type and from what it holds.

    Args:
        rules: The schema.
        value: The value.
        where: Its name in the sentences, quoted.
        strict: Whether `enum` and `const` also bind lists and objects.
    """
    kind = type(value)
    if strict or not issubclass(kind, dict | list):
        yield from _fixed(rules, value, where)
    if type(value) is str:
        yield from _between(rules, "Length", len(value), "character", where)
        if not matches(rules.get("pattern"), value):
            yield f"{where} must match the pattern {_dump(rules['pattern'])}"
    elif isinstance(value, list):
        items = cast("list[object]", value)
        yield from _between(rules, "Items", len(items), "item", where)
        unique = rules.get("uniqueItems") is True
        if unique and len({canonical(item) for item in items}) < len(items):
            yield f"{where} must not repeat items"
    elif isinstance(value, dict):
        size = len(cast("dict[object, object]", value))
        yield from _between(rules, "Properties", size, "property", where)
    elif _is_number(value):
        yield from _number(rules, cast("float", value), where)


def _fixed(rules: Rules, value: object, where: str) -> Iterator[str]:
    options = rules.get("enum")
    if isinstance(options, list):
        wanted = canonical(value)
        if not any(canonical(option) == wanted for option in options):
            yield f"{where} must be one of {_dump(options)}"
    if "const" in rules and canonical(rules["const"]) != canonical(value):
        yield f"{where} must be {_dump(rules['const'])}"


_BOUNDS: Final[Sequence[tuple[str, str, Callable[[float, float], bool]]]] = (
    ("minimum", "at least", lambda value, bound: value >= bound),
    ("maximum", "at most", lambda value, bound: value <= bound),
    ("exclusiveMinimum", "greater than", lambda value, bound: value > bound),
    ("exclusiveMaximum", "less than", lambda value, bound: value < bound),
)


def _number(rules: Rules, value: float, where: str) -> Iterator[str]:
    for keyword, words, fits in _BOUNDS:
        bound = rules.get(keyword)
        if _is_number(bound) and not fits(value, cast("float", bound)):
            yield f"{where} must be {words} {_dump(bound)}"
    step = rules.get("multipleOf")
    if _is_number(step) and cast("float", step) > 0 and not _is_multiple(value, step):
        yield f"{where} must be a multiple of {_dump(step)}"


def _is_multiple(value: float, step: object) -> bool:
    if type(value) is int and type(step) is int:
        return value % step == 0
    try:
        quotient = value / cast("float", step)
        return math.isclose(quotient, round(quotient))
    except (OverflowError, ValueError):
        return True


def _between(rules: Rules, what: str, size: int, unit: str, where: str) -> Iterator[str]:
    least, most = rules.get(f"min{what}"), rules.get(f"max{what}")
    if _is_number(least) and size < cast("float", least):
        yield f"{where} must have at least {_count(least, unit)}"
    if _is_number(most) and size > cast("float", most):
        yield f"{where} must have at most {_count(most, unit)}"


def _count(number: object, unit: str) -> str:
    plural = "properties" if unit == "property" else f"{unit}s"
    return f"{_dump(number)} {unit if number == 1 else plural}"


def _dump(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = "a value"
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
