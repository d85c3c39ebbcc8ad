"""One call on its way through the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsh.tools._arguments import InvalidArguments, fixed_arguments

if TYPE_CHECKING:
    from dsh.agent import Agent
    from dsh.core import JsonObject, JsonValue
    from dsh.llm import CancelSignal

__all__ = ["ExecutionToken", "ToolCallInput", "ToolExecution"]


class ExecutionToken:
    """Opaque identity of one execution, handed to the calls it makes itself."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class ToolCallInput:
    """A call as it comes from the model or from a program."""

    call_id: str
    """Id of the call; the result repeats it."""
    name: str
    """Name of the tool."""
    arguments: JsonValue | InvalidArguments
    """The parsed arguments, as `parse_arguments` returns them. Never changed."""
    agent: Agent | None = None
    """The agent on whose behalf it runs: its scope selects tools, guards and listeners."""
    parent: ExecutionToken | None = None
    """Token of the execution that makes this call, where one does."""
    signal: CancelSignal | None = None
    """Asks the tool to stop when it fires."""


class _Signal:
    """The one mutable thing of an execution, shared by its derived views."""

    __slots__ = ("closed", "value")

    def __init__(self, value: CancelSignal | None) -> None:
        self.value = value
        self.closed = False


class ToolExecution:
    """A call as listeners, guards and the tool see it.

    Everything is fixed except `signal`, which a `tools/execute` listener may replace or take
    away while the call runs.
    """

    __slots__ = (
        "_agent",
        "_arguments",
        "_call_id",
        "_malformed",
        "_name",
        "_parent",
        "_signal",
        "_token",
    )

    def __init__(
        self,
        call_id: str,
        name: str,
        arguments: JsonObject | None,
        *,
        agent: Agent | None = None,
        parent: ExecutionToken | None = None,
        signal: CancelSignal | None = None,
    ) -> None:
        """Make an execution of its own; the registry does this, and tests of a tool body.

        Raises:
            ToolArgsError: `arguments` is not a JSON object.
        """
        self._token = ExecutionToken()
        self._call_id = call_id
        self._name = name
        self._arguments = fixed_arguments({} if arguments is None else arguments)
        self._malformed = arguments is None
        self._agent = agent
        self._parent = parent
        self._signal = _Signal(signal)

    @property
    def token(self) -> ExecutionToken:
        """Identity of this execution; pass it as `parent` of calls the tool makes itself."""
        return self._token

    @property
    def call_id(self) -> str:
        """Id of the call."""
        return self._call_id

    @property
    def name(self) -> str:
        """Name of the called tool."""
        return self._name

    @property
    def arguments(self) -> JsonObject:
        """The arguments. They refuse every change; `copy.deepcopy` gives ones that can change."""
        return self._arguments

    @property
    def malformed(self) -> bool:
        """Whether the arguments were no JSON object; `arguments` is empty then."""
        return self._malformed

    @property
    def agent(self) -> Agent | None:
        """The agent on whose behalf the call runs."""
        return self._agent

    @property
    def parent(self) -> ExecutionToken | None:
        """Token of the execution that made this call."""
        return self._parent

    @property
    def signal(self) -> CancelSignal | None:
        """Asks the tool to stop when it fires. Settable until the call is over."""
        return self._signal.value

    @signal.setter
    def signal(self, value: CancelSignal | None) -> None:
        if self._signal.closed:
            raise AttributeError(f"call {self._call_id!r} is over: its signal cannot change")
        self._signal.value = value

    def with_arguments(self, arguments: JsonObject) -> ToolExecution:
        """Return a view of this execution with other arguments, for `next(ToolExecute(view))`.

        Only the tool's body sees them. The log keeps what the model asked for, so whoever does
        this logs that it did.

        Raises:
            ToolArgsError: `arguments` is not a JSON object.
        """
        view = ToolExecution.__new__(ToolExecution)
        for slot in ToolExecution.__slots__:
            setattr(view, slot, getattr(self, slot))
        view._arguments = fixed_arguments(arguments)
        return view

    def close(self) -> None:
        """Refuse further changes of the signal; the registry does this when the call is over."""
        self._signal.closed = True

    def __repr__(self) -> str:
        return f"ToolExecution(call_id={self._call_id!r}, name={self._name!r})"
