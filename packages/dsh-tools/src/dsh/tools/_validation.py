"""Checks a value against a type that pydantic understands, in the words of the schema check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import ValidationError

from dsh.core import JsonObject, JsonValue
from dsh.core import json as djson
from dsh.core.errors import NotJsonError
from dsh.core.json_schema import violations
from dsh.tools._failure import message_of
from dsh.tools.errors import ToolArgsError, ToolDefinitionError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["TypedArguments"]

T = TypeVar("T")


class TypedArguments(Generic[T]):
    """A type as the schema of JSON values, and the way from such a value to an instance.

    The schema is checked first and the type second, so that the usual mistakes read the same
    whether a tool has a hand-written schema or typed parameters. Nothing is coerced.

    Args:
        adapter: The pydantic adapter of the type.
        what: Whose schema it is, for messages.
    """

    def __init__(self, adapter: TypeAdapter[T], what: str) -> None:
        self._adapter = adapter
        try:
            schema = djson.check(adapter.json_schema(), where=f"schema of {what}")
        except Exception as error:
            raise ToolDefinitionError(
                f"{what} has no JSON Schema: {message_of(error).splitlines()[0]}",
                hint="use types that JSON can carry",
            ) from error
        self.schema: JsonObject = _without_titles(cast("JsonObject", schema))
        """The JSON Schema, without the titles pydantic makes up from names."""

    def violations(self, value: JsonValue) -> list[str]:
        """Return what is wrong with a value; empty when `parse` would succeed."""
        try:
            self.parse(value)
        except ToolArgsError as error:
            return list(error.violations)
        return []

    def parse(self, value: JsonValue) -> T:
        """Return the instance for a JSON value.

        Raises:
            ToolArgsError: The value does not fit.
        """
        found = violations(self.schema, value, root="arguments")
        if found:
            raise ToolArgsError(found)
        try:
            # as JSON, because strict validation of Python objects refuses dates, enums and tuples
            return self._adapter.validate_json(djson.dumps(_integral(value)), strict=True)
        except ValidationError as error:
            raise ToolArgsError(_issues(error)) from error
        except NotJsonError as error:
            raise ToolArgsError([str(error)]) from error
        except Exception as error:
            # validators of the type's author may raise anything
            raise ToolArgsError([f'"arguments" cannot be checked: {message_of(error)}']) from error


def _issues(error: ValidationError) -> list[str]:
    found: list[str] = []
    for issue in error.errors(include_url=False, include_input=False, include_context=False):
        path = _path(issue["loc"])
        if issue["type"] == "missing":
            found.append(f'missing required property "{path}"')
            continue
        message = issue["msg"]
        for prefix in ("Value error, ", "Assertion failed, "):
            message = message.removeprefix(prefix)
        found.append(f'"{path or "arguments"}" is not valid: {message}')
    return found


def _path(location: Sequence[int | str]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path = f"{path or 'arguments'}[{part}]"
        else:
            path = f"{path}.{part}" if path else part
    return path


def _integral(value: JsonValue) -> JsonValue:
    """Write 1.0 as 1: JSON knows one kind of number, strict integers know two."""
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_integral(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= djson.MAX_INTEGER:
        return int(value)
    return value


def _without_titles(schema: JsonObject) -> JsonObject:
    """Drop generated titles; they repeat names and cost tokens in every request."""
    cleaned: JsonObject = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            cleaned[key] = {name: _clean(part) for name, part in value.items()}
        elif key in ("default", "const", "enum", "examples"):
            cleaned[key] = value
        else:
            cleaned[key] = _clean(value)
    return cleaned


def _clean(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return _without_titles(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def adapter_of(kind: Any, what: str) -> TypeAdapter[Any]:
    """Return a pydantic adapter of a type; `what` says in messages whose it is.

    Raises:
        ToolDefinitionError: Pydantic cannot validate the type.
    """
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        raise ToolDefinitionError(
            f"{what} has a type pydantic cannot validate: {error.message.splitlines()[0]}",
            hint="use types that JSON can carry",
        ) from error
