"""A tool through which the model gives an answer of a given shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, cast, overload

from typing_extensions import TypeForm

from dsh.core import JsonObject, JsonValue
from dsh.core.json_schema import violations
from dsh.session import thaw
from dsh.tools._execution import ToolExecution
from dsh.tools._tool import Definition, Tool, checked_schema
from dsh.tools._validation import TypedArguments, adapter_of
from dsh.tools.errors import ToolArgsError

__all__ = ["OutputTool"]

T = TypeVar("T")

_DESCRIPTION: Final = (
    "Give your final answer by calling this tool, once, when the work is done. The arguments are "
    "the answer."
)
_RECORDED: Final = "The answer was recorded."
_WRAPPER: Final = "answer"
_MISSING: Final = object()


class OutputTool(Tool, Generic[T]):
    """Takes the model's answer as arguments, checks it, and keeps it.

    Register it through the agent's context and read `value` afterwards. An answer that does not
    fit is an `INVALID_ARGS` result that lists what is wrong, so the model can correct it; of
    several answers the last one counts.

    Args:
        output: A pydantic model or any type it understands, or a JSON Schema. A shape that is
            no object travels as the property `answer`.
        name: What the model calls the tool.
        description: What the model is told.

    Raises:
        ToolDefinitionError: The type has no JSON Schema, or the schema is not JSON.
    """

    __slots__ = ("_value",)

    @overload
    def __init__(
        self: OutputTool[JsonValue],
        output: Mapping[str, JsonValue],
        *,
        name: str = ...,
        description: str = ...,
    ) -> None: ...
    @overload
    def __init__(self, output: TypeForm[T], *, name: str = ..., description: str = ...) -> None: ...
    def __init__(
        self, output: Any, *, name: str = "final_answer", description: str = _DESCRIPTION
    ) -> None:
        self._value: Any = _MISSING
        is_schema = isinstance(output, Mapping)
        shape = _SchemaShape(cast("Any", output)) if is_schema else _TypeShape(output)
        definition = _OutputDefinition(shape, description, self._keep)
        self._setup(name, definition, None, False, None, None)

    @property
    def received(self) -> bool:
        """Whether there is an answer."""
        return self._value is not _MISSING

    @property
    def value(self) -> T:
        """The last answer: an instance of the type, or the JSON value.

        Raises:
            LookupError: The model gave none.
        """
        if self._value is _MISSING:
            raise LookupError(f"the model has not called {self.name!r}, so there is no answer")
        return cast("T", self._value)

    def _keep(self, value: object) -> None:
        self._value = value


class _Shape(ABC):
    """What an answer looks like."""

    schema: JsonObject

    @abstractmethod
    def parse(self, value: JsonValue) -> object:
        """Return the answer, or raise ToolArgsError."""


class _TypeShape(_Shape):
    def __init__(self, kind: Any) -> None:
        what = f"the output type {getattr(kind, '__name__', kind)}"
        self._typed: TypedArguments[Any] = TypedArguments(adapter_of(kind, what), what)
        self.schema = self._typed.schema

    def parse(self, value: JsonValue) -> object:
        return self._typed.parse(value)


class _SchemaShape(_Shape):
    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self.schema = checked_schema(schema, "the output schema")

    def parse(self, value: JsonValue) -> object:
        found = violations(self.schema, value, root="arguments")
        if found:
            raise ToolArgsError(found)
        return thaw(value)


class _OutputDefinition(Definition):
    __slots__ = ("_description", "_keep", "_parameters", "_shape", "_wrapped")

    def __init__(self, shape: _Shape, description: str, keep: Callable[[object], None]) -> None:
        self._shape = shape
        self._description = description
        self._keep = keep
        self._wrapped = shape.schema.get("type") != "object"
        self._parameters = _wrap(shape.schema) if self._wrapped else shape.schema

    def description(self) -> str:
        return self._description

    def parameters(self) -> JsonObject:
        return self._parameters

    def violations(self, arguments: JsonObject) -> list[str]:
        try:
            self._parse(arguments)
        except ToolArgsError as error:
            return list(error.violations)
        return []

    async def call(self, arguments: JsonObject, execution: ToolExecution) -> object:
        self._keep(self._parse(arguments))
        return _RECORDED

    def _parse(self, arguments: JsonObject) -> object:
        if not self._wrapped:
            return self._shape.parse(arguments)
        found = violations(self._parameters, arguments, root="arguments")
        if found:
            raise ToolArgsError(found)
        return self._shape.parse(arguments[_WRAPPER])


def _wrap(schema: JsonObject) -> JsonObject:
    """Return the schema of an object that holds the answer; references keep their targets."""
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    outer: JsonObject = {
        "type": "object",
        "properties": {_WRAPPER: inner},
        "required": [_WRAPPER],
    }
    for key in ("$defs", "definitions"):
        if key in schema:
            outer[key] = schema[key]
    return outer
