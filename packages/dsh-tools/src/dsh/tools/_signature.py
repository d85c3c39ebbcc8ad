"""From a typed function to a JSON Schema and a checked call."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict

from dsh.core import JsonObject
from dsh.tools._docstring import FunctionDoc, read_docstring
from dsh.tools._execution import ToolExecution
from dsh.tools._validation import TypedArguments, adapter_of
from dsh.tools.errors import ToolDefinitionError

__all__ = ["Signature"]

_EXECUTION_NAME: Final = "execution"
_CONFIG: Final = ConfigDict(extra="ignore", strict=True)


class Signature:
    """The parameters of a function as the arguments of a tool.

    Annotations are resolved when the tool is registered; the schema and the validator are built
    when a prompt or a call first needs them.

    Args:
        function: The function.
        name: Name of the tool, for messages.
        bound: Leave out the first parameter, the instance of a method.
        namespace: Names that string annotations may use besides the function's globals.

    Raises:
        ToolDefinitionError: A parameter cannot be passed by keyword or is not known, or the
            function yields.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        bound: bool,
        namespace: Mapping[str, Any] | None,
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ToolDefinitionError(
                f"tool {name!r} yields", hint="return the whole result; a call has one outcome"
            )
        self._what = f"tool {name!r}"
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError as error:
            # some of what is written in C does not tell
            raise ToolDefinitionError(
                f"the parameters of {self._what} are not known", hint="wrap it in a function"
            ) from error
        self._function = function
        self._namespace = namespace
        self._parameters = parameters[1:] if bound else parameters
        self._hints: dict[str, Any] | None = None
        self._doc: FunctionDoc | None = None
        self._arguments: TypedArguments[Any] | None = None
        for parameter in self._parameters:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ToolDefinitionError(
                    f"{self._what} has the parameter `{parameter}`",
                    hint="every parameter must be passable by keyword",
                )

    @property
    def doc(self) -> FunctionDoc:
        """What the function's docstring says."""
        if self._doc is None:
            self._doc = read_docstring(self._function)
        return self._doc

    @property
    def arguments(self) -> TypedArguments[Any]:
        """The schema and the validator."""
        if self._arguments is None:
            self._arguments = self._build()
        return self._arguments

    def resolve(self) -> dict[str, Any]:
        """Return the type of every parameter, `execution` left out.

        Raises:
            ToolDefinitionError: A parameter has no type, or a name in it is unknown.
        """
        if self._hints is None:
            self._hints = self._resolve()
        return self._hints

    def keywords(self, instance: object, execution: ToolExecution) -> dict[str, Any]:
        """Return the keyword arguments of a call for what the validator made."""
        hints = self.resolve()
        return {
            parameter.name: execution
            if _takes_execution(parameter.name, hints)
            else getattr(instance, parameter.name)
            for parameter in self._parameters
        }

    def _resolve(self) -> dict[str, Any]:
        annotations: dict[str, Any] = {}
        for parameter in self._parameters:
            if parameter.name == _EXECUTION_NAME:
                continue
            if parameter.annotation is parameter.empty:
                raise ToolDefinitionError(
                    f"parameter {parameter.name!r} of {self._what} has no type",
                    hint="annotate it; register a method through its instance",
                )
            annotations[parameter.name] = parameter.annotation
        holder = SimpleNamespace(__annotations__=annotations)
        names: dict[str, Any] = getattr(inspect.unwrap(self._function), "__globals__", {})
        try:
            return get_type_hints(
                holder, globalns=names, localns=dict(self._namespace or {}), include_extras=True
            )
        except (NameError, TypeError, SyntaxError, AttributeError) as error:
            raise ToolDefinitionError(
                f"the types of {self._what} cannot be resolved: {error}",
                hint="import what the annotations name where the function is defined, outside of "
                "TYPE_CHECKING",
            ) from error

    def _build(self) -> TypedArguments[Any]:
        hints = self.resolve()
        fields = [
            (parameter.name, hints[parameter.name], _field(parameter.default))
            for parameter in self._parameters
            if not _takes_execution(parameter.name, hints)
        ]
        # a dataclass, not a model: a tool may have parameters named `schema`, `copy` or `json`
        holder = dataclasses.make_dataclass(
            "Arguments", fields, kw_only=True, namespace={"__pydantic_config__": _CONFIG}
        )
        arguments: TypedArguments[Any] = TypedArguments(adapter_of(holder, self._what), self._what)
        self._describe(arguments.schema)
        return arguments

    def _describe(self, schema: JsonObject) -> None:
        schema.pop("description", None)
        properties = schema.setdefault("properties", {})
        if not isinstance(properties, dict):
            return
        for name, text in self.doc.parameters.items():
            part = properties.get(name)
            if isinstance(part, dict) and text:
                part.setdefault("description", text)


def _takes_execution(name: str, hints: Mapping[str, Any]) -> bool:
    return name == _EXECUTION_NAME or _is_execution(hints.get(name))


def _is_execution(hint: Any) -> bool:
    if hint is ToolExecution:
        return True
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_execution(get_args(hint)[0])
    if origin in (Union, UnionType):
        return any(_is_execution(option) for option in get_args(hint))
    return False


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return dataclasses.field()
    if type(default).__hash__ is None:
        # a list as default is refused by dataclasses and shared between calls by Python
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default))
    return dataclasses.field(default=default)
