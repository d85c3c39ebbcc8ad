"""From the text the model wrote to a JSON object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

from dsh.core import JsonObject, JsonValue
from dsh.core import json as djson
from dsh.core.errors import NotJsonError

__all__ = ["InvalidArguments", "copy_json", "parse_arguments"]

J = TypeVar("J", bound="JsonValue")


@dataclass(frozen=True, slots=True)
class InvalidArguments:
    """Arguments that are no JSON object; passed on, so that the call gets its error result."""

    problem: str
    """What is wrong, for the model."""
    text: str
    """What the model wrote."""


def copy_json(value: J) -> J:
    """Copy lists and objects of a value that is known to be JSON of bounded depth."""
    return cast("J", _copy(value))


def _copy(value: JsonValue) -> JsonValue:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value


def parse_arguments(text: str) -> JsonObject | InvalidArguments:
    """Parse the arguments of a tool call as the model wrote them; blank text means `{}`.

    Never raises: what is no JSON object comes back as `InvalidArguments`, which the registry
    answers with an `INVALID_ARGS` result.
    """
    if not text.strip():
        return {}
    try:
        value = djson.check(djson.loads(text), where="arguments")
    except NotJsonError as error:
        return InvalidArguments(str(error), text)
    if not isinstance(value, dict):
        return InvalidArguments('"arguments" must be an object', text)
    return value
