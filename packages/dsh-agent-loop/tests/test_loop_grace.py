"""Bounded ends: what ignores its signal is left behind. On virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from dsh.agent import AgentOptions, AgentRegistry, CreateAgent, open_agent
from dsh.agent.events import AgentError, PreStep
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject
from dsh.llm import BlockStart, LlmAdapter, LlmRequest, ModelInfo, StreamChunk, TextDelta
from dsh.llm_replay import ScriptedAdapter, text, tool_call, tool_calls
from dsh.llm_replay.server import Gate
from dsh.session import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Aborted,
    AssistantMessage,
    Disposed,
    ToolResult,
)
from dsh.session.events import SessionFlush
from dsh.session.testing import assert_balanced
from dsh.testkit import assert_paired, assert_paired_request, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolPreExecute, ToolRegistry
from dsh.tools.events import ToolFinished

MODEL = "test/scripted"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return ("trio", {"clock": MockClock(autojump_threshold=0)})


def codes(agent: Any) -> list[str | None]:
    return [
        None if e.data.error is None else e.data.error.code
        for e in agent.session.events
        if isinstance(e.data, ToolResult)
    ]


async def test_a_tool_that_ignores_its_signal_is_left_behind_after_the_grace() -> None:
    started = anyio.Event()

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        started.set()
        await anyio.sleep(1000)
        return "too late"

    adapter = ScriptedAdapter([tool_calls([("c1", "t", "{}"), ("c2", "t", "{}")]), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        finished: list[ToolFinished] = []
        app.ctx.on(ToolFinished, finished.append)
        receipt = agent.send("x")
        await started.wait()
        begun = anyio.current_time()
        agent.cancel("stop")
        assert (await receipt.done()).reason == Aborted("stop")
        assert anyio.current_time() - begun == pytest.approx(5, abs=0.1)
        assert codes(agent) == [TOOL_OUTCOME_UNKNOWN, TOOL_NOT_STARTED]
        told = [event.result.error.code for event in finished if event.result.error is not None]
        assert told == [TOOL_OUTCOME_UNKNOWN]
        assert_paired(agent.session.derive_messages())
        assert (await agent.ask("y")).ok
        assert_paired_request(adapter.requests[1])


async def test_a_tool_that_ends_within_the_grace_keeps_its_result() -> None:
    started = anyio.Event()

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        started.set()
        await anyio.sleep(4)
        return "just in time"

    adapter = ScriptedAdapter([tool_call("c1", "t")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        receipt = agent.send("x")
        await started.wait()
        agent.cancel("stop")
        assert (await receipt.done()).reason == Aborted("stop")
        assert codes(agent) == [None]
        assert "just in time" in str(agent.session.derive_messages())


async def test_a_policy_that_ignores_the_signal_leaves_its_call_unstarted() -> None:
    asked = anyio.Event()

    async def ponder(event: ToolPreExecute, next: Any) -> Any:
        asked.set()
        await anyio.sleep_forever()

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        return "ran"

    async with (
        loop_app(AgentLoop, ScriptedAdapter([tool_call("c1", "t")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        app.ctx.on(ToolPreExecute, ponder)
        receipt = agent.send("x")
        await asked.wait()
        agent.cancel("stop")
        await receipt.done()
        assert codes(agent) == [TOOL_NOT_STARTED]
        assert_paired(agent.session.derive_messages())


class Deaf(LlmAdapter):
    """Says something, then never looks at its signal again."""

    def __init__(self) -> None:
        self.waiting = anyio.Event()
        self.closed = False

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        try:
            yield BlockStart(0, "text")
            yield TextDelta(0, "so far")
            self.waiting.set()
            await anyio.sleep_forever()
        finally:
            self.closed = True

    def models(self) -> list[ModelInfo]:
        return [ModelInfo("scripted")]


async def test_an_adapter_that_ignores_its_signal_is_left_at_once() -> None:
    adapter = Deaf()
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        receipt = agent.send("x")
        await adapter.waiting.wait()
        begun = anyio.current_time()
        agent.cancel("stop")
        outcome = await receipt.done()
        assert anyio.current_time() == begun
        assert adapter.closed
        assert outcome.reason == Aborted("stop")
        assert outcome.text == "so far"


async def test_a_checkpoint_that_hangs_does_not_hold_up_the_end() -> None:
    errors: list[AgentError] = []
    flushing = anyio.Event()

    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is not None:
            return
        flushing.set()
        await anyio.sleep_forever()

    async with loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app:
        app.ctx.on(SessionFlush, flush)
        app.ctx.on(AgentError, errors.append)
        options = CreateAgent(options=AgentOptions(model=MODEL))
        handle = await app[AgentRegistry].create(app.ctx, options)
        handle.agent.send("x")
        await flushing.wait()
        begun = anyio.current_time()
        await handle.dispose()
        assert anyio.current_time() - begun == pytest.approx(5, abs=0.1)
        assert isinstance(errors[0].error, TimeoutError)
        assert_balanced(handle.agent.session.events)


async def test_a_listener_that_never_returns_does_not_hold_up_the_end() -> None:
    gate = Gate()
    flushed: list[str] = []

    async def stuck(event: PreStep) -> None:
        await gate.pass_through()

    async def flush(event: SessionFlush) -> None:
        await anyio.sleep(1)
        flushed.append(event.session.events[-1].type)

    async with loop_app(AgentLoop, ScriptedAdapter()) as app:
        app.ctx.on(PreStep, stuck)
        app.ctx.on(SessionFlush, flush)
        options = CreateAgent(options=AgentOptions(model=MODEL))
        handle = await app[AgentRegistry].create(app.ctx, options)
        receipt = handle.agent.send("x")
        await gate.reached()
        await handle.dispose()
        assert turn_reasons(handle.agent.session.events) == [Disposed()]
        assert_balanced(handle.agent.session.events)
        assert flushed == ["turn/end"]
        assert (await receipt.done()).reason == Disposed()


async def test_a_driver_that_is_cancelled_mid_stream_keeps_what_was_visible() -> None:
    async def flush(event: SessionFlush) -> None:
        await anyio.sleep(1)

    adapter = Deaf()
    async with loop_app(AgentLoop, adapter) as app:
        app.ctx.on(SessionFlush, flush)
        options = CreateAgent(options=AgentOptions(model=MODEL))
        handle = await app[AgentRegistry].create(app.ctx, options)
        agent = handle.agent
        agent.send("x")
        await adapter.waiting.wait()
        loop = next(mount for mount in app.mounts if mount.name == "agent-loop")
        (driver,) = [
            child
            for effect in loop.effects
            for slot in effect.children
            for child in slot.children
            if child.label.startswith("driver of")
        ]
        await driver.dispose()
        assert agent.status == "disposed"
        assert turn_reasons(agent.session.events) == [Disposed()]
        kept = [e.data for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        assert [message.interrupted for message in kept] == [True]
        assert_balanced(agent.session.events)
        await handle.dispose()
