"""The bench on which an agent loop is tried."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel

from dsh.agent import Agent, AgentHandle, AgentOptions, AgentRegistry, CreateAgent, Setup
from dsh.agent.events import AgentError
from dsh.core import App, Context, DshError, Effect, Event, JsonObject, PluginLike
from dsh.llm import LlmRequest, TextBlock
from dsh.llm_replay import Entry, EntryFunction, ScriptedAdapter
from dsh.session import (
    ContextMessage,
    PluginSource,
    Session,
    SessionData,
    SteeringMessage,
    UserMessage,
)
from dsh.session.testing import assert_balanced, reloaded
from dsh.testkit._case import ContractCase, named
from dsh.testkit._loop_app import loop_app
from dsh.testkit._spine import MODEL
from dsh.testkit._trace import StatusTrace, assert_paired, captured_requests, status_trace
from dsh.tools import Tool, ToolExecution, ToolRegistry

__all__ = [
    "MODEL",
    "NOTE",
    "LoopBench",
    "LoopCase",
    "OpenLoop",
    "cases_of",
    "checkpoints",
    "context_texts",
    "of_type",
    "refused",
    "steering_texts",
    "user_prompts",
]

NOTE: Final = PluginSource("note")
"""A source that is not the user."""
LIMIT_S: Final = 60.0
"""Seconds one case may take; a case that takes longer hangs."""

D = TypeVar("D", bound=SessionData)
E = TypeVar("E", bound=Event)
ToolBody = Callable[[ToolExecution], Awaitable[str]]


@dataclass(slots=True)
class OpenLoop:
    """A running app with a loop, a scripted model and the invariants at level full."""

    app: App
    model: ScriptedAdapter
    requests: list[LlmRequest]
    """Every request, as the loop built it."""
    errors: list[AgentError] = field(default_factory=list[AgentError])
    """Every failure that was reported."""
    traces: dict[Agent, StatusTrace] = field(default_factory=dict[Agent, StatusTrace])

    @property
    def ctx(self) -> Context:
        """Context of the case: it hears everything."""
        return self.app.ctx

    @property
    def reports(self) -> list[tuple[int, int, str]]:
        """Turn, step and text of every failure that was reported."""
        return [(error.turn, error.step, str(error.error)) for error in self.errors]

    def on(self, event: type[E], fn: Callable[[E], object] | Callable[[E, Any], object]) -> Effect:
        """Listen to an event; unlike `Context.on` also with what does not suit its mode."""
        ctx: Any = self.app.ctx
        effect: Effect = ctx.on(event, fn)
        return effect

    def tool(self, name: str, body: ToolBody | None = None) -> None:
        """Offer a tool to every agent; without a body it says `ran <call id>`."""

        async def run(arguments: JsonObject, execution: ToolExecution) -> str:
            return f"ran {execution.call_id}" if body is None else await body(execution)

        tool = Tool(name, f"The tool {name}.", {"type": "object"}, run)
        self.app[ToolRegistry].register(self.app.ctx, tool)

    async def make(
        self,
        ctx: Context | None = None,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        model: str | None = MODEL,
        cwd: str | None = None,
        setup: Setup | None = None,
        **options: Any,
    ) -> AgentHandle:
        """Make an agent; keyword arguments nobody names here are its options."""
        wanted = CreateAgent(
            agent_id=agent_id,
            session_id=session_id,
            cwd=cwd,
            options=AgentOptions(model=model, **options),
            setup=setup,
        )
        handle = await self.app[AgentRegistry].create(ctx or self.app.ctx, wanted)
        self.watch(handle.agent)
        return handle

    @asynccontextmanager
    async def agent(self, **wanted: Any) -> AsyncGenerator[Agent, None]:
        """Make an agent for the duration of a block; see `make`."""
        async with await self.make(**wanted) as agent:
            yield agent

    def watch(self, agent: Agent) -> None:
        """Hold an agent to what always holds, at the end of the case."""
        self.traces[agent] = status_trace(self.app.ctx, agent)


class LoopBench:
    """One kind of loop; each `open` is another app with it.

    Args:
        loop: The loop plugin.
        config: Its configuration.
        impatient: A configuration with which it waits as little as possible for tools, checkpoints
            and listeners that ignore a stop.
    """

    def __init__(self, loop: PluginLike, config: object, impatient: object) -> None:
        self.loop = loop
        self.config = config
        self.impatient = impatient

    @asynccontextmanager
    async def open(
        self,
        script: Iterable[Entry] | EntryFunction | ScriptedAdapter = (),
        *,
        extras: Mapping[Any, object] | None = None,
        impatient: bool = False,
    ) -> AsyncGenerator[OpenLoop, None]:
        """Run an app with the loop. At the end every agent of the block has kept its log in order.

        Args:
            script: What the model says.
            extras: Further plugins with their configurations.
            impatient: Use the impatient configuration.
        """
        model = script if isinstance(script, ScriptedAdapter) else ScriptedAdapter(script)
        config = self.impatient if impatient else self.config
        configs: dict[Any, object] = {**(extras or {}), self.loop: config}
        async with loop_app(self.loop, model, configs=configs, extras=extras or ()) as app:
            opened = OpenLoop(app, model, captured_requests(app.ctx))
            app.ctx.on(AgentError, opened.errors.append)
            yield opened
        for agent, trace in opened.traces.items():
            trace.check()
            check_log(agent.session)
        for request in opened.requests:
            assert_paired(request.messages)


def check_log(session: Session) -> None:
    """Fail unless a log is closed and a strict provider would take its history."""
    assert_balanced(session.events)
    assert_paired(session.derive_messages())
    assert_paired(reloaded(session).derive_messages())


@dataclass(frozen=True, slots=True)
class LoopCase(ContractCase[LoopBench]):
    """One thing that every agent loop has to do; call it with the loop's plugin."""

    async def __call__(
        self, loop: PluginLike, config: object = None, impatient: object = None
    ) -> None:
        """Try a loop.

        Args:
            loop: The loop plugin.
            config: Its configuration.
            impatient: A configuration with which it waits as little as possible for what ignores
                a stop.

        Raises:
            AssertionError: The loop does not do it.
            TimeoutError: It hangs.
        """
        with anyio.fail_after(LIMIT_S):
            await self.check(LoopBench(loop, config, impatient))


