"""Cancel, dispose and kill at every event and at every step of the driver: nothing ever dangles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
import trio

from dsh.agent import (
    Agent,
    AgentHandle,
    AgentOptions,
    AgentRegistry,
    AllowPrompt,
    ContinuationDecision,
    Continue,
    CreateAgent,
    HookContext,
    PromptDecision,
)
from dsh.agent.events import PromptSubmit, SessionPrefix, TurnContinuation
from dsh.agent.loopkit import Loop
from dsh.agent_loop import AgentLoop
from dsh.core import App, JsonObject, Next
from dsh.llm import LlmRequest, Message, TextBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_calls
from dsh.session import Aborted, Completed, Disposed, Failed, PluginSource
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import assert_balanced, reloaded
from dsh.testkit import (
    assert_paired,
    assert_paired_request,
    captured_requests,
    rebuilt_requests,
    request_parts,
    soon,
    status_trace,
    turn_reasons,
)
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Accept, PostToolDecision, Tool, ToolExecution, ToolPostExecute, ToolRegistry

MODEL = "test/scripted"
pytestmark = pytest.mark.parametrize("oracle", ["full"], indirect=True)
NOTE = PluginSource("note")
Action = Callable[[App, AgentHandle], None]


def cancel(app: App, handle: AgentHandle) -> None:
    handle.agent.cancel("swept")


def dispose(app: App, handle: AgentHandle) -> None:
    handle.request_dispose()


def kill(app: App, handle: AgentHandle) -> None:
    """Cancel the driver's task from outside, as a torn-down task group would."""
    loop = app[Loop].ctx.owner
    for effect in loop.effects:
        for slot in effect.children:
            for child in slot.children:
                if child.label.startswith("driver of"):
                    (stop,) = getattr(child, "_cleanups")  # noqa: B009
                    stop.__self__.cancel()


ACTIONS: list[Action] = [cancel, dispose, kill]


class Scenario:
    """A busy turn: two prompts, a prefix, overlapping and exclusive tools, context, steering."""

    def __init__(self, app: App, handle: AgentHandle) -> None:
        self.app = app
        self.handle = handle
        self.requests: list[LlmRequest] = captured_requests(app.ctx)
        self.trace = status_trace(app.ctx, handle.agent)

    @property
    def agent(self) -> Agent:
        return self.handle.agent

    def start(self) -> None:
        self.receipts = [self.agent.send("first"), self.agent.send("second")]

    async def settle(self) -> None:
        await soon(self.agent.when_idle())
        for _ in range(5):
            # what was begun in the very last step has to take effect
            await anyio.lowlevel.checkpoint()
        if self.agent.status == "disposed":
            await soon(self.handle.dispose())

    async def check(self) -> None:
        session = self.agent.session
        assert all(receipt.settled for receipt in self.receipts)
        assert_balanced(session.events)
        assert_paired(session.derive_messages())
        assert_paired(reloaded(session).derive_messages())
        self.trace.check()
        for reason in turn_reasons(session.events):
            assert isinstance(reason, Completed | Aborted | Disposed), reason
        if self.agent.status != "disposed":
            assert (await soon(self.agent.ask("and now?"))).text == "done"
            assert_paired_request(self.requests[-1])
            assert not isinstance(turn_reasons(session.events)[-1], Failed)
        rebuilt = rebuilt_requests(session)
        sent = [request_parts(request) for request in self.requests]
        # a request cut off before its first chunk leaves nothing to find it by
        remaining = iter(sent)
        assert all(parts in remaining for parts in rebuilt)


def answer(request: LlmRequest) -> Any:
    spoken = sum(message.role == "assistant" for message in request.messages)
    last = str(request.messages[-1].content)
    if spoken == 0 and "and now?" not in last:
        calls = [("c1", "safe", "{}"), ("c2", "safe", "{}"), ("c3", "plain", "{}")]
        return tool_calls(calls, text="Hm.")
    return text("done", size=2)


async def run_tool(arguments: JsonObject, execution: ToolExecution) -> str:
    assert execution.agent is not None
    await anyio.lowlevel.checkpoint()
    if execution.agent.status == "running":
        execution.agent.inject(f"seen by {execution.call_id}", NOTE)
        if execution.call_id == "c3":
            execution.agent.steer("hurry", NOTE)
    await anyio.lowlevel.checkpoint()
    return "ran"


