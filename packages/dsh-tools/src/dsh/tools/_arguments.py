"""From the text the model wrote to a JSON object that nobody can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from dsh.core import JsonObject
from dsh.core import json as djson
from dsh.core.errors import NotJsonError
from dsh.session import freeze
from dsh.tools.errors import ToolArgsError

__all__ = ["InvalidArguments", "fixed_arguments", "parse_arguments"]


@dataclass(frozen=True, slots=True)
class InvalidArguments:
    """Arguments that are no JSON object; passed on, so that the call gets its error result."""

    problem: str
    """What is wrong, for the model."""
    text: str
    """What the model wrote."""


def fixed_arguments(value: object) -> JsonObject:
    """Return arguments as an object that cannot change; such an object is returned as it is.

    Raises:
        ToolArgsError: They are no JSON object.
    """
    try:
        fixed = freeze(value, where="arguments")
    except NotJsonError as error:
        raise ToolArgsError([str(error)]) from error
    if not isinstance(fixed, dict):
        raise ToolArgsError(['"arguments" must be an object'])
    return cast("JsonObject", fixed)


def parse_arguments(text: str) -> JsonObject | InvalidArguments:
    """Parse the arguments of a tool call as the model wrote them; blank text means `{}`.

    Never raises: what is no JSON object comes back as `InvalidArguments`, which the registry
    answers with an `INVALID_ARGS` result. The object cannot be changed, so that one of them
    serves everybody who looks at the call.
    """
    if not text.strip():
        return fixed_arguments({})
    try:
        return fixed_arguments(djson.loads(text))
    except ToolArgsError as error:
        return InvalidArguments(error.violations[0], text)
    except NotJsonError as error:
        return InvalidArguments(str(error), text)
