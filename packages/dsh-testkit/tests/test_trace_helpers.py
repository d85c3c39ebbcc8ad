"""Checks of logs, requests and statuses."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from dsh.agent import Agent
from dsh.llm import LlmRequest, Message, TextBlock, ToolCallBlock, ToolResultBlock
from dsh.session import Completed
from dsh.testkit import (
    Spine,
    StatusTrace,
    assert_balanced,
    assert_paired,
    assert_paired_request,
    boundary_counts,
    captured_requests,
    hang,
    rebuilt_requests,
    request_parts,
    soon,
    status_trace,
    text,
    tool_call,
    turn_numbers,
    turn_reasons,
    until_idle,
    user_texts,
    worked_turn,
)

USER = Message("user", (TextBlock("hi"),))


def calling(*ids: str, name: str = "echo") -> Message:
    return Message("assistant", tuple(ToolCallBlock(each, name, "{}") for each in ids))


def answering(*ids: str) -> Message:
    return Message("user", tuple(ToolResultBlock(each, (TextBlock("x"),)) for each in ids))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [USER, calling("a", "b"), answering("a"), answering("b"), USER],
        [USER, calling("a", "b"), answering("b", "a"), calling("c"), answering("c")],
    ],
)
def test_histories_that_a_provider_takes(messages: Sequence[Message]) -> None:
    assert_paired(messages)
    assert_paired_request(LlmRequest("m", tuple(messages)))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([USER, calling("a")], "no result"),
        ([USER, calling("a", "b"), answering("a"), USER], "stands between"),
        ([USER, calling("a"), calling("b"), answering("a", "b")], "stands between"),
        ([USER, calling("a"), answering("b")], "waits for nothing"),
        ([USER, calling("a"), answering("a"), answering("a")], "waits for nothing"),
        ([USER, calling("a"), answering("a"), calling("a"), answering("a")], "again"),
        ([USER, calling("a", "a"), answering("a", "a")], "again"),
        ([USER, calling(""), answering("")], "without an id"),
        ([USER, calling("a", name=""), answering("a")], "names no tool"),
        ([Message("user", (ToolCallBlock("a", "echo", "{}"),)), answering("a")], "calls a tool"),
        ([USER, Message("assistant", ())], "is empty"),
    ],
)
def test_histories_that_a_provider_refuses(messages: Sequence[Message], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        assert_paired(messages)


async def test_a_turn_is_followed(spine: Spine, agent: Agent) -> None:
    trace = status_trace(spine.app.ctx, agent)
    spine.model.append(tool_call("c", "missing"), text("done"))
    async with until_idle(agent):
        agent.send("go")
    events = agent.session.events
    assert user_texts(events) == ["go"]
    assert turn_reasons(events) == [Completed()]
    assert boundary_counts(events) == {
        "turn/start": 1,
        "step/start": 2,
        "step/end": 2,
        "turn/end": 1,
    }
    assert_balanced(events)
    for request in spine.model.requests:
        assert_paired_request(request)
    assert trace.statuses == ["running", "idle"]
    trace.check()


async def test_what_was_sent_is_what_the_log_says(spine: Spine, agent: Agent) -> None:
    requests = captured_requests(spine.app.ctx)
    spine.model.append(text("one"), hang("never seen"))
    await soon(agent.ask("first"))
    sent = agent.send("second")
    await soon(spine.model.waiting(2))
    assert len(requests) == 2
    assert rebuilt_requests(agent.session) == [request_parts(request) for request in requests]
    agent.cancel()
    await soon(sent.settle())
    assert turn_numbers(agent.session.events) == [1, 2]
    assert request_parts(requests[0]) != request_parts(requests[1])


async def test_idle_is_waited_for_at_the_end_of_the_block_alone(spine: Spine, agent: Agent) -> None:
    spine.model.append(text("done"))
    async with until_idle(agent):
        agent.send("go")
        assert agent.status != "disposed"
        await soon(spine.model.call())
    assert agent.status == "idle"


async def test_an_agent_that_does_not_come_to_rest_is_told(spine: Spine, agent: Agent) -> None:
    spine.model.append(hang())

    async def drive() -> None:
        async with until_idle(agent, within_s=0.05):
            agent.send("go")

    with pytest.raises(TimeoutError):
        await drive()


async def test_a_block_that_fails_is_not_held_up(agent: Agent) -> None:
    async def drive() -> None:
        async with until_idle(agent):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await drive()


async def test_a_disposed_agent_has_come_to_rest(spine: Spine) -> None:
    trace: StatusTrace | None = None
    spine.model.append(hang())
    async with spine.agent() as agent:
        trace = status_trace(spine.app.ctx, agent)
        agent.send("go")
        await soon(spine.model.waiting())
    assert trace.statuses == ["running", "disposed"]
    trace.check()


@pytest.mark.parametrize(
    "statuses", [["running", "running"], ["disposed", "idle"], ["idle", "disposed", "running"]]
)
def test_traces_that_cannot_be(statuses: list[str]) -> None:
    trace = StatusTrace()
    trace.statuses.extend(statuses)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AssertionError):
        trace.check()


async def test_soon_is_soon() -> None:
    assert await soon(_seven()) == 7
    with pytest.raises(TimeoutError):
        await soon(anyio.sleep_forever(), 0.01)


async def _seven() -> int:
    return 7


def test_counts_of_a_log_nobody_drives() -> None:
    assert boundary_counts(worked_turn()) == {
        "turn/start": 1,
        "step/start": 2,
        "step/end": 2,
        "turn/end": 1,
    }
