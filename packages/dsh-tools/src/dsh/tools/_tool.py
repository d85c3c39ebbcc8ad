"""The definition of a tool."""

from __future__ import annotations

import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from dsh.core import JsonObject, JsonValue
from dsh.core import json as djson
from dsh.core.errors import NotJsonError
from dsh.core.json_schema import violations
from dsh.llm import ToolSchema
from dsh.session import thaw
from dsh.tools._body import call_body
from dsh.tools._execution import ToolExecution
from dsh.tools._output import to_output
from dsh.tools._presentation import CallView, GenericCard, GenericResult, ResultView, ToolOutcome
from dsh.tools._results import ToolOutput
from dsh.tools.errors import ToolArgsError, ToolDefinitionError

__all__ = ["CallPresenter", "Concurrency", "Definition", "ResultPresenter", "Tool", "ToolBody"]

_log = logging.getLogger("dsh.tools")

ToolBody: TypeAlias = Callable[[JsonObject, ToolExecution], object]
"""What a call runs, synchronous (then in a worker thread) or not. It gets arguments of its own.

It returns, or its awaitable comes to, a text, one content block or several, a `ToolOutput`, or
anything else with a JSON form: pydantic models, dataclasses, lists, mappings, numbers. None and the
empty text become `NO_OUTPUT`.
"""

Concurrency: TypeAlias = bool | Callable[[JsonObject], bool]
"""Whether calls may overlap with other such calls: always, never, or for these arguments."""

CallPresenter: TypeAlias = Callable[[JsonObject], CallView | None]
"""How a call looks. Pure: it also runs when an old session is replayed."""

ResultPresenter: TypeAlias = Callable[[JsonObject, ToolOutcome], ResultView | None]
"""How a result looks. Pure: it also runs when an old session is replayed."""

_ANY_OBJECT: Final[JsonObject] = {"type": "object"}
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Definition(ABC):
    """What stands behind a tool's schema and its run."""

    __slots__ = ()

    def prepare(self) -> None:
        """Find what can be found wrong cheaply; called when the tool is registered."""
        return None

    @abstractmethod
    def description(self) -> str:
        """Return what the model is told."""

    @abstractmethod
    def parameters(self) -> JsonObject:
        """Return the JSON Schema of the arguments; not to be changed."""

    @abstractmethod
    def violations(self, arguments: JsonObject) -> list[str]:
        """Return what is wrong with arguments; never raises."""

    @abstractmethod
    async def call(self, arguments: JsonObject, execution: ToolExecution) -> object:
        """Check arguments, run the body on a copy of them and return what it returned.

        Raises:
            ToolArgsError: The arguments do not fit; the body did not run.
        """


