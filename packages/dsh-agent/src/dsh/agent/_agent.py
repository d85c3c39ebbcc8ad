"""The agent handle: what a loop implements, and what every loop's agents can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, overload

import anyio

from dsh.agent._outcome import TurnOutcome
from dsh.agent._receipt import Receipt
from dsh.agent._run import Run
from dsh.agent._types import AgentOptions, AgentStatus, Prompt
from dsh.agent.errors import AgentFault, TurnFailed
from dsh.core import Context, JsonValue
from dsh.session import MessageSource, Session, SessionData, SessionEvent

T = TypeVar("T")


class Agent(ABC):
    """One conversation that can be driven: a session, a driver, a scope.

    The driving verbs are synchronous and never wait for the model. They raise `AgentDisposed`
    on a disposed agent and `AgentFault` (code `AGENT_IN_SETUP`) before the creation transaction
    has completed. Content and source are checked and copied when a verb is called: what is not
    lossless JSON raises `NotJsonError` and leaves no trace.

    An agent is its own scope key: registrations made through `agent.ctx` are visible to this
    agent alone and leave with it.
    """

    def __init__(self, agent_id: str, session: Session, options: AgentOptions) -> None:
        self._id = agent_id
        self._session = session
        self._options = options
        self._ctx: Context | None = None

    @property
    def id(self) -> str:
        """Key of the agent in the registry; never the session's id."""
        return self._id

    @property
    def session(self) -> Session:
        """The log this agent drives, its only one."""
        return self._session

    @property
    def options(self) -> AgentOptions:
        """What the agent was made with."""
        return self._options

    @property
    def ctx(self) -> Context:
        """The agent's own context: register here what only this agent shall have."""
        if self._ctx is None:
            raise AgentFault(f"agent {self._id!r} has no context yet", code=AgentFault.IN_SETUP)
        return self._ctx

    def bind(self, ctx: Context) -> None:
        """Set the agent's context, once. For loops: `ctx` is the context of the agent's scope."""
        if self._ctx is not None:
            raise AgentFault(f"agent {self._id!r} already has a context", code=AgentFault.EXISTS)
        self._ctx = ctx

    @property
    @abstractmethod
    def status(self) -> AgentStatus:
        """What the agent is doing."""

    @abstractmethod
    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Queue a prompt; starts a turn when the agent is idle, else waits for the next turn.

        Args:
            content: A text or content blocks.
            source: Who says it; the user when absent.
        """

    @abstractmethod
    def steer(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Say something to the running turn, between two of its steps; `send` when idle.

        Args:
            content: A text or content blocks.
            source: Who says it; the user when absent.
        """

    @abstractmethod
    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        """Add context to the log without running the model.

        Joins the open turn, after the results of a tool batch that is under way. While the agent
        is idle it makes a turn of its own around the context.

        Args:
            content: A text or content blocks.
            source: Who says it; the user when absent.
        """

    @abstractmethod
    def record(self, data: SessionData) -> SessionEvent:
        """Append a log-only event at any time, and return it.

        Joins the open turn, or makes a turn of its own around the event (trigger `record`).

        Args:
            data: Payload of a type that produces no message.
        """

    @abstractmethod
    def cancel(self, reason: str | None = None) -> None:
        """Stop the running turn and empty both queues, if there is anything to stop.

        On a disposed agent it does nothing.

        The turn ends `aborted` with the first reason given. A tool that ignores its signal is
        left behind after a grace period, and its result says that the outcome is unknown.

        Args:
            reason: Why, for the log; "cancelled" when absent.
        """

    @abstractmethod
    async def when_idle(self) -> None:
        """Wait until nothing is queued or running and the last turn is checkpointed.

        On a disposed agent: until its driver has exited.
        """

    @overload
    async def ask(
        self, content: Prompt, source: MessageSource | None = None, *, check: bool = True
    ) -> TurnOutcome: ...

    @overload
    async def ask(
        self,
        content: Prompt,
        source: MessageSource | None = None,
        *,
        output: type[T],
        retries: int = 2,
    ) -> T: ...

    @overload
    async def ask(
        self,
        content: Prompt,
        source: MessageSource | None = None,
        *,
        output: Mapping[str, Any],
        retries: int = 2,
    ) -> JsonValue: ...

    async def ask(
        self,
        content: Prompt,
        source: MessageSource | None = None,
        *,
        output: type[object] | Mapping[str, Any] | None = None,
        retries: int = 2,
        check: bool = True,
    ) -> object:
        """Send a prompt and wait for the end of the turn that takes it in.

        With `output` the answer is a value instead of an outcome. The model is told the JSON
        Schema in the prompt; a final answer that does not fit is sent back to it with what is
        wrong, inside the same turn.

        Cancelling the task that waits takes the prompt back, or cancels the turn it is in.

        Args:
            content: A text or content blocks.
            source: Who says it; the user when absent.
            output: A pydantic model (or any type pydantic understands), or a JSON Schema.
            retries: How often an answer that does not fit is sent back.
            check: False returns the outcome of a turn that did not complete instead of raising.

        Returns:
            The outcome; with `output` an instance of it, or the checked JSON value.

        Raises:
            TurnFailed: The turn did not complete; `error.outcome` tells how it ended.
            OutputInvalid: No answer fitted `output`.
            AgentFault: `output` is no valid JSON Schema or has none (`INVALID_SCHEMA`); nothing
                was sent.
            AgentDisposed: The agent was disposed before the prompt's turn came.
            LifecycleDeadlock: A turn of this agent would wait for the next one, which is what a
                tool of it does that asks it; use `send` or `steer` there. Nothing was sent.
        """
        self._refuse_own_turn()
        if output is not None:
            # imported late: the output module listens to events, which name this class
            from dsh.agent._output import ask_for_output

            return await ask_for_output(self, content, source, output, retries)
        outcome = await self.outcome_of(self.send(content, source))
        if check and not outcome.ok:
            raise failure_of(self, outcome)
        return outcome

    async def outcome_of(self, receipt: Receipt) -> TurnOutcome:
        """Wait for a receipt; if the wait is cancelled, take the prompt back or cancel its turn.

        Args:
            receipt: What `send` or `steer` of this agent gave.

        Raises:
            AgentDisposed: The agent was disposed before the prompt's turn came.
        """
        try:
            return await receipt.done()
        except anyio.get_cancelled_exc_class():
            if not receipt.settled and not receipt.withdraw("the caller stopped waiting"):
                self.cancel("the caller stopped waiting")
            raise

    def run(self, content: Prompt, source: MessageSource | None = None) -> Run:
        """Send a prompt and follow its turn, event by event.

            async with agent.run("list the files") as run:
                async for event in run:
                    print(event.type)

        Leaving the block before the turn is over cancels it and waits until the agent is idle;
        a prompt whose turn has not come is taken back.

        Args:
            content: A text or content blocks.
            source: Who says it; the user when absent.

        Raises:
            LifecycleDeadlock: As `ask`.
        """
        self._refuse_own_turn()
        return Run(self, content, source)

    def _refuse_own_turn(self) -> None:  # noqa: B027 - only an agent with a driver can tell
        """Raise where the agent's own turn would wait for what comes after it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id!r} {self.status}>"


def failure_of(agent: Agent, outcome: TurnOutcome) -> TurnFailed:
    """Return the error that stands for a turn that did not complete."""
    reason = outcome.reason
    detail = getattr(reason, "message", None) or getattr(reason, "reason", None)
    where = "a prompt" if outcome.turn is None else f"turn {outcome.turn}"
    text = f"{where} of agent {agent.id!r} ended {reason.kind!r}"
    return TurnFailed(text if not detail else f"{text}: {detail}", outcome)
