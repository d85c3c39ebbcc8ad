"""What a run left behind, and whether it is as it must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeVar

import anyio

from dsh.agent import Agent, AgentStatus
from dsh.agent.events import AgentStatusChanged
from dsh.core import Context, NextStream
from dsh.llm import LlmRequest, Message, StreamChunk, ToolCallBlock, ToolResultBlock
from dsh.llm.events import LlmStream
from dsh.session import (
    AssistantChunk,
    Session,
    SessionEvent,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    rebuild_request,
    request_steps,
)

__all__ = [
    "StatusTrace",
    "assert_paired",
    "assert_paired_request",
    "boundary_counts",
    "captured_requests",
    "rebuilt_requests",
    "request_parts",
    "soon",
    "status_trace",
    "tool_results",
    "turn_numbers",
    "turn_reasons",
    "until_idle",
]

T = TypeVar("T")

PATIENCE_S: Final = 10.0
"""Seconds that the helpers wait for something that is due at once."""

_BOUNDARIES: Final = ("turn/start", "step/start", "step/end", "turn/end")


async def soon(step: Awaitable[T], within_s: float = PATIENCE_S) -> T:
    """Await something that must not hang.

    Raises:
        TimeoutError: It took longer than `within_s` seconds.
    """
    with anyio.fail_after(within_s):
        return await step


@asynccontextmanager
async def until_idle(agent: Agent, *, within_s: float = PATIENCE_S) -> AsyncGenerator[None, None]:
    """Drive an agent in a block, and wait at its end until the agent has run and is idle again.

    The watch begins before the block, so a turn that is over at once is not missed.

        async with until_idle(agent):
            agent.send("hi")

    Args:
        agent: The agent.
        within_s: Seconds to wait at the end of the block.

    Raises:
        TimeoutError: The agent did not run, or did not come to rest.
    """
    rested = anyio.Event()

    def listen(event: AgentStatusChanged) -> None:
        if event.agent is agent and event.status != "running":
            rested.set()

    effect = agent.ctx.on(AgentStatusChanged, listen)
    try:
        yield
        with anyio.fail_after(within_s):
            await rested.wait()
            await agent.when_idle()
    finally:
        effect.dispose_nowait()


def boundary_counts(events: Iterable[SessionEvent]) -> dict[str, int]:
    """Count the `turn/start`, `step/start`, `step/end` and `turn/end` events of a log."""
    counts = Counter(event.type for event in events)
    return {name: counts[name] for name in _BOUNDARIES}


def turn_numbers(events: Iterable[SessionEvent]) -> list[int]:
    """Return the numbers of the turns of a log, oldest first."""
    return [event.data.turn for event in events if isinstance(event.data, TurnStart)]


def turn_reasons(events: Iterable[SessionEvent]) -> list[TurnEndReason]:
    """Return why each turn of a log ended, oldest first."""
    return [event.data.reason for event in events if isinstance(event.data, TurnEnd)]


def tool_results(events: Iterable[SessionEvent]) -> list[ToolResult]:
    """Return what each tool call of a log came to, oldest first."""
    return [event.data for event in events if isinstance(event.data, ToolResult)]


@dataclass(slots=True)
class StatusTrace:
    """The statuses an agent went through since it is watched."""

    statuses: list[AgentStatus] = field(default_factory=list[AgentStatus])
    """Each status it entered, oldest first."""

    def check(self) -> None:
        """Fail if a status repeats itself, or if anything comes after `disposed`.

        Raises:
            AssertionError: It does.
        """
        for before, after in pairwise(self.statuses):
            assert before != after, f"status {after!r} repeats itself in {self.statuses}"
            assert before != "disposed", f"{after!r} follows 'disposed' in {self.statuses}"


def status_trace(ctx: Context, agent: Agent) -> StatusTrace:
    """Take down every status that an agent enters from now on.

    Args:
        ctx: Owner of the listener. The agent's own context goes before the agent is disposed
            completely; an app's sees everything.
        agent: The agent.
    """
    trace = StatusTrace()

    def listen(event: AgentStatusChanged) -> None:
        if event.agent is agent:
            trace.statuses.append(event.status)

    ctx.on(AgentStatusChanged, listen)
    return trace


def captured_requests(ctx: Context) -> list[LlmRequest]:
    """Take down every model request from now on, as the loop built it.

    Args:
        ctx: Owner of the listener.

    Returns:
        The requests so far, oldest first; the list grows.
    """
    requests: list[LlmRequest] = []

    async def listen(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        requests.append(event.request)
        async with aclosing(next()) as chunks:
            async for chunk in chunks:
                yield chunk

    ctx.on(LlmStream, listen, prepend=True)
    return requests


def rebuilt_requests(session: Session) -> list[tuple[Any, ...]]:
    """Build every request of a session again, from its log alone.

    Returns:
        The `request_parts` of each request that got an answer, or the beginning of one: what was
        cut off before its first chunk leaves nothing to find it by.
    """
    answered = {
        (event.data.turn, event.data.step)
        for event in session.events
        if isinstance(event.data, AssistantChunk)
    }
    return [
        request_parts(rebuild_request(session.events, *place))
        for place in request_steps(session.events)
        if place in answered
    ]


def request_parts(request: LlmRequest) -> tuple[Any, ...]:
    """Return what a log says about a request: system, tools, configuration, messages."""
    return (request.system, request.tools, request.config, request.messages)


def assert_paired_request(request: LlmRequest) -> None:
    """Fail unless a provider that checks strictly would take the messages of a request."""
    assert_paired(request.messages)


def assert_paired(messages: Sequence[Message]) -> None:
    """Fail unless every tool call is answered once, right behind the reply that made it.

    Nothing may stand between the calls of a reply and their results, no id is used twice, no call
    lacks an id or a name, and no message is empty.

    Raises:
        AssertionError: Something else is the case; the message says where.
    """
    used: set[str] = set()
    waiting: list[str] = []
    for number, message in enumerate(messages):
        assert message.content, f"message {number} ({message.role}) is empty"
        answered = [block for block in message.content if isinstance(block, ToolResultBlock)]
        assert answered or not waiting, (
            f"message {number} ({message.role}) stands between calls and their results: {waiting}"
        )
        for result in answered:
            assert result.tool_call_id in waiting, (
                f"message {number} answers call {result.tool_call_id!r}, which waits for nothing"
            )
            waiting.remove(result.tool_call_id)
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                _check_call(number, message, block, used)
                used.add(block.id)
                waiting.append(block.id)
    assert not waiting, f"the calls {waiting} have no result"


def _check_call(number: int, message: Message, call: ToolCallBlock, used: set[str]) -> None:
    assert message.role == "assistant", f"message {number} ({message.role}) calls a tool"
    assert call.id, f"message {number} has a tool call without an id"
    assert call.name, f"message {number}: call {call.id!r} names no tool"
    assert call.id not in used, f"message {number} uses the call id {call.id!r} again"
