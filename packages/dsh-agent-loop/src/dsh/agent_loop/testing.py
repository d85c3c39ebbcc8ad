"""Helpers for tests of loops and of plugins that listen to one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import anyio

from dsh.agent import Agent, AgentRegistry, AgentStatus
from dsh.agent.events import AgentStatusChanged
from dsh.agent_loop._plugin import AgentLoop
from dsh.core import App, Context, NextStream, PluginLike
from dsh.llm import (
    LlmAdapter,
    LlmRequest,
    LlmService,
    Message,
    StreamChunk,
    ToolCallBlock,
    ToolResultBlock,
)
from dsh.llm.events import LlmStream
from dsh.session import (
    AssistantChunk,
    Session,
    SessionEvent,
    SessionStore,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    rebuild_request,
    request_steps,
)
from dsh.system_prompt import SystemPrompt
from dsh.tools import ToolRegistry

__all__ = [
    "StatusTrace",
    "assert_valid_history",
    "assert_valid_request",
    "assert_valid_trace",
    "boundary_counts",
    "captured_requests",
    "mounted_everywhere",
    "open_spine",
    "parts_of",
    "rebuilt_requests",
    "soon",
    "status_trace",
    "turn_numbers",
    "turn_reasons",
    "wait_for_turns",
]

T = TypeVar("T")

SPINE: tuple[PluginLike, ...] = (
    LlmService,
    SessionStore,
    SystemPrompt,
    ToolRegistry,
    AgentRegistry,
    AgentLoop,
)


_everywhere: dict[Any, object] = {}


@asynccontextmanager
async def open_spine(
    adapter: LlmAdapter | None = None,
    *,
    provider: str = "test",
    configs: Mapping[Any, object] | None = None,
    extras: Iterable[PluginLike] = (),
) -> AsyncGenerator[App, None]:
    """Run an app with the spine mounted, and nothing else.

    Args:
        adapter: A model adapter to register.
        provider: Its provider name; a scripted model is then `test/scripted`.
        configs: Configurations by plugin.
        extras: Further plugins, mounted before the loop.

    Yields:
        The app, every part of it settled.

    Raises:
        AssertionError: Invariants are mounted and one of them was broken.
    """
    given = {**_everywhere, **(configs or {})}
    async with App() as app:
        for plugin in (*SPINE[:-1], *_everywhere, *extras, SPINE[-1]):
            app.mount(plugin, given.get(plugin))
        for mount in app.mounts:
            await mount.settled()
        if adapter is not None:
            app[LlmService].register(app.ctx, adapter, provider)
        yield app
        invariants = app.get("invariants")
        assert invariants is None or not invariants.violations, invariants.violations


@contextmanager
def mounted_everywhere(plugins: Mapping[Any, object]) -> Generator[None]:
    """Have every `open_spine` of a block mount further plugins, invariants for example.

    Args:
        plugins: The plugins with their configurations.
    """
    _everywhere.update(plugins)
    try:
        yield
    finally:
        _everywhere.clear()


def turn_reasons(events: Iterable[SessionEvent]) -> list[TurnEndReason]:
    """Return why each turn of a log ended."""
    return [event.data.reason for event in events if isinstance(event.data, TurnEnd)]


def boundary_counts(events: Iterable[SessionEvent]) -> dict[str, int]:
    """Count the boundaries of a log by type."""
    counts = {"turn/start": 0, "step/start": 0, "step/end": 0, "turn/end": 0}
    for event in events:
        if event.type in counts:
            counts[event.type] += 1
    return counts


@dataclass(slots=True)
class StatusTrace:
    """The statuses an agent went through."""

    statuses: list[AgentStatus] = field(default_factory=list[AgentStatus])
    """The statuses, oldest first."""


def status_trace(ctx: Context, agent: Agent) -> StatusTrace:
    """Take down every status of an agent from now on.

    Args:
        ctx: Owner of the listener.
        agent: The agent.
    """
    trace = StatusTrace()

    def listen(event: AgentStatusChanged) -> None:
        if event.agent is agent:
            trace.statuses.append(event.status)

    ctx.on(AgentStatusChanged, listen)
    return trace


def assert_valid_trace(trace: StatusTrace) -> None:
    """Fail if a status repeats or anything follows `disposed`."""
    statuses = trace.statuses
    for before, after in pairwise(statuses):
        assert before != after, f"status {after!r} repeats in {statuses}"
        assert before != "disposed", f"{after!r} follows 'disposed' in {statuses}"


def assert_valid_request(request: LlmRequest) -> None:
    """Fail unless a provider that checks strictly would take the request."""
    assert_valid_history(request.messages)


def assert_valid_history(messages: Sequence[Message]) -> None:
    """Fail unless each tool call is answered exactly once, right behind the reply that made it.

    Nothing may stand between a reply's calls and their results, ids are never used again, and
    no call has an empty id or name.
    """
    seen: set[str] = set()
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        if open_calls:
            assert results, f"message {number} stands between calls {open_calls} and results"
        for result in results:
            assert result.tool_call_id in open_calls, (
                f"message {number} answers {result.tool_call_id!r}, which waits for nothing"
            )
            open_calls.remove(result.tool_call_id)
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                assert message.role == "assistant", f"message {number} calls a tool as a user"
                assert block.id, f"message {number} has a call without id"
                assert block.name, f"message {number} has a call without name"
                assert block.id not in seen, f"call id {block.id!r} is used twice"
                seen.add(block.id)
                open_calls.append(block.id)
        assert message.content, f"message {number} is empty"
    assert not open_calls, f"calls without result at the end: {open_calls}"


def rebuilt_requests(session: Session) -> list[tuple[Any, ...]]:
    """Rebuild every request of a session from its log alone.

    Returns:
        For each step that got an answer, or the beginning of one: system, tools, configuration,
        messages. Compare with `[parts_of(r) for r in requests]` of what `captured_requests` took
        down.
    """
    answered = {
        (event.data.turn, event.data.step)
        for event in session.events
        if isinstance(event.data, AssistantChunk)
    }
    return [
        parts_of(rebuild_request(session.events, *place))
        for place in request_steps(session.events)
        if place in answered
    ]


def parts_of(request: LlmRequest) -> tuple[Any, ...]:
    """Return what `rebuilt_requests` rebuilds of a request."""
    return (request.system, request.tools, request.config, request.messages)


def captured_requests(ctx: Context) -> list[LlmRequest]:
    """Take down every model request from now on, as the loop built it.

    Args:
        ctx: Owner of the listener.
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


async def soon(step: Awaitable[T], seconds: float = 5) -> T:
    """Await something that must not hang."""
    with anyio.fail_after(seconds):
        return await step


async def wait_for_turns(session: Session, count: int) -> None:
    """Wait until `count` turns of a session have ended, letting everything else run."""
    while sum(isinstance(event.data, TurnEnd) for event in session.events) < count:
        await anyio.wait_all_tasks_blocked()


def turn_numbers(events: Iterable[SessionEvent]) -> list[int]:
    """Return the numbers of the turns of a log, in order."""
    return [event.data.turn for event in events if isinstance(event.data, TurnStart)]
