"""An agent with a driver, as the transaction that makes agents sees it."""

from __future__ import annotations

from abc import abstractmethod
from contextvars import ContextVar
from typing import Final
from weakref import WeakSet

import anyio

from dsh.agent._agent import Agent
from dsh.agent._receipt import ReceiptBook
from dsh.agent._types import AgentOptions
from dsh.agent.errors import AgentDisposed, AgentFault
from dsh.core import LifecycleDeadlock
from dsh.session import Session

_claimed: Final[WeakSet[Session]] = WeakSet()

driving: Final[ContextVar[DrivenAgent | None]] = ContextVar("driving", default=None)
"""The agent whose driver runs the current code, for waits that could never end."""

_OWN_TURN: Final = (
    "what runs inside a turn can send() or steer() and go on; to wait for an answer, ask another "
    "agent"
)


class DrivenAgent(Agent):
    """What a loop derives its agents from: the handle, and what `Loop` needs of it.

    `Loop` calls, in this order: `open` at the end of the publication, `drive` in a task
    of its own, `halt` when the end has come. It closes `book` and sets `exited` once
    the driver has returned.

    Args:
        agent_id: Key of the agent in the registry.
        session: The log; one that has a driver already is refused.
        options: What the agent is made with.

    Raises:
        AgentFault: Code `SESSION_CLAIMED`.
    """

    def __init__(self, agent_id: str, session: Session, options: AgentOptions) -> None:
        if session in _claimed:
            raise AgentFault(
                f"session {session.id!r} already has a driver",
                code=AgentFault.SESSION_CLAIMED,
                hint="fork the session, or resume it after its agent is gone",
            )
        super().__init__(agent_id, session, options)
        self.book = ReceiptBook(agent_id, session, self._refuse_own_turn)
        """The receipts of this agent."""
        self.exited = anyio.Event()
        """Set when the driver has exited, or will never run."""
        self.ready = False
        """Whether `open` was called: the agent may be driven."""
        self.parent: DrivenAgent | None = None
        """The agent that owns this one, if it is one of a driver too; set by `Loop`."""
        _claimed.add(session)

    def open(self) -> None:
        """Allow driving: setup is over and the agent is published."""
        self.ready = True

    @abstractmethod
    def halt(self) -> None:
        """Begin the end: take nothing more in, make the turn under way end, emit `disposed`.

        Synchronous; never raises, and may be called again. The turn ends `disposed` unless
        something else has interrupted it before.
        """

    @abstractmethod
    async def drive(self) -> None:
        """Run turns until `halt` was called; being cancelled means the same.

        However it ends, step and turn are closed and the session is checkpointed. An exception
        is a defect of the loop and ends the agent.
        """

    def check(self, verb: str) -> None:
        """Refuse a driving verb on an agent that cannot be driven.

        Args:
            verb: Name of the verb, for the message.

        Raises:
            AgentDisposed: The agent is disposed.
            AgentFault: Code `AGENT_IN_SETUP`: it is not published yet.
        """
        if self.status == "disposed":
            raise AgentDisposed(self.id, f"{verb}() is not possible any more")
        if not self.ready:
            raise AgentFault(
                f"{verb}() of agent {self.id!r} cannot be used before creation setup completes",
                code=AgentFault.IN_SETUP,
                hint="setup registers; drive the agent once create() has returned",
            )

    def refuse_own_wait(self, what: str) -> None:
        """Raise where the agent's own turn, or that of an agent it owns, would wait for itself.

        Args:
            what: What is waited for, for the message.

        Raises:
            LifecycleDeadlock: The running code belongs to a driver that this wait waits for.
        """
        chain: list[str] = []
        node = driving.get()
        while node is not None:
            chain.append(f"agent {node.id}")
            if node is self:
                raise LifecycleDeadlock([*chain, f"agent {node.id} {what}"])
            node = node.parent

    def _refuse_own_turn(self) -> None:
        # an agent it owns may ask: nothing says that this one is waiting for that
        if driving.get() is self:
            turn = f"the turn of agent {self.id}"
            raise LifecycleDeadlock([turn, "a prompt of its own", turn], hint=_OWN_TURN)


async def run_driver(agent: DrivenAgent) -> None:
    """Drive an agent from its publication to its end; the body of its task."""
    driving.set(agent)
    try:
        await agent.drive()
    finally:
        agent.halt()
        agent.book.close()
        agent.exited.set()
