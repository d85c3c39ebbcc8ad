"""Going on with stored sessions, and agents made by configuration."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from dsh.agent import (
    Agent,
    AgentFault,
    AgentHandle,
    AgentOptions,
    AgentRegistry,
    CreateAgent,
    ResumeAgent,
    open_agent,
)
from dsh.agent.events import AgentCreated, AgentSessionStart
from dsh.agent_loop import AgentLoop
from dsh.core import App, Plugin, inject, on
from dsh.llm import CancelSignal, ToolResultBlock
from dsh.llm_replay import ScriptedAdapter, text
from dsh.llm_replay.server import Gate
from dsh.session import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    LiveSessions,
    RequestHeaderSnapshot,
    SessionEvent,
    SessionHeader,
)
from dsh.session.events import SessionCreated, SessionFlush
from dsh.session.testing import types_of, user_texts, worked_turn
from dsh.session_persistence import (
    IntegrityReport,
    SessionPersistence,
    SessionSnapshot,
    StoredSession,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import repaired
from dsh.testkit import assert_paired_request, soon, turn_numbers
from dsh.testkit.loop_contract import loop_app

MODEL = "test/scripted"

Stored = dict[str, tuple[SessionHeader, tuple[SessionEvent, ...]]]
DISK: Stored = {}
LOADING: list[Gate] = []
"""Where loads wait."""


@pytest.fixture(autouse=True)
def empty_disk() -> None:
    DISK.clear()


class MemoryStore(SessionPersistence):
    """Keeps logs in a dictionary; writes them at each checkpoint."""

    @on(SessionFlush)
    async def write(self, event: SessionFlush) -> None:
        session = event.session
        DISK[session.id] = (session.header, session.events[:])

    async def load(self, session_id: str) -> StoredSession:
        for gate in LOADING:
            await gate.pass_through()
        return await self.inspect(session_id)

    async def inspect(self, session_id: str) -> StoredSession:
        if session_id not in DISK:
            raise StoredSessionNotFound(session_id)
        header, events = DISK[session_id]
        return StoredSession(header, repaired(events))

    async def create(self, header: SessionHeader) -> None:
        DISK[header.id] = (header, ())

    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        header, stored = DISK[session_id]
        DISK[session_id] = (header, (*stored, *events))

    async def read_from(self, session_id: str, from_seq: int) -> tuple[SessionEvent, ...]:
        return DISK[session_id][1][from_seq:]

    async def list(self, *, archived: bool = False) -> tuple[SessionHeader, ...]:
        return tuple(header for header, _ in DISK.values())

    async def list_snapshots(self, *, archived: bool = False) -> tuple[SessionSnapshot, ...]:
        return ()

    async def archive(self, session_id: str) -> None:
        return None

    async def unarchive(self, session_id: str) -> None:
        return None

    async def remove(self, session_id: str) -> None:
        DISK.pop(session_id)

    async def verify(self, session_id: str) -> IntegrityReport:
        return IntegrityReport(session_id, None, len(DISK[session_id][1]))

    async def salvage(self, session_id: str) -> IntegrityReport:
        return await self.verify(session_id)


async def resume(app: App, session_id: str, agent_id: str | None = None) -> AgentHandle:
    options = ResumeAgent(session_id, agent_id=agent_id, options=AgentOptions(model=MODEL))
    return await app[AgentRegistry].resume(app.ctx, options)


# case: G-10
async def test_history_numbering_and_lineage_go_on() -> None:
    seed = worked_turn("from the parent")
    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter, extras=[MemoryStore]) as app:
        options = CreateAgent(
            session_id="child",
            cwd="/somewhere",
            parent_session="parent",
            seed=seed,
            seed_length=len(seed),
            options=AgentOptions(model=MODEL),
        )
        async with await app[AgentRegistry].create(app.ctx, options) as agent:
            await soon(agent.ask("before"))
        async with await resume(app, "child") as agent:
            await soon(agent.ask("after"))
            events = agent.session.events
            assert [event.seq for event in events] == list(range(len(events)))
            assert turn_numbers(events) == [1, 2, 3]
            assert user_texts(events) == ["from the parent", "before", "after"]
            header = agent.session.header
            assert (header.cwd, header.parent_session) == ("/somewhere", "parent")
            assert header.seed_length == len(seed)
            assert "before" in str(adapter.requests[1].messages)
            reasons = [e.data.reason for e in events if isinstance(e.data, RequestHeaderSnapshot)]
            assert reasons[-1] == "resume"


# case: G-09
async def test_a_resumed_session_starts_as_one() -> None:
    DISK["s"] = (SessionHeader(id="s", created_at=1), worked_turn())
    sources: list[str] = []
    async with loop_app(AgentLoop, extras=[MemoryStore]) as app:
        app.ctx.on(AgentSessionStart, lambda event: sources.append(event.source))
        async with await resume(app, "s"):
            pass
        assert sources == ["resume"]


# case: G-11
async def test_resuming_without_persistence_says_what_is_missing() -> None:
    async with loop_app(AgentLoop) as app:
        with pytest.raises(AgentFault, match="not configured") as caught:
            await resume(app, "s")
        assert caught.value.code == "NO_SESSION_PERSISTENCE"


# case: G-12
async def test_an_owner_that_leaves_during_a_load_ends_it_and_frees_the_ids() -> None:
    DISK["s"] = (SessionHeader(id="s", created_at=1), worked_turn())
    gate = Gate()
    errors: list[Exception] = []

    class Owner(Plugin):
        agents = inject(AgentRegistry)

        async def start(self) -> None:
            self.ctx.spawn(self.run)

        async def run(self) -> None:
            try:
                await self.agents.resume(self.ctx, ResumeAgent("s", agent_id="a"))
            except Exception as error:
                errors.append(error)

    async with loop_app(AgentLoop, extras=[MemoryStore]) as app:
        heard: list[str] = []
        app.ctx.on(SessionCreated, lambda event: heard.append(event.session.id))
        app.ctx.on(AgentCreated, lambda event: heard.append(event.agent.id))
        LOADING.append(gate)
        try:
            mount = app.mount(Owner)
            await soon(gate.reached())
            with pytest.raises(AgentFault):
                await resume(app, "s", "a")
            await soon(mount.dispose())
        finally:
            LOADING.clear()
        assert heard == []
        async with await resume(app, "s", "a") as agent:
            gate.open()
            await anyio.wait_all_tasks_blocked()
            assert heard == ["s", "a"]
            assert app[AgentRegistry].list() == (agent,)


# case: G-12
async def test_a_load_that_fails_leaves_nothing_behind() -> None:
    async with loop_app(AgentLoop, extras=[MemoryStore]) as app:
        for _ in range(2):
            with pytest.raises(StoredSessionNotFound):
                await resume(app, "missing", "a")
        assert app[AgentRegistry].list() == ()
        assert app[LiveSessions].list() == ()


# case: G-13
async def test_options_are_taken_before_the_load() -> None:
    DISK["s"] = (SessionHeader(id="s", created_at=1), worked_turn())
    gate = Gate()
    extra: dict[str, object] = {"depth": 1}
    agents: list[Agent] = []
    async with loop_app(AgentLoop, extras=[MemoryStore]) as app:

        async def run() -> None:
            options = ResumeAgent("s", options=AgentOptions(extra=extra))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            async with await app[AgentRegistry].resume(app.ctx, options) as agent:
                agents.append(agent)

        LOADING.append(gate)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await soon(gate.reached())
                extra["depth"] = 99
                gate.open()
        finally:
            LOADING.clear()
        assert agents[0].options.extra["depth"] == 1


# case: G-14
async def test_idle_context_is_durable_without_an_explicit_checkpoint() -> None:
    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter, extras=[MemoryStore]) as app:
        async with open_agent(app, model=MODEL, session_id="s") as agent:
            agent.inject("remember this")
            await soon(agent.when_idle())
            assert types_of(DISK["s"][1]) == ["turn/start", "context/message", "turn/end"]
        async with await resume(app, "s") as agent:
            await soon(agent.ask("hi"))
            assert "remember this" in str(adapter.requests[0].messages)


# case: G-14
async def test_idle_context_is_durable_even_if_the_agent_goes_at_once() -> None:
    async with loop_app(AgentLoop, extras=[MemoryStore]) as app:
        async with open_agent(app, model=MODEL, session_id="s") as agent:
            agent.inject("remember this")
        assert types_of(DISK["s"][1]) == ["turn/start", "context/message", "turn/end"]


# case: U-09
@pytest.mark.parametrize(
    ("cut_at", "code"),
    [("tool/call", TOOL_NOT_STARTED), ("tool/result", TOOL_OUTCOME_UNKNOWN)],
)
async def test_a_session_that_broke_off_in_a_tool_goes_on_with_a_valid_request(
    cut_at: str, code: str
) -> None:
    log = worked_turn()
    cut = next(event.seq for event in log if event.type == cut_at)
    DISK["s"] = (SessionHeader(id="s", created_at=1), log[:cut])
    adapter = ScriptedAdapter([text("ok")])
    async with (
        loop_app(AgentLoop, adapter, extras=[MemoryStore]) as app,
        await resume(app, "s") as agent,
    ):
        await soon(agent.ask("continue"))
        (request,) = adapter.requests
        assert_paired_request(request)
        results = [
            block
            for message in request.messages
            for block in message.content
            if isinstance(block, ToolResultBlock)
        ]
        assert [block.is_error for block in results] == [True]
        errors = [getattr(e.data, "error", None) for e in agent.session.events]
        assert [error.code for error in errors if error is not None] == [code]


# case: G-15
async def test_configured_agents_get_fresh_sessions_and_their_directory() -> None:
    ids: list[set[str]] = []
    configs = {AgentLoop: {"agents": [{"id": "a"}, {"id": "b", "cwd": "/here", "model": MODEL}]}}
    for _ in range(2):
        async with loop_app(AgentLoop, ScriptedAdapter([text("ok")]), configs=configs) as app:
            agents = app[AgentRegistry]
            await anyio.wait_all_tasks_blocked()
            assert {agent.id for agent in agents.list()} == {"a", "b"}
            b = agents.get("b")
            assert b is not None
            assert b.session.header.cwd == "/here"
            assert (await soon(b.ask("hi"))).ok
            ids.append({agent.session.id for agent in agents.list()})
    assert not ids[0] & ids[1]


# case: G-15
async def test_a_configured_agent_resumes_when_persistence_appears(
    caplog: pytest.LogCaptureFixture,
) -> None:
    DISK["s"] = (SessionHeader(id="s", created_at=1), worked_turn())
    rows = [
        {"id": "a", "resume_session_id": "s", "model": MODEL},
        {"id": "missing", "resume_session_id": "nowhere"},
    ]
    configs = {AgentLoop: {"agents": rows}}
    async with loop_app(AgentLoop, ScriptedAdapter([text("ok")]), configs=configs) as app:
        agents = app[AgentRegistry]
        await anyio.wait_all_tasks_blocked()
        assert agents.list() == ()
        waiting = {report.name for report in app.explain().inactive}
        assert {"resume-a", "resume-missing"} <= waiting
        with caplog.at_level(logging.WARNING):
            mount = app.mount(MemoryStore)
            await mount.settled()
            await anyio.wait_all_tasks_blocked()
        assert [agent.id for agent in agents.list()] == ["a"]
        assert "configured agent missing: " in caplog.text
        agent = agents.list()[0]
        assert (await soon(agent.ask("hi"))).turn == 2
        await mount.dispose()
        assert agents.list() == (agent,)


# case: G-15
async def test_a_configured_agent_that_cannot_be_made_is_only_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"id": "a", "cwd": "relative"}, {"id": "b"}]
    async with loop_app(AgentLoop, configs={AgentLoop: {"agents": rows}}) as app:
        await anyio.wait_all_tasks_blocked()
        assert [agent.id for agent in app[AgentRegistry].list()] == ["b"]
        assert "absolute" in caplog.text
        assert "configured agent a: " in caplog.text


async def test_a_configured_agent_has_the_options_of_its_row() -> None:
    options: dict[str, Any] = {
        "model": MODEL,
        "max_steps": 2,
        "max_tokens": 3,
        "max_turn_tokens": 4,
        "temperature": 0.5,
        "reasoning_effort": "high",
        "stop": ("end",),
    }
    configs = {AgentLoop: {"agents": [{"id": "a", **options}]}}
    async with loop_app(AgentLoop, configs=configs) as app:
        await anyio.wait_all_tasks_blocked()
        (agent,) = app[AgentRegistry].list()
        assert agent.options == AgentOptions(**options)


async def test_an_aborted_signal_refuses_to_resume() -> None:
    DISK["s"] = (SessionHeader(id="s", created_at=1), worked_turn())
    signal = CancelSignal()
    signal.abort("changed my mind")
    async with loop_app(AgentLoop) as app:
        await app.mount(MemoryStore).settled()
        with pytest.raises(AgentFault, match="changed my mind"):
            await app[AgentRegistry].resume(app.ctx, ResumeAgent("s", signal=signal))
        assert app[AgentRegistry].list() == ()
