"""The plugin `Loop`, with agents that do nothing but end when they are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar

import anyio
import pytest

from dsh.agent import (
    Agent,
    AgentFault,
    AgentOptions,
    AgentRegistry,
    AgentStatus,
    CreateAgent,
    Prompt,
    Receipt,
    ResumeAgent,
)
from dsh.agent.events import AgentStatusChanged
from dsh.agent.loopkit import DrivenAgent, Loop
from dsh.core import App, Context, LifecycleDeadlock, scope_of
from dsh.session import LiveSessions, MessageSource, Session, SessionData, SessionEvent


class Idler(DrivenAgent):
    """An agent whose driver waits for the end, or for nothing at all."""

    stubborn: ClassVar[bool] = False

    def __init__(
        self, loop: IdleLoop, agent_id: str, session: Session, options: AgentOptions
    ) -> None:
        super().__init__(agent_id, session, options)
        self.loop = loop
        self.steps: list[str] = []
        self.state: AgentStatus = "idle"
        self.over = anyio.Event()

    @property
    def status(self) -> AgentStatus:
        return self.state

    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        self.check("send")
        return self.book.issue()

    steer = send

    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        self.check("inject")

    def record(self, data: SessionData) -> SessionEvent:
        raise NotImplementedError

    def cancel(self, reason: str | None = None) -> None:
        self.check("cancel")

    async def when_idle(self) -> None:
        self.refuse_own_wait("becomes idle")

    def halt(self) -> None:
        if self.state != "disposed":
            self.state = "disposed"
            self.steps.append("halt")
            self.over.set()
            if self.ready:
                self.loop.ctx.emit(AgentStatusChanged(self, "disposed"))

    async def drive(self) -> None:
        self.steps.append("drive")
        try:
            await self.loop.drive_with(self)
        finally:
            self.steps.append("driven")


class IdleLoop(Loop):
    """Makes idlers."""

    name: ClassVar[str] = "idle-loop"
    grace: float = 5

    def compose(self, agent_id: str, session: Session, options: AgentOptions) -> DrivenAgent:
        return Idler(self, agent_id, session, options)

    @property
    def stop_grace_s(self) -> float:
        return self.grace

    async def drive_with(self, agent: Idler) -> None:
        await agent.over.wait()


class StubbornLoop(IdleLoop):
    """Makes idlers that do not stop until they are cancelled."""

    grace = 0.01

    async def drive_with(self, agent: Idler) -> None:
        await anyio.sleep_forever()


@asynccontextmanager
async def looped(loop: type[Loop] = IdleLoop) -> AsyncGenerator[App, None]:
    async with App() as app:
        for plugin in (LiveSessions, AgentRegistry, loop):
            await app.mount(plugin).settled()
        yield app


async def test_an_agent_is_driven_from_its_publication_to_its_end() -> None:
    async with looped() as app:
        handle = await app[AgentRegistry].create(app.ctx, CreateAgent("a", "s"))
        agent = handle.agent
        assert isinstance(agent, Idler)
        assert agent.ready
        receipt = agent.send("x")
        await anyio.wait_all_tasks_blocked()
        assert agent.steps == ["drive"]
        await handle.dispose()
        assert agent.steps == ["drive", "halt", "driven"]
        assert agent.exited.is_set()
        assert receipt.settled, "the book was closed"
        assert app[LiveSessions].list() == ()


async def test_a_driver_that_does_not_stop_is_cancelled() -> None:
    failures: list[str] = []
    async with looped(StubbornLoop) as app:
        app.on_error(app.ctx, lambda failure: failures.append(str(failure.error)))
        handle = await app[AgentRegistry].create(app.ctx, CreateAgent("a"))
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            await handle.dispose()
        assert isinstance(handle.agent, Idler)
        assert handle.agent.steps == ["drive", "halt", "driven"]
        (failure,) = failures
        assert "did not stop in time" in failure


async def test_verbs_wait_for_the_publication() -> None:
    codes: list[str] = []

    async def setup(ctx: Context) -> None:
        agent = scope_of(ctx)
        assert isinstance(agent, Agent)
        with pytest.raises(AgentFault) as caught:
            agent.send("x")
        codes.append(caught.value.code)

    async with looped() as app:
        handle = await app[AgentRegistry].create(app.ctx, CreateAgent("a", setup=setup))
        assert codes == ["AGENT_IN_SETUP"]
        handle.agent.send("x")
        await handle.dispose()
        with pytest.raises(AgentFault) as caught:
            handle.agent.send("x")
        assert caught.value.code == "AGENT_DISPOSED"


async def test_a_session_has_one_driver_for_ever() -> None:
    async with looped() as app:
        loop = app[Loop]
        assert isinstance(loop, IdleLoop)
        handle = await app[AgentRegistry].create(app.ctx)
        await handle.dispose()
        with pytest.raises(AgentFault, match="already has a driver") as caught:
            loop.compose("twin", handle.agent.session, AgentOptions())
        assert caught.value.code == "SESSION_CLAIMED"


async def test_without_a_store_nothing_resumes() -> None:
    async with looped() as app:
        with pytest.raises(AgentFault) as caught:
            await app[AgentRegistry].resume(app.ctx, ResumeAgent("s"))
        assert caught.value.code == "NO_SESSION_PERSISTENCE"


async def test_the_driver_of_a_child_cannot_wait_for_the_end_of_its_parent() -> None:
    class Waiting(IdleLoop):
        """Whose drivers wait for the end of the first agent."""

        waits: ClassVar[list[str]] = []

        async def drive_with(self, agent: Idler) -> None:
            if agent.parent is not None:
                with pytest.raises(LifecycleDeadlock):
                    await agent.parent.when_idle()
                self.waits.append(agent.id)
            await agent.over.wait()

    async with looped(Waiting) as app:
        registry = app[AgentRegistry]
        parent = await registry.create(app.ctx, CreateAgent("parent"))
        child = await registry.create(parent.agent.ctx, CreateAgent("child"))
        await anyio.wait_all_tasks_blocked()
        assert Waiting.waits == ["child"]
        await parent.dispose()
        assert child.agent.status == "disposed"
