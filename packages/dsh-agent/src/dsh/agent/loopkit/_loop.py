"""The loop plugin: what the registry promises about `create` and `resume`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias
from uuid import uuid4

from dsh.agent._registry import AgentFactory, AgentHandle, AgentRegistry
from dsh.agent._types import AgentOptions, CreateAgent, ResumeAgent
from dsh.agent.errors import AgentFault
from dsh.agent.loopkit._driven import DrivenAgent
from dsh.agent.loopkit._lifetime import Lifetime, Plan
from dsh.agent.loopkit._owned import OwnedTable
from dsh.core import Context, Service, inject
from dsh.session import (
    LiveSessions,
    Session,
    SessionEvent,
    SessionHeader,
    SessionMeta,
    freeze,
)
from dsh.session.errors import LiveSessionError


class Stored(Protocol):
    """A stored session as `SessionPersistence.load` returns it."""

    @property
    def header(self) -> SessionHeader:
        """Its metadata."""
        ...

    @property
    def events(self) -> Sequence[SessionEvent]:
        """Its log, closed."""
        ...


Load: TypeAlias = Callable[[str], Awaitable[Stored]]
"""Reads the stored session of an id in order to go on with it."""


class Loop(Service, AgentFactory, key="agent_loop"):
    """A loop plugin: the factory of the agents it drives. Derive, say how one is composed, done.

    What the registry promises about `create` and `resume` is kept here: options copied first,
    both ids reserved, the setup run in the agent's own scope while nobody can see the agent, the
    publication in one stretch, nothing left behind by whatever fails. The agent's scope stands
    below the loop, so that a setup reaches the loop's services. An agent ends with its owner,
    with the loop or by its handle, whichever comes first: the driver stops, the scope ends, the
    agent is unlisted, and the session last.
    """

    agents = inject(AgentRegistry)
    sessions = inject(LiveSessions)

    async def start(self) -> None:
        """Become the registry's factory; a loop that overrides this calls it first."""
        self.owned = OwnedTable()
        self._pending_agents: set[str] = set()
        self._pending_sessions: set[str] = set()
        self.ctx.app.on_retired(self.ctx, self.owned.retire)
        self.agents.set_factory(self.ctx, self)

    # --- what a loop says -------------------------------------------------------------------

    @abstractmethod
    def compose(self, agent_id: str, session: Session, options: AgentOptions) -> DrivenAgent:
        """Make an agent that nobody can see yet.

        Args:
            agent_id: Its key in the registry.
            session: Its log, not listed yet.
            options: What it is made with.

        Returns:
            The agent, without a context so far.
        """

    @property
    def stop_grace_s(self) -> float:
        """Seconds a driver may take to stop before it is cancelled.

        A loop whose driver waits for tools and for a last checkpoint returns the sum of both waits.
        """
        return 10

    @property
    def load(self) -> Load | None:
        """The `load` of the persistence service; None where there is none, so nothing resumes."""
        return None

    # --- the factory ------------------------------------------------------------------------

    async def create(self, ctx: Context, options: CreateAgent) -> AgentHandle:
        """Make an agent on a new session; see `AgentRegistry.create`."""
        plan = Plan(
            agent_id=_id(options.agent_id),
            session_id=_id(options.session_id),
            options=freeze(options.options, where="agent options"),
            setup=options.setup,
            signal=options.signal,
            source="startup",
        )
        seed = tuple(options.seed)
        meta = SessionMeta(
            cwd=options.cwd,
            parent_session=options.parent_session,
            seed_length=options.seed_length,
            origin=options.origin,
            delegation_depth=options.delegation_depth,
            agent_preset=options.agent_preset,
        )

        async def prepare(lifetime: Lifetime) -> Session:
            return self.sessions.prepare(plan.session_id, seed=seed, meta=meta)

        with self._reserved(plan):
            return await Lifetime(self, ctx, plan).run(prepare)

    async def resume(self, ctx: Context, options: ResumeAgent) -> AgentHandle:
        """Make an agent on a stored session; see `AgentRegistry.resume`."""
        load = self.load
        if load is None:
            raise AgentFault(
                f"cannot resume session {options.session_id!r}: session persistence is not "
                "configured",
                code=AgentFault.NO_PERSISTENCE,
                hint="mount a persistence plugin, such as dsh-session-persistence-jsonl",
            )
        plan = Plan(
            agent_id=_id(options.agent_id),
            session_id=options.session_id,
            options=freeze(options.options, where="agent options"),
            setup=options.setup,
            signal=options.signal,
            source="resume",
        )

        async def prepare(lifetime: Lifetime) -> Session:
            stored = await lifetime.abandonable("persistence load", lambda: load(plan.session_id))
            meta = SessionMeta.of(stored.header)
            return self.sessions.prepare(plan.session_id, seed=stored.events, meta=meta)

        with self._reserved(plan):
            return await Lifetime(self, ctx, plan).run(prepare)

    @contextmanager
    def _reserved(self, plan: Plan) -> Generator[None]:
        """Hold both ids against live entries and other transactions."""
        if plan.agent_id in self._pending_agents or self.agents.get(plan.agent_id) is not None:
            raise AgentFault(
                f"agent {plan.agent_id!r} is already registered",
                code=AgentFault.EXISTS,
                hint="choose another id, or dispose the live agent first",
            )
        taken = plan.session_id in self._pending_sessions
        if taken or self.sessions.get(plan.session_id) is not None:
            raise LiveSessionError(
                f"session {plan.session_id!r} already exists",
                code=LiveSessionError.SESSION_ALREADY_EXISTS,
                hint="choose another id, or dispose the agent that drives it",
            )
        self._pending_agents.add(plan.agent_id)
        self._pending_sessions.add(plan.session_id)
        try:
            yield
        finally:
            self._pending_agents.discard(plan.agent_id)
            self._pending_sessions.discard(plan.session_id)


def _id(wanted: str | None) -> str:
    return uuid4().hex if wanted is None else wanted