def cases_of(*checks: Any) -> tuple[LoopCase, ...]:
    """Make cases of functions, named like them."""
    return tuple(LoopCase(named(check), check) for check in checks)


def of_type(session: Session, kind: type[D]) -> list[D]:
    """Return the payloads of one type, oldest first."""
    return [event.data for event in session.events if isinstance(event.data, kind)]


def _texts(payloads: Iterable[Any]) -> list[str]:
    return [
        "".join(block.text for block in data.content if isinstance(block, TextBlock))
        for data in payloads
    ]


def user_prompts(session: Session) -> list[str]:
    """Return the texts of the admitted prompts."""
    return _texts(of_type(session, UserMessage))


def context_texts(session: Session) -> list[str]:
    """Return the texts of the injected contexts."""
    return _texts(of_type(session, ContextMessage))


def steering_texts(session: Session) -> list[str]:
    """Return the texts of the steering messages."""
    return _texts(of_type(session, SteeringMessage))


async def checkpoints(count: int = 20) -> None:
    """Let everything else run for a while."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def refused(step: Awaitable[object], code: str) -> None:
    """Fail unless a call raises an error with this code."""
    caught: DshError | None = None
    try:
        await step
    except DshError as error:
        caught = error
    assert caught is not None, f"nothing was refused, expected code {code}"
    assert caught.code == code, f"refused with code {caught.code}, expected {code}: {caught}"
