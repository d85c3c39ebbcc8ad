"""The registry of live agents, and the seam to whoever makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import ClassVar

from dsh.agent._agent import Agent
from dsh.agent._types import CreateAgent, ResumeAgent
from dsh.agent.errors import AgentFault
from dsh.agent.events import AgentCreated, AgentEnded
from dsh.core import Context, Effect, Service, scope_of


class AgentHandle:
    """Ownership of one agent. Use it as `async with handle as agent`, or call `dispose()`.

    Args:
        agent: The agent.
        dispose: Ends it; every caller waits for the same end.
        request: Begins that end and returns at once.
    """

    def __init__(
        self,
        agent: Agent,
        dispose: Callable[[], Awaitable[None]],
        request: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._dispose = dispose
        self._request = request

    @property
    def agent(self) -> Agent:
        """The agent."""
        return self._agent

    async def dispose(self) -> None:
        """Stop the agent and take everything it owns away; every caller waits for the same end.

        Raises:
            LifecycleDeadlock: The agent's own turn is waiting; use `request_dispose()` there.
        """
        await self._dispose()

    def request_dispose(self) -> None:
        """Begin the end and return at once; safe anywhere, also in the agent's own turn."""
        self._request()

    async def __aenter__(self) -> Agent:
        return self._agent

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.dispose()


class AgentFactory(ABC):
    """Makes agents; an agent loop registers one with `AgentRegistry.set_factory`."""

    @abstractmethod
    async def create(self, ctx: Context, options: CreateAgent) -> AgentHandle:
        """Run the creation transaction on a new session; see `AgentRegistry.create`."""

    @abstractmethod
    async def resume(self, ctx: Context, options: ResumeAgent) -> AgentHandle:
        """Run the creation transaction on a stored session; see `AgentRegistry.resume`."""


