"""What nobody would do on purpose: odd results, clashing ids, waits for oneself, odd logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from dsh.agent import (
    Agent,
    AgentFault,
    AgentHandle,
    AgentOptions,
    AgentRegistry,
    AllowPrompt,
    CreateAgent,
    Dropped,
    PromptDecision,
)
from dsh.agent.events import AgentQueued, AgentStatusChanged, PromptSubmit, TurnContinuation
from dsh.agent_loop import AgentLoop
from dsh.core import App, JsonObject, Next
from dsh.llm import LlmRequest, TextBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_calls
from dsh.session import (
    Aborted,
    Completed,
    Failed,
    LiveSessions,
    SessionEvent,
    ToolResult,
    interrupted_turn_closers,
)
from dsh.session.errors import ForkError, LiveSessionError
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import assert_balanced, user_texts
from dsh.testkit import (
    MODEL,
    assert_paired,
    assert_paired_request,
    soon,
    tool_results,
    turn_reasons,
)
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry
from dsh.tools.testing import text_of

Body = Callable[[JsonObject, ToolExecution], Any]
CALLS = [("c1", "odd", "{}")]


class Bench:
    """An app with an agent whose model calls tools once, and then says it is done."""

    def __init__(self, app: App, handle: AgentHandle, adapter: ScriptedAdapter) -> None:
        self.app = app
        self.handle = handle
        self.adapter = adapter

    @property
    def agent(self) -> Agent:
        return self.handle.agent

    def tool(self, body: Body, name: str = "odd", **more: Any) -> None:
        tool = Tool(name, "T.", {"type": "object"}, body, **more)
        self.app[ToolRegistry].register(self.app.ctx, tool)

    async def make(self, seed: Sequence[SessionEvent] = (), **more: Any) -> AgentHandle:
        options = CreateAgent(options=AgentOptions(model=MODEL), seed=tuple(seed), **more)
        return await self.app[AgentRegistry].create(self.app.ctx, options)

    async def results(self) -> list[ToolResult]:
        """Have the tools called, and return what came of it."""
        assert (await soon(self.agent.ask("go"))).text == "done"
        return tool_results(self.agent.session.events)


@asynccontextmanager
async def bench(calls: Sequence[tuple[str, str, str]] = CALLS) -> AsyncGenerator[Bench, None]:
    def answer(request: LlmRequest) -> Any:
        last = request.messages[-1].content
        return tool_calls(list(calls)) if last == (TextBlock("go"),) else text("done")

    adapter = ScriptedAdapter(answer)
    async with loop_app(AgentLoop, adapter) as app:
        failures: list[Any] = []
        app.on_error(app.ctx, failures.append)
        options = CreateAgent(options=AgentOptions(model=MODEL))
        handle = await app[AgentRegistry].create(app.ctx, options)
        made = Bench(app, handle, adapter)
        yield made
        if made.agent.status != "disposed":
            assert (await soon(made.agent.ask("and now?"))).text == "done"
        for request in adapter.requests:
            assert_paired_request(request)
        assert_balanced(made.agent.session.events)
        assert_paired(made.agent.session.derive_messages())
        assert failures == []


# --- tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [None, 3, b"x", {"a": {1: 2}}, object(), ValueError("v"), "x" * 5_000_000, "\ud800", int, []],
    ids=lambda value: type(value).__name__,
)
async def test_whatever_a_tool_returns_is_a_result(value: Any) -> None:
    async def body(arguments: JsonObject, execution: ToolExecution) -> Any:
        return value

    async with bench() as made:
        made.tool(body)
        (result,) = await made.results()
        assert text_of(result)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_that_ends_cancelled_harms_neither_its_neighbours_nor_the_agent() -> None:
    async def stray(arguments: JsonObject, execution: ToolExecution) -> str:
        if execution.call_id != "c2":
            await anyio.wait_all_tasks_blocked()
            return "ran"
        forever = asyncio.ensure_future(asyncio.sleep(3600))
        forever.cancel()
        await forever
        return "never"

    async with bench([(f"c{number}", "odd", "{}") for number in (1, 2, 3)]) as made:
        made.tool(stray, concurrent=True)
        results = await made.results()
        assert [text_of(result) for result in results] == [
            "ran",
            "Error: the tool was cancelled by something it waited for",
            "ran",
        ]


async def test_ids_the_model_uses_again_are_mended() -> None:
    seen: list[str] = []

    async def body(arguments: JsonObject, execution: ToolExecution) -> str:
        seen.append(execution.call_id)
        return "ran"

    async with bench([("c1", "odd", "{}"), ("c1", "odd", "{}"), ("", "odd", "{}")]) as made:
        made.tool(body)
        await made.results()
        await made.results()
        assert len(set(seen)) == len(seen) == 6


async def ask(agent: Agent) -> None:
    await agent.ask("mine")


async def wait(agent: Agent) -> None:
    receipt = agent.send("mine")
    try:
        await receipt.done()
    finally:
        assert receipt.withdraw()


async def follow(agent: Agent) -> None:
    async with agent.run("mine") as run:
        async for _ in run:
            pass


async def rest(agent: Agent) -> None:
    await agent.when_idle()


@pytest.mark.parametrize("way", [ask, wait, follow, rest], ids=lambda way: way.__name__)
async def test_a_turn_that_waits_for_its_own_agent_is_told_so(way: Any) -> None:
    async def body(arguments: JsonObject, execution: ToolExecution) -> str:
        assert execution.agent is not None
        await way(execution.agent)
        return "never"

    async with bench() as made:
        made.tool(body)
        (result,) = await made.results()
        assert result.error is not None
        assert result.error.code == "LIFECYCLE_DEADLOCK"
        await soon(made.agent.when_idle())
        assert user_texts(made.agent.session.events) == ["go"]


async def test_a_checkpoint_that_waits_for_its_own_agent_is_told_so() -> None:
    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is None:
            await made.agent.ask("mine")

    async with bench() as made:
        listener = made.app.ctx.on(SessionFlush, flush)
        assert (await soon(made.agent.ask("x"))).text == "done"
        listener.dispose_nowait()
        assert user_texts(made.agent.session.events) == ["x"]


# --- saying things at odd moments ---------------------------------------------------------------


async def test_a_prompt_of_no_blocks_is_refused_and_so_is_one_rewritten_to_it() -> None:
    async def rewrite(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        return AllowPrompt(())

    async with bench() as made:
        for verb in (made.agent.send, made.agent.steer):
            with pytest.raises(AgentFault) as caught:
                verb([])
            assert caught.value.code == AgentFault.BAD_CONTENT
        listener = made.app.ctx.on(PromptSubmit, rewrite)
        outcome = await soon(made.agent.ask("x", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == AgentFault.BAD_CONTENT
        listener.dispose_nowait()


async def test_a_cancel_from_inside_of_a_cancel_changes_nothing() -> None:
    async def body(arguments: JsonObject, execution: ToolExecution) -> str:
        agent, signal = execution.agent, execution.signal
        assert agent is not None
        assert signal is not None
        signal.on_abort(lambda: agent.cancel("inner"))
        signal.on_abort(lambda: agent.send("after it"))
        agent.cancel("outer")
        return "ran"

    async with bench() as made:
        made.tool(body)
        outcome = await soon(made.agent.ask("go", check=False))
        await soon(made.agent.when_idle())
        assert outcome.reason == Aborted("outer")
        assert user_texts(made.agent.session.events) == ["go", "after it"]


async def test_a_cancel_by_whoever_hears_of_the_prompt_drops_it() -> None:
    async with bench() as made:
        listener = made.app.ctx.on(AgentQueued, lambda event: event.agent.cancel("no"))
        outcome = await soon(made.agent.ask("go", check=False))
        assert outcome.reason == Dropped("no")
        listener.dispose_nowait()
        assert len(made.agent.session.events) == 0


async def test_steering_after_the_last_step_begins_a_turn_or_another_step() -> None:
    async def once(event: TurnContinuation, next: Next[Any]) -> Any:
        if event.agent.session.last_step == 1 and event.turn == 1:
            event.agent.steer("one more step")
        return await next()

    def late(event: SessionEventAppended) -> None:
        if event.event.type == "turn/end" and len(turn_reasons(event.session.events)) == 1:
            made.agent.steer("one more turn")

    def later(event: AgentStatusChanged) -> None:
        if event.status == "idle" and len(turn_reasons(event.agent.session.events)) == 2:
            event.agent.steer("and another")

    async with bench() as made:
        made.app.ctx.on(TurnContinuation, once)
        made.app.ctx.on(SessionEventAppended, late)
        made.app.ctx.on(AgentStatusChanged, later)
        made.agent.send("first")
        await soon(made.agent.when_idle())
        await soon(made.agent.when_idle())
        assert user_texts(made.agent.session.events) == ["first", "one more turn", "and another"]
        assert [event.type for event in made.agent.session.events].count("steering/message") == 1
        assert turn_reasons(made.agent.session.events) == [Completed()] * 3


# --- sessions -----------------------------------------------------------------------------------


async def test_no_two_agents_share_a_session() -> None:
    async with bench() as made:
        with pytest.raises(LiveSessionError):
            await made.make(session_id=made.agent.session.id)
        handles: list[AgentHandle] = []
        refused: list[Exception] = []

        async def race(number: int) -> None:
            try:
                handles.append(await made.make(session_id="one", agent_id=f"a{number}"))
            except LiveSessionError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(race, number)
        assert (len(handles), len(refused)) == (1, 2)
        await handles[0].dispose()


async def test_an_agent_is_forked_from_inside_of_its_own_turn() -> None:
    forks: list[AgentHandle] = []

    async def body(arguments: JsonObject, execution: ToolExecution) -> str:
        agent = execution.agent
        assert agent is not None
        with pytest.raises(ForkError):
            made.app[LiveSessions].fork(made.app.ctx, agent.session, agent.session.seq - 1)
        forks.append(await made.make(closed(agent)))
        return (await forks[0].agent.ask("and you?")).text

    def closed(agent: Agent) -> list[SessionEvent]:
        events = list(agent.session.events)
        ends = [event.seq for event in events if event.type == "turn/end"]
        return events[: ends[-1] + 1]

    async with bench() as made:
        made.tool(body)
        await soon(made.agent.ask("before"))
        (result,) = await made.results()
        assert text_of(result) == "done"
        assert user_texts(forks[0].agent.session.events) == ["before", "and you?"]
        await forks[0].dispose()


async def test_an_agent_goes_on_with_a_log_that_ends_anywhere_once_it_is_closed() -> None:
    async def body(arguments: JsonObject, execution: ToolExecution) -> str:
        return "ran"

    async with bench([("c1", "odd", "{}"), ("c2", "odd", "{}")]) as made:
        made.tool(body)
        await made.results()
        events = list(made.agent.session.events)
        for length in range(1, len(events)):
            start = events[:length]
            closers = interrupted_turn_closers(start)
            assert closers
            with pytest.raises(AgentFault) as caught:
                await made.make(start)
            assert caught.value.code == AgentFault.OPEN_TURN
            handle = await made.make([*start, *closers])
            assert (await soon(handle.agent.ask("and now?"))).text == "done"
            assert_balanced(handle.agent.session.events)
            assert_paired(handle.agent.session.derive_messages())
            await handle.dispose()
        assert len(made.app[AgentRegistry].list()) == 1