class Tool:
    """Something the model can call. Immutable: a registered tool never changes.

    Args:
        name: What the model calls it, up to 64 letters, digits, dashes and underscores; unique
            among the tools an agent sees.
        description: What it does and when to use it, for the model.
        parameters: JSON Schema of the arguments, an object schema. Arguments are checked
            against it before the body runs; extra properties are let through.
        execute: The body, `(arguments, execution) -> result`, synchronous or not. The result is
            a text, content blocks, JSON, a pydantic model, a `ToolOutput` or nothing. What it
            raises becomes an error result.
        timeout_ms: Longest time a body may take, in milliseconds; None for no limit. Then the
            execution's signal fires, and 5 s later a body that still runs is given up.
        concurrent: Whether calls may overlap; only an exact True counts.
        present_call: How a call looks in a user interface.
        present_result: How its result looks.
        check_arguments: False leaves checking to the body, which then gets whatever JSON object
            the model wrote. For tools whose real schema lives elsewhere.
        inline: Run a synchronous body on the event loop instead of in a worker thread; only for
            bodies that return at once.

    Raises:
        ToolDefinitionError: Something of this cannot work.
    """

    __slots__ = (
        "_concurrent",
        "_definition",
        "_name",
        "_present_call",
        "_present_result",
        "_timeout_ms",
    )

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, JsonValue],
        execute: ToolBody,
        *,
        timeout_ms: float | None = None,
        concurrent: Concurrency = False,
        present_call: CallPresenter | None = None,
        present_result: ResultPresenter | None = None,
        check_arguments: bool = True,
        inline: bool = False,
    ) -> None:
        definition = _RawDefinition(name, description, parameters, execute, check_arguments, inline)
        self._setup(name, definition, timeout_ms, concurrent, present_call, present_result)

    def _setup(
        self,
        name: str,
        definition: Definition,
        timeout_ms: float | None,
        concurrent: Concurrency,
        present_call: CallPresenter | None,
        present_result: ResultPresenter | None,
    ) -> None:
        if type(name) is not str or _NAME.fullmatch(name) is None:
            raise ToolDefinitionError(
                f"{name!r} is no name for a tool",
                hint="use up to 64 letters, digits, dashes and underscores",
            )
        if timeout_ms is not None and not _is_budget(timeout_ms):
            raise ToolDefinitionError(
                f"timeout_ms of tool {name!r} is {timeout_ms!r}, not a positive finite number"
            )
        for what, value in (("present_call", present_call), ("present_result", present_result)):
            if value is not None and not callable(value):
                raise ToolDefinitionError(f"{what} of tool {name!r} cannot be called")
        self._name = name
        self._definition = definition
        self._timeout_ms = timeout_ms
        self._concurrent = concurrent
        self._present_call = present_call
        self._present_result = present_result

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self._name

    @property
    def description(self) -> str:
        """What the model is told about it."""
        return self._definition.description()

    @property
    def parameters(self) -> JsonObject:
        """JSON Schema of the arguments, a fresh copy."""
        parameters: JsonObject = thaw(self._definition.parameters())
        return parameters

    @property
    def timeout_ms(self) -> float | None:
        """Longest time a body may take, in milliseconds; None for no limit."""
        return self._timeout_ms

    @property
    def concurrent(self) -> Concurrency:
        """What was declared about calls that overlap; `is_concurrent` decides for a call."""
        return self._concurrent

    @property
    def schema(self) -> ToolSchema:
        """What the model sees of the tool: name, description and parameters, a fresh copy."""
        return ToolSchema(self.name, self.description, self.parameters)

    def shared_schema(self) -> ToolSchema:
        """Return `schema` without copying the parameters; for callers that copy them themselves."""
        return ToolSchema(self.name, self.description, self._definition.parameters())

    def prepare(self) -> None:
        """Find out now, rather than at the first prompt, whether the definition holds.

        Raises:
            ToolDefinitionError: It does not.
        """
        self._definition.prepare()

    def check(self, arguments: JsonObject) -> tuple[str, ...]:
        """Return one sentence for each way in which arguments do not fit; never raises."""
        return tuple(self._definition.violations(arguments))

    def is_concurrent(self, arguments: JsonObject) -> bool:
        """Tell whether a call with these arguments may overlap with other such calls.

        Anything but an exact True means no: a classifier that raises, that returns something
        truthy, and arguments that do not fit. Never raises.
        """
        if self._concurrent is True:
            return not self.check(arguments)
        if not callable(self._concurrent):
            return False
        try:
            return not self.check(arguments) and self._concurrent(thaw(arguments)) is True
        except Exception:  # noqa: BLE001 - a broken classifier means that calls do not overlap
            _log.warning("the concurrency classifier of tool %r failed", self._name, exc_info=True)
            return False

    async def run(self, arguments: JsonObject, execution: ToolExecution) -> ToolOutput:
        """Check the arguments and run the body, outside of any pipeline.

        Raises:
            ToolArgsError: The arguments do not fit.
            ToolOutputError: What the body returned cannot be a result.
            Exception: What the body raised.
        """
        return to_output(await self._definition.call(arguments, execution))

    def call_view(self, arguments: JsonObject) -> CallView:
        """Return how a call looks; a generic card where there is nothing better. Never raises."""
        view: object = None
        if self._present_call is not None and not self.check(arguments):
            try:
                view = self._present_call(thaw(arguments))
            except Exception:  # noqa: BLE001 - old logs hold arguments no presenter expects
                _log.debug("present_call of tool %r failed", self._name, exc_info=True)
        if isinstance(view, CallView):
            return view
        return GenericCard(self._name, raw_input=thaw(arguments))

    def result_view(self, arguments: JsonObject, outcome: ToolOutcome) -> ResultView:
        """Return how a result looks; a generic one where there is nothing better. Never raises."""
        view: object = None
        if self._present_result is not None and not self.check(arguments):
            try:
                view = self._present_result(thaw(arguments), outcome)
            except Exception:  # noqa: BLE001 - old logs hold results no presenter expects
                _log.debug("present_result of tool %r failed", self._name, exc_info=True)
        return view if isinstance(view, ResultView) else GenericResult()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"


class _RawDefinition(Definition):
    """A JSON Schema and a body that takes the arguments as they are."""

    __slots__ = ("_check", "_description", "_execute", "_inline", "_parameters")

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, JsonValue],
        execute: ToolBody,
        check: bool,
        inline: bool,
    ) -> None:
        if type(description) is not str:
            raise ToolDefinitionError(f"description of tool {name!r} is no text")
        if not callable(execute):
            raise ToolDefinitionError(f"execute of tool {name!r} cannot be called")
        self._description = description
        self._parameters = object_schema(parameters, f"parameters of tool {name!r}")
        self._execute = execute
        self._check = check
        self._inline = inline

    def description(self) -> str:
        return self._description

    def parameters(self) -> JsonObject:
        return self._parameters

    def violations(self, arguments: JsonObject) -> list[str]:
        schema = self._parameters if self._check else _ANY_OBJECT
        return violations(schema, arguments, root="arguments")

    async def call(self, arguments: JsonObject, execution: ToolExecution) -> object:
        found = self.violations(arguments)
        if found:
            raise ToolArgsError(found)
        return await call_body(self._execute, self._inline, thaw(arguments), execution)


def checked_schema(schema: Mapping[str, JsonValue], what: str) -> JsonObject:
    """Return a copy of a schema that is known to be JSON.

    Raises:
        ToolDefinitionError: It is not.
    """
    try:
        checked = djson.check(schema, where=what)
    except NotJsonError as error:
        raise ToolDefinitionError(str(error)) from error
    if not isinstance(checked, dict):
        raise ToolDefinitionError(f"{what} is a {type(schema).__name__}, not a JSON Schema")
    return checked


def object_schema(schema: Mapping[str, JsonValue], what: str) -> JsonObject:
    """Return a checked copy of the schema of an object.

    Raises:
        ToolDefinitionError: It is not JSON, or the schema of something else.
    """
    checked = checked_schema(schema, what)
    if checked.get("type", "object") != "object":
        raise ToolDefinitionError(
            f"{what} is no schema of an object",
            hint='write {"type": "object", "properties": {...}, "required": [...]}',
        )
    return {"type": "object", **checked}


def _is_budget(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )
