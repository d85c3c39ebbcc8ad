"""Properties of the loop under arbitrary sequences of calls."""

from __future__ import annotations

from typing import Literal

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.agent import Dropped, Receipt, open_agent
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject
from dsh.llm import LlmRequest, StreamChunk, TextBlock, ToolResultBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_calls
from dsh.session import SteeringMessage, UserMessage
from dsh.session.testing import assert_balanced, user_texts
from dsh.testkit import assert_paired, soon, status_trace, turn_numbers
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"
pytestmark = pytest.mark.parametrize("oracle", ["full"], indirect=True)
Step = Literal["send", "wait", "idle"]
Busy = Literal["send", "steer", "inject", "cancel", "wait", "idle"]


async def run_sends(steps: list[Step]) -> None:
    adapter = ScriptedAdapter([text("ok", size=2)], repeat_last=True)
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        trace = status_trace(app.ctx, agent)
        sent: list[str] = []
        bursts: list[int] = []
        fresh = True
        for step in steps:
            if step == "send":
                sent.append(f"prompt {len(sent)}")
                agent.send(sent[-1])
                if fresh and agent.status == "idle":
                    bursts.append(len(sent))
                fresh = False
            elif step == "wait":
                await anyio.lowlevel.checkpoint()
                fresh = True
            else:
                await soon(agent.when_idle())
                fresh = True
        await soon(agent.when_idle())
        events = agent.session.events
        assert user_texts(events) == sent
        turns = turn_numbers(events)
        assert turns == list(range(1, len(turns) + 1))
        assert_balanced(events)
        trace.check()
        assert agent.status == "idle"
        if "wait" not in steps and "idle" not in steps and sent:
            assert turns == [1]


# case: L-16
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.sampled_from(["send", "wait", "idle"]), max_size=12))
def test_no_prompt_is_lost_or_reordered(backend: str, steps: list[Step]) -> None:
    anyio.run(run_sends, steps, backend=backend)


def reply(request: LlmRequest) -> tuple[StreamChunk, ...]:
    after_tools = any(isinstance(b, ToolResultBlock) for b in request.messages[-1].content)
    if not after_tools and len(request.messages) % 2 == 1:
        return tool_calls([("c", "t", "{}"), ("c", "t", "{}")])
    return text("ok", size=2)


async def run_t(arguments: JsonObject, execution: ToolExecution) -> str:
    await anyio.lowlevel.checkpoint()
    return "ran"


async def run_anything(steps: list[Busy]) -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter(reply)) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        tool = Tool("t", "T.", {"type": "object"}, run_t, concurrent=True)
        app[ToolRegistry].register(app.ctx, tool)
        trace = status_trace(app.ctx, agent)
        receipts: dict[str, Receipt] = {}
        injected = 0
        for number, step in enumerate(steps):
            name = f"{step} {number}"
            match step:
                case "send":
                    receipts[name] = agent.send(name)
                case "steer":
                    receipts[name] = agent.steer(name)
                case "inject":
                    agent.inject(name)
                    injected += 1
                case "cancel":
                    agent.cancel(name)
                case "wait":
                    for _ in range(4):
                        await anyio.lowlevel.checkpoint()
                case "idle":
                    await soon(agent.when_idle())
        await soon(agent.when_idle())
        events = agent.session.events
        assert_balanced(events)
        assert_paired(agent.session.derive_messages())
        trace.check()
        said = [
            block.text
            for event in events
            if isinstance(event.data, UserMessage | SteeringMessage)
            for block in event.data.content
            if isinstance(block, TextBlock)
        ]
        assert len(set(said)) == len(said)
        for name, receipt in receipts.items():
            dropped = isinstance((await soon(receipt.done())).reason, Dropped)
            assert (name in said) is not dropped
        contexts = [event for event in events if event.type == "context/message"]
        assert len(contexts) == injected


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(["send", "steer", "inject", "cancel", "wait", "wait", "idle"]),
        max_size=14,
    )
)
def test_every_prompt_is_said_once_or_dropped(backend: str, steps: list[Busy]) -> None:
    anyio.run(run_anything, steps, backend=backend)
