"""JSON as the log accepts it: values that survive a round trip unchanged.

`check` validates and copies in one iterative walk, so neither a hostile depth nor a value that
changes between looks gets past it.
"""

from __future__ import annotations

import json as _stdlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from typing_extensions import TypeAliasType

from dsh.core.errors import NotJsonError

__all__ = ["MAX_DEPTH", "MAX_INTEGER", "JsonObject", "JsonValue", "check", "dumps", "loads"]

if TYPE_CHECKING:
    JsonValue: TypeAlias = (
        "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
    )
    """A value of JSON: scalars, and lists and objects of such values, to any depth."""
    JsonObject: TypeAlias = dict[str, JsonValue]
    """A JSON object."""
else:
    # a named alias can be a field of a pydantic model wherever it is imported; checkers read the
    # recursive form above
    JsonValue = TypeAliasType(
        "JsonValue", "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
    )
    JsonObject = TypeAliasType("JsonObject", "dict[str, JsonValue]")

MAX_DEPTH: Final = 200
"""Deepest nesting of lists and objects."""

MAX_INTEGER: Final = 2**53 - 1
"""Largest integer every JSON reader keeps exact."""

_encoder = _stdlib.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def check(value: object, *, where: str = "value") -> JsonValue:
    """Return a deep copy of `value` if it is lossless JSON; tuples become lists.

    Args:
        value: What is to be stored or sent.
        where: Name of the place for the error message, an event type for example.

    Raises:
        NotJsonError: Code `NOT_JSON` names the path and the offending type; code
            `JSON_TOO_DEEP` says that the nesting exceeds `MAX_DEPTH`.
    """
    plain = _scalar(value, where)
    if plain is not _CONTAINER:
        return cast("JsonValue", plain)
    root, children = _shell(value, where)
    stack = [(root, children, where, frozenset({id(value)}))]
    while stack:
        target, pairs, path, ancestors = stack.pop()
        for key, item in pairs:
            here = f"{path}.{key}" if isinstance(key, str) else f"{path}[{key}]"
            plain = _scalar(item, here)
            if plain is _CONTAINER:
                if id(item) in ancestors:
                    raise NotJsonError(f"{here} is not JSON: it contains itself")
                if len(ancestors) >= MAX_DEPTH:
                    raise NotJsonError(
                        f"{where} is not JSON: nested deeper than {MAX_DEPTH} levels",
                        code=NotJsonError.TOO_DEEP,
                    )
                plain, inner = _shell(item, here)
                stack.append((plain, inner, here, ancestors | {id(item)}))
            if isinstance(target, dict):
                target[cast("str", key)] = cast("JsonValue", plain)
            else:
                target.append(cast("JsonValue", plain))
    return root


def dumps(value: JsonValue) -> bytes:
    """Encode as compact UTF-8.

    Args:
        value: The value; `check` says whether it survives a round trip.

    Returns:
        The text, without spaces, keys in their order.

    Raises:
        NotJsonError: The value holds a non-finite number, a lone surrogate or a foreign type.
    """
    try:
        return _encoder.encode(value).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise NotJsonError(f"value is not JSON: {error}") from error


def loads(data: bytes | str) -> JsonValue:
    """Decode one JSON document; `NaN` and infinities are refused.

    Args:
        data: The text; bytes are UTF-8.

    Returns:
        The value.

    Raises:
        NotJsonError: The text is not JSON.
    """
    try:
        return cast("JsonValue", _stdlib.loads(data, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"text is not JSON: {error}") from error


_CONTAINER: Final = object()


def _scalar(value: object, path: str) -> object:
    """Return an admissible scalar, `_CONTAINER` for a list or mapping, or raise."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _text(cast("str", value), path)
    if kind is int:
        if abs(cast("int", value)) > MAX_INTEGER:
            raise NotJsonError(f"{path} is not JSON: integer beyond 2^53")
        return value
    if kind is float:
        if not math.isfinite(cast("float", value)):
            raise NotJsonError(f"{path} is not JSON: non-finite number")
        return value
    if isinstance(value, Mapping | list | tuple):
        return _CONTAINER
    raise NotJsonError(f"{path} is not JSON: {kind.__name__}")


def _shell(
    value: object, path: str
) -> tuple[list[JsonValue] | dict[str, JsonValue], list[tuple[object, object]]]:
    """Return an empty copy of a container and its items, read once."""
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())
        for key, _ in pairs:
            if type(key) is not str:
                raise NotJsonError(f"{path} is not JSON: key {key!r} is not a string")
            _text(key, path)
        return {}, pairs
    return [], list(enumerate(cast("list[object] | tuple[object, ...]", value)))


def _text(value: str, path: str) -> str:
    # isascii is one flag test, so the common case pays nothing
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise NotJsonError(f"{path} is not JSON: lone surrogate in a string") from error
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
