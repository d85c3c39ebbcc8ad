"""The loop plugin: makes agents for the registry and tells the prompt about them."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar

from dsh.agent import AgentFactory, AgentFault, AgentHandle, CreateAgent, ResumeAgent
from dsh.agent_loop._creation import Creation, Plan
from dsh.agent_loop._spine import ConfiguredAgent, OwnedTable, Spine
from dsh.core import Context
from dsh.session import Session, SessionMeta, freeze
from dsh.session.errors import SessionStoreError
from dsh.session_persistence import SessionPersistence
from dsh.system_prompt import AssembleContext


class AgentLoop(Spine, AgentFactory, key="agent_loop"):
    """Makes agents and drives them.

    It is the factory of the agent registry: use `AgentRegistry.create` and `resume`, which work
    with any loop.
    """

    name: ClassVar[str] = "agent-loop"

    async def start(self) -> None:
        """Become the registry's factory, and make the configured agents."""
        self.owned = OwnedTable()
        self.ctx.app.on_retired(self.ctx, self.owned.retire)
        self._pending_agents: set[str] = set()
        self._pending_sessions: set[str] = set()
        self.system_prompt.variable(self.ctx, "model", _model)
        self.system_prompt.variable(self.ctx, "cwd", _cwd)
        self.agents.set_factory(self.ctx, self)
        for entry in self.config.agents:
            if entry.resume_session_id:
                self._resume_when_possible(entry, entry.resume_session_id)
            else:
                self.ctx.spawn(self._create_configured, entry, label=f"make agent {entry.id}")

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

        async def prepare(creation: Creation) -> Session:
            return self.sessions.prepare(plan.session_id, seed=seed, meta=meta)

        with self._reserved(plan):
            return await Creation(self, ctx, plan).run(prepare)

    async def resume(self, ctx: Context, options: ResumeAgent) -> AgentHandle:
        """Make an agent on a stored session; see `AgentRegistry.resume`."""
        persistence = self.persistence
        if persistence is None:
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

        async def load(creation: Creation) -> Session:
            stored = await creation.abandonable(
                "persistence load", lambda: persistence.load(plan.session_id)
            )
            return self.sessions.prepare(
                plan.session_id, seed=stored.events, meta=SessionMeta.of(stored.header)
            )

        with self._reserved(plan):
            return await Creation(self, ctx, plan).run(load)

    # --- inside -----------------------------------------------------------------------------

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
            raise SessionStoreError(
                f"session {plan.session_id!r} already exists",
                code=SessionStoreError.SESSION_ALREADY_EXISTS,
                hint="choose another id, or dispose the agent that drives it",
            )
        self._pending_agents.add(plan.agent_id)
        self._pending_sessions.add(plan.session_id)
        try:
            yield
        finally:
            self._pending_agents.discard(plan.agent_id)
            self._pending_sessions.discard(plan.session_id)

    async def _create_configured(self, entry: ConfiguredAgent) -> None:
        try:
            await self.create(
                self.ctx, CreateAgent(agent_id=entry.id, cwd=entry.cwd, options=entry.options())
            )
        except Exception as error:  # noqa: BLE001 - a configured agent never breaks the start
            self.ctx.report(error, f"configured agent {entry.id}")

    def _resume_when_possible(self, entry: ConfiguredAgent, session_id: str) -> None:
        """Resume once there is a persistence service; later ones find the agent there."""
        done = False

        async def body(ctx: Context) -> None:
            nonlocal done
            if done:
                return
            done = True
            options = ResumeAgent(session_id, agent_id=entry.id, options=entry.options())
            try:
                await self.resume(self.ctx, options)
            except Exception as error:  # noqa: BLE001 - a configured agent never breaks the start
                self.ctx.report(error, f"configured agent {entry.id}")

        self.ctx.when((SessionPersistence,), body, name=f"resume-{entry.id}")


def _id(wanted: str | None) -> str:
    return uuid.uuid4().hex if wanted is None else wanted


def _model(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.options.model


def _cwd(context: AssembleContext) -> str | None:
    return None if context.agent is None else context.agent.session.header.cwd
