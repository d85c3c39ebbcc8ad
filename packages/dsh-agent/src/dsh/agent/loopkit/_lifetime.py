"""The lifetime of one agent: the transaction that makes it, what it is made of, its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.lowlevel

from dsh.agent._agent import Agent
from dsh.agent._registry import AgentHandle
from dsh.agent._types import AgentOptions, SessionStartSource, Setup
from dsh.agent.errors import AgentFault
from dsh.agent.events import AgentSessionStart
from dsh.agent.loopkit._driven import DrivenAgent, run_driver
from dsh.agent.loopkit._owned import Owned
from dsh.core import Context, Effect, scope_of
from dsh.llm import CancelSignal
from dsh.session import Session

if TYPE_CHECKING:
    from dsh.agent.loopkit._loop import Loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make, detached from the caller's values."""

    agent_id: str
    session_id: str
    options: AgentOptions
    setup: Setup | None
    signal: CancelSignal | None
    source: SessionStartSource


class Lifetime(Owned):
    """Makes one agent, or leaves nothing behind; then takes it down when its time has come.

    Everything the agent is made of hangs on one composite effect of the loop. Unwound newest
    first it means: stop the driver and wait for its exit, end the scope, unlist the agent, let
    the session go. The owner's context holds an effect that asks for just that, so whoever goes
    first, the owner or the loop, takes the agent along, and all wait for the same end.
    """

    def __init__(self, loop: Loop, owner: Context, plan: Plan) -> None:
        self._loop = loop
        self._owner = owner
        self._plan = plan
        parent = scope_of(owner)
        self._parent = parent if isinstance(parent, Agent) else None
        self._stage = "creation"
        self._abort_reason: str | None = None
        self._scope: anyio.CancelScope | None = None
        self._over = anyio.Event()
        self._published = False
        self._ending = False
        self._agent: DrivenAgent | None = None

    # --- the transaction --------------------------------------------------------------------

    async def run(self, make_session: Callable[[Lifetime], Awaitable[Session]]) -> AgentHandle:
        """Run the transaction to its end.

        Args:
            make_session: Prepares the session, not yet listed.

        Returns:
            The handle of the published agent.

        Raises:
            AgentFault: Code `AGENT_CREATE_ABORTED` or `AGENT_OPEN_TURN`, and what publication
                refuses.
            Exception: What the setup, a listener or the stores raised.
        """
        self._check_live()
        self._install()
        forget = self._watch_signal()
        try:
            await self._make(make_session)
        except BaseException:
            self._over.set()
            await self._composite.dispose()
            raise
        finally:
            forget()
            self._over.set()
        assert self._agent is not None
        return AgentHandle(self._agent, self.dispose, self.request_dispose)

    async def _make(self, make_session: Callable[[Lifetime], Awaitable[Session]]) -> None:
        session = await make_session(self)
        if session.turn_open is not None:
            raise AgentFault(
                f"session {session.id!r} begins with turn {session.turn_open} open, so no other "
                "could ever follow",
                code=AgentFault.OPEN_TURN,
                hint="cut the seed after a turn/end, or add `interrupted_turn_closers(events)`",
            )
        agent = self._compose(session)
        commit: Callable[[], None] | None = None
        setup = self._plan.setup
        if setup is not None:
            commit = await self.abandonable("setup", lambda: setup(agent.ctx))
        # an unload that has begun in this very tick must take effect before anybody hears of us
        await anyio.lowlevel.checkpoint()
        self._check_live()
        if commit is not None:
            commit()
        self._publish(agent, session)

    async def abandonable(self, stage: str, step: Callable[[], Awaitable[T]]) -> T:
        """Await a step that is left behind when the owner, the loop or the caller gives up.

        Args:
            stage: Name of the step, for the error.
            step: What to await.

        Returns:
            What the step gave.

        Raises:
            AgentFault: Code `AGENT_CREATE_ABORTED`.
            Exception: What the step raised.
        """
        self._stage = stage
        self._check_live()
        result: list[T] = []
        with anyio.CancelScope() as self._scope:
            result.append(await step())
        self._scope = None
        self._check_live()
        return result[0]

    def _install(self) -> None:
        """Own the transaction from both sides before there is anything to own."""
        ctx, label = self._loop.ctx, f"agent {self._plan.agent_id}"
        self._owned = self._owner.defer(self._owner_leaves, label)
        self._loop.owned.add(self._owner.owner, self)
        self._composite = ctx.defer(self._release, label)
        self._session_slot = self._slot("session entry")
        self._agent_slot = self._slot("agent entry")
        self._scope_slot = self._slot("agent scope")
        self._driver_slot = self._slot("agent driver")
        self._composite.collect(self._stop)

    def _slot(self, label: str) -> Effect:
        slot = self._loop.ctx.effect(_nothing, label)
        self._composite.collect(slot)
        return slot

    def _watch_signal(self) -> Callable[[], None]:
        signal = self._plan.signal
        if signal is None:
            return _nothing
        return signal.on_abort(lambda: self._abort(signal.reason or "the caller gave up"))

    def _compose(self, session: Session) -> DrivenAgent:
        agent = self._loop.compose(self._plan.agent_id, session, self._plan.options)
        agent.parent = self._parent if isinstance(self._parent, DrivenAgent) else None
        scope = self._loop.ctx.scope(agent)
        self._scope_slot.collect(scope.effect)
        agent.bind(scope.ctx)
        self._agent = agent
        return agent

    def _publish(self, agent: DrivenAgent, session: Session) -> None:
        """Make the agent visible and drivable; nothing in here may wait."""
        self._stage = "publication"
        loop = self._loop
        # in the agent's scope, but it outlives it: the session is unlisted last
        entry = loop.ctx.derive(scope_key=agent)
        self._session_slot.collect(loop.sessions.enter(entry, session))
        self._agent_slot.collect(loop.agents.enter(loop.ctx, agent, self._parent))
        loop.sessions.announce(session)
        self._check_live()
        loop.agents.announce(agent)
        self._check_live()
        agent.open()
        loop.ctx.emit(AgentSessionStart(agent, self._plan.source))
        self._check_live()
        driver = loop.ctx.spawn(run_driver, agent, label=f"driver of {agent.id}")
        self._driver_slot.collect(driver)
        self._published = True

    def _check_live(self) -> None:
        """Refuse to go on for somebody who is not there any more."""
        reason = self._abort_reason
        signal = self._plan.signal
        if reason is None and signal is not None and signal.aborted:
            reason = signal.reason or "the caller gave up"
        if reason is None and self._parent is not None and self._parent.status == "disposed":
            reason = f"owner disposed during {self._stage}"
        if reason is None and not (self._owner.owner.accepting and self._loop.ctx.owner.accepting):
            reason = f"owner disposed during {self._stage}"
        if reason is not None:
            raise AgentFault(
                f"agent {self._plan.agent_id!r} was not made: {reason}",
                code=AgentFault.CREATE_ABORTED,
            )

    def _abort(self, reason: str) -> None:
        if self._published or self._abort_reason is not None:
            return
        self._abort_reason = reason
        if self._scope is not None:
            self._scope.cancel()

    # --- the end ----------------------------------------------------------------------------

    async def dispose(self) -> None:
        """Take the agent down; every caller waits for the same end.

        Raises:
            LifecycleDeadlock: The agent's own turn, or that of an agent it owns, is waiting.
        """
        if self._agent is not None:
            self._agent.refuse_own_wait("is disposed")
        await self._composite.dispose()

    def request_dispose(self) -> None:
        """Begin the end of the agent and return at once."""
        self.owner_retires()
        if self._ending:
            return
        self._ending = True
        ctx = self._loop.ctx
        if ctx.owner.accepting and not self._composite.disposed:
            ctx.spawn(self._composite.dispose, label=f"end of {self._plan.agent_id}")

    def owner_retires(self) -> None:
        """Stop at once: whoever owns the agent is going to take it down."""
        self._abort(f"owner disposed during {self._stage}")
        if self._agent is not None and self._published:
            self._agent.halt()

    async def _owner_leaves(self) -> None:
        self.owner_retires()
        await self._composite.dispose()

    async def _stop(self) -> None:
        """Stop what runs: the transaction, or the driver."""
        self._abort(f"owner disposed during {self._stage}")
        if not self._published:
            await self._over.wait()
        agent = self._agent
        if agent is None:
            return
        agent.halt()
        if not self._published:
            agent.book.close()
            agent.exited.set()
            return
        with anyio.move_on_after(self._loop.stop_grace_s):
            await agent.exited.wait()
        if not agent.exited.is_set():
            # the next disposer cancels the driver, which closes the turn and ends
            self._loop.ctx.report(TimeoutError(_STUCK.format(agent.id)), f"driver of {agent.id}")

    def _release(self) -> None:
        self._loop.owned.discard(self._owner.owner, self)
        self._owned.discard()


_STUCK: Final = (
    "the driver of agent {!r} did not stop in time and is cancelled; something it waits for "
    "ignores its signal"
)


def _nothing() -> None:
    """Undo nothing."""