class AgentRegistry(Service, key="agents"):
    """Live agents by id, in the order of their publication.

    Creation is delegated to the mounted agent loop, so that plugins and embedders depend on
    this registry alone, whichever loop is installed.
    """

    name: ClassVar[str] = "agents"

    async def start(self) -> None:
        """Begin with no agents."""
        self._agents: dict[str, Agent] = {}
        self._parents: dict[Agent, Agent] = {}
        self._announced: set[Agent] = set()
        self._factory: AgentFactory | None = None

    def set_factory(self, ctx: Context, factory: AgentFactory) -> Effect:
        """Make `factory` the maker of agents until the effect or its owner goes.

        Args:
            ctx: Owner of the registration.
            factory: Who makes agents.

        Returns:
            The registration; disposing it leaves the registry without a factory.

        Raises:
            AgentFault: Code `AGENT_FACTORY_EXISTS`: one is set already.
        """
        if self._factory is not None:
            raise AgentFault(
                "an agent factory is already set: only one agent loop can be mounted",
                code=AgentFault.FACTORY_EXISTS,
                hint="remove one of the two loops",
            )

        def clear() -> None:
            self._factory = None

        def install() -> Callable[[], None]:
            self._factory = factory
            return clear

        return ctx.effect(install, "agents.set_factory()")

    async def create(self, ctx: Context, options: CreateAgent | None = None) -> AgentHandle:
        """Make an agent on a new session.

        The options are copied first. Then the agent is composed by `options.setup` while nobody can
        see it, and published in one synchronous stretch: `session/created`, `agent/created`,
        `agent/session-start`. Whatever fails, nothing is left behind and the ids are free again.

        Args:
            ctx: Owner of the agent. The context of another agent makes that agent the parent:
                the new one is disposed with it.
            options: What to make; everything has a default.

        Returns:
            The handle that owns the agent.

        Raises:
            AgentFault: `NO_AGENT_FACTORY`, `AGENT_EXISTS`, `AGENT_CREATE_ABORTED`, or
                `AGENT_OPEN_TURN`: a turn of the seed is open.
            SessionError: The session id is taken, the seed or the directory is not valid.
        """
        return await self._maker("create").create(ctx, options or CreateAgent())

    async def resume(self, ctx: Context, options: ResumeAgent) -> AgentHandle:
        """Make an agent that goes on with a stored session.

        Args:
            ctx: Owner of the agent, as in `create`.
            options: Which session, and the agent's options.

        Returns:
            The handle that owns the agent.

        Raises:
            AgentFault: As in `create`, and `NO_SESSION_PERSISTENCE`.
            SessionError: The stored session cannot be loaded.
        """
        return await self._maker("resume").resume(ctx, options)

    def _maker(self, verb: str) -> AgentFactory:
        if self._factory is None:
            raise AgentFault(
                f"cannot {verb} an agent: no agent factory is set",
                code=AgentFault.NO_FACTORY,
                hint="mount an agent loop plugin (dsh-agent-loop, or the bundle dsh-agent-core)",
            )
        return self._factory

    def register(self, ctx: Context, agent: Agent) -> Effect:
        """Enter and announce an agent; a listener that refuses it takes the entry back.

        Args:
            ctx: Owner of the entry.
            agent: The agent.

        Returns:
            The entry, as `enter` returns it.

        Raises:
            AgentFault: Code `AGENT_EXISTS`.
        """
        entry = self.enter(ctx, agent)
        try:
            self.announce(agent)
        except Exception:
            entry.dispose_nowait()
            raise
        return entry

    def enter(self, ctx: Context, agent: Agent, parent: Agent | None = None) -> Effect:
        """List an agent without telling anybody.

        Args:
            ctx: Owner of the entry.
            agent: The agent.
            parent: The agent that owns this one; by default the one whose context `ctx` is.

        Returns:
            The entry. Disposing it unlists the agent, then emits `agent/disposed` if the agent
            had been announced.

        Raises:
            AgentFault: Code `AGENT_EXISTS`.
        """
        if agent.id in self._agents:
            raise AgentFault(
                f"agent {agent.id!r} is already registered",
                code=AgentFault.EXISTS,
                hint="choose another id, or dispose the live agent first",
            )
        scope = scope_of(ctx)
        owner = parent or (scope if isinstance(scope, Agent) else None)

        def install() -> Callable[[], None]:
            self._agents[agent.id] = agent
            if owner is not None and owner is not agent:
                self._parents[agent] = owner
            return lambda: self._leave(agent)

        return ctx.effect(install, f"agents.enter({agent.id!r})")

    def announce(self, agent: Agent) -> None:
        """Emit `agent/created` for an entered agent.

        Raises:
            AgentFault: Code `AGENT_NOT_LIVE`: the agent is not the entry under its id.
            Exception: What a listener raised; the agent counts as announced all the same.
        """
        if self._agents.get(agent.id) is not agent:
            raise AgentFault(f"agent {agent.id!r} is not live", code=AgentFault.NOT_LIVE)
        self._announced.add(agent)
        self.ctx.emit(AgentCreated(agent))

    def get(self, agent_id: str) -> Agent | None:
        """Return the live agent with this id, or None.

        Args:
            agent_id: Its id.
        """
        return self._agents.get(agent_id)

    def list(self) -> tuple[Agent, ...]:
        """Return the live agents, oldest first."""
        return tuple(self._agents.values())

    def roots(self) -> tuple[Agent, ...]:
        """Return the live agents that no other agent owns, oldest first."""
        return tuple(agent for agent in self._agents.values() if agent not in self._parents)

    def parent_of(self, agent: Agent) -> Agent | None:
        """Return the agent that owns `agent`, if one does."""
        return self._parents.get(agent)

    def _leave(self, agent: Agent) -> None:
        if self._agents.get(agent.id) is not agent:
            return
        del self._agents[agent.id]
        self._parents.pop(agent, None)
        if agent in self._announced:
            self._announced.discard(agent)
            self.ctx.emit(AgentEnded(agent))