async def annotate(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
    return Accept(additional_context=HookContext((TextBlock("audited"),), NOTE))


async def prefix(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
    await anyio.lowlevel.checkpoint()
    return (Message("user", (TextBlock("rules"),)), *await next())


async def admit(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
    await anyio.lowlevel.checkpoint()
    return AllowPrompt(additional_context=HookContext((TextBlock("today"),), NOTE))


async def more(event: TurnContinuation, next: Next[ContinuationDecision]) -> ContinuationDecision:
    await anyio.lowlevel.checkpoint()
    return Continue() if event.agent.session.last_step == 2 else await next()


async def flush(event: SessionFlush) -> None:
    await anyio.lowlevel.checkpoint()


class Trigger:
    """Counts moments of the turn, and acts at one of them."""

    def __init__(self, number: int, action: Action | None) -> None:
        self.number = number
        self.action = action
        self.count = 0
        self.scenario: Scenario | None = None

    def moment(self) -> None:
        scenario = self.scenario
        if scenario is None:
            return
        self.count += 1
        if self.count == self.number and self.action is not None:
            self.action(scenario.app, scenario.handle)


async def sweep(trigger: Trigger, *, events: bool) -> None:
    """Run the scenario once.

    Args:
        trigger: When to act, and what to do.
        events: Whether each event of the log is a moment; else the caller counts steps.
    """
    async with loop_app(AgentLoop, ScriptedAdapter(answer)) as app:
        app[ToolRegistry].register(
            app.ctx, Tool("safe", "S.", {"type": "object"}, run_tool, concurrent=True)
        )
        app[ToolRegistry].register(app.ctx, Tool("plain", "P.", {"type": "object"}, run_tool))
        app.ctx.on(ToolPostExecute, annotate)
        app.ctx.on(SessionPrefix, prefix)
        app.ctx.on(PromptSubmit, admit)
        app.ctx.on(TurnContinuation, more)
        app.ctx.on(SessionFlush, flush)
        if events:
            app.ctx.on(SessionEventAppended, lambda event: trigger.moment())
        options = CreateAgent(options=AgentOptions(model=MODEL))
        handle = await app[AgentRegistry].create(app.ctx, options)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        scenario = Scenario(app, handle)
        scenario.start()
        trigger.scenario = scenario
        await scenario.settle()
        trigger.scenario = None
        await scenario.check()
        await soon(handle.dispose())
        assert app[AgentRegistry].list() == ()
        assert_balanced(scenario.agent.session.events)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
async def test_at_every_event(action: Action) -> None:
    whole = Trigger(0, None)
    await sweep(whole, events=True)
    assert whole.count > 40
    for number in range(1, whole.count + 1):
        await sweep(Trigger(number, action), events=True)


class TrioSteps(trio.abc.Instrument):
    """Counts the steps of the tasks of a turn."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if belongs_to_turn(task.name):
            self.trigger.moment()


class CountedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are counted."""

    def __init__(self, inner: Coroutine[Any, Any, Any], trigger: Trigger) -> None:
        self.inner = inner
        self.trigger = trigger

    def send(self, value: Any) -> Any:
        self.moment()
        return self.inner.send(value)

    def throw(self, *args: Any) -> Any:
        self.moment()
        return self.inner.throw(*args)

    def moment(self) -> None:
        task = asyncio.current_task()
        if task is not None and belongs_to_turn(task.get_name()):
            self.trigger.moment()

    def close(self) -> None:
        self.inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.inner.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def belongs_to_turn(name: str) -> bool:
    return "driver of" in name or "_body" in name


@contextmanager
def counted_steps(trigger: Trigger) -> Generator[None]:
    """Make every step of the tasks of a turn a moment, on either backend."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        instrument = TrioSteps(trigger)
        trio.lowlevel.add_instrument(instrument)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(instrument)
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> Any:
        return asyncio.Task(CountedCoroutine(coro, trigger), loop=loop, **kwargs)

    loop.set_task_factory(factory)
    try:
        yield
    finally:
        loop.set_task_factory(None)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
async def test_at_every_step_of_the_driver(action: Action) -> None:
    whole = Trigger(0, None)
    with counted_steps(whole):
        await sweep(whole, events=False)
    assert whole.count > 20
    for number in range(1, whole.count + 1):
        trigger = Trigger(number, action)
        with counted_steps(trigger):
            await sweep(trigger, events=False)
