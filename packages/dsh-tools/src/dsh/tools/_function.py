"""Makes a tool of a typed function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from dsh.core import JsonObject
from dsh.tools._body import call_body
from dsh.tools._execution import ToolExecution
from dsh.tools._signature import Signature
from dsh.tools._tool import CallPresenter, Concurrency, Definition, ResultPresenter, Tool
from dsh.tools.errors import ToolDefinitionError

__all__ = ["FunctionTool", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function by `tool`. Calling it calls the function.

    As an attribute of a class it binds like a method: `self.tools.register(self.ctx,
    self.search)` registers the tool of this instance.
    """

    __slots__ = ("_function", "_inline", "_options")

    def __init__(
        self,
        function: Callable[P, R],
        options: Mapping[str, Any],
        namespace: Mapping[str, Any] | None = None,
        *,
        definition: _FunctionDefinition | None = None,
    ) -> None:
        if not callable(function):
            raise ToolDefinitionError(f"{function!r} is no function, so it cannot become a tool")
        name = options["name"] or getattr(function, "__name__", "")
        self._function = function
        self._options = options
        if definition is None:
            signature = Signature(function, name, bound=False, namespace=namespace)
            definition = _FunctionDefinition(
                function, signature, options["description"], options["inline"], namespace
            )
        self._setup(
            name,
            definition,
            options["timeout_ms"],
            options["concurrent"],
            options["present_call"],
            options["present_result"],
        )

    @property
    def function(self) -> Callable[P, R]:
        """The function itself."""
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as if it were no tool."""
        return self._function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, Q], R], instance: object, owner: type[Any]
    ) -> FunctionTool[Q, R]: ...
    def __get__(self, instance: object, owner: type[Any]) -> Any:
        if instance is None:
            return self
        definition = self._definition
        assert isinstance(definition, _FunctionDefinition)
        method = MethodType(self._function, instance)
        return FunctionTool[..., Any](
            method, self._options, definition=definition.bind(method, self._name)
        )


class _FunctionDefinition(Definition):
    """A function and its signature. Bound tools share one signature, so it is built once."""

    __slots__ = ("_bound", "_description", "_function", "_inline", "_namespace", "_signature")

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        description: str | None,
        inline: bool,
        namespace: Mapping[str, Any] | None,
    ) -> None:
        self._function = function
        self._signature = signature
        self._description = description
        self._inline = inline
        self._namespace = namespace
        self._bound: Signature | None = None

    def bind(self, method: MethodType, name: str) -> _FunctionDefinition:
        """Return the definition of a method of one instance."""
        if self._bound is None:
            self._bound = Signature(self._function, name, bound=True, namespace=self._namespace)
        return _FunctionDefinition(
            method, self._bound, self._description, self._inline, self._namespace
        )

    def prepare(self) -> None:
        self._signature.resolve()

    def description(self) -> str:
        return self._signature.doc.text if self._description is None else self._description

    def parameters(self) -> JsonObject:
        return self._signature.arguments.schema

    def violations(self, arguments: JsonObject) -> list[str]:
        return self._signature.arguments.violations(arguments)

    async def call(self, arguments: JsonObject, execution: ToolExecution) -> object:
        instance = self._signature.arguments.parse(arguments)
        keywords = self._signature.keywords(instance, execution)
        return await call_body(self._function, self._inline, **keywords)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_ms: float | None = None,
    concurrent: Concurrency = False,
    present_call: CallPresenter | None = None,
    present_result: ResultPresenter | None = None,
    inline: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_ms: float | None = None,
    concurrent: Concurrency = False,
    present_call: CallPresenter | None = None,
    present_result: ResultPresenter | None = None,
    inline: bool = False,
) -> Any:
    """Make a tool of a typed function, synchronous or not.

    The parameters become the schema: types and defaults from the annotations, descriptions from
    the docstring or from `Annotated[..., Field(description=...)]`. Arguments are validated
    strictly, nothing is coerced, extra ones are ignored. A parameter that is annotated
    `ToolExecution` or named `execution` gets the execution and is no argument. A synchronous
    function runs in a worker thread, so it must not touch the context or the agent.

    Args:
        function: The function, when the decorator is used without parentheses.
        name: What the model calls it; the function's name when absent.
        description: What the model is told; the prose of the docstring when absent.
        timeout_ms: Longest time a call may take, in milliseconds; None for no limit.
        concurrent: Whether calls may overlap; only an exact True counts. A function gets the
            arguments as JSON.
        present_call: How a call looks in a user interface.
        present_result: How its result looks.
        inline: Call a synchronous function on the event loop instead of in a worker thread;
            only for functions that return at once.

    Raises:
        ToolDefinitionError: The function cannot be a tool.
    """
    options = {
        "name": name,
        "description": description,
        "timeout_ms": timeout_ms,
        "concurrent": concurrent,
        "present_call": present_call,
        "present_result": present_result,
        "inline": inline,
    }

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function, options, _local_names(function, depth=2))

    if function is None:
        return decorate
    return FunctionTool(function, options, _local_names(function, depth=2))


def _local_names(function: Callable[..., Any], depth: int) -> Mapping[str, Any] | None:
    """Names a function defined inside another one may use in string annotations."""
    if "<locals>" not in getattr(function, "__qualname__", ""):
        return None
    annotations = getattr(function, "__annotations__", {})
    if not any(isinstance(annotation, str) for annotation in annotations.values()):
        return None
    frame = inspect.currentframe()
    for _ in range(depth):
        frame = frame.f_back if frame is not None else None
    return None if frame is None else dict(frame.f_locals)
