"""A turn in which everything happens, and what has to be true whatever is done to it."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Final

import anyio
import anyio.lowlevel
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
    Receipt,
)
from dsh.agent.events import (
    AgentError,
    AgentRequest,
    PreStep,
    PromptSubmit,
    SessionPrefix,
    StepResult,
    TurnContinuation,
)
from dsh.agent_loop import AgentLoop
from dsh.approval import AllowedOnce, Approval, ApprovalOutcome, ApprovalRequest
from dsh.core import (
    App,
    Effect,
    Failure,
    JsonObject,
    Mount,
    MountState,
    Next,
    Plugin,
    PluginLike,
    inject,
    on,
)
from dsh.invariants import Invariants
from dsh.llm import LlmCallConfig, LlmRequest, LlmService, Message, TextBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_call, tool_calls
from dsh.session import LiveSessions, PluginSource, Session, SessionEvent, TodoWrite, TurnEndReason
from dsh.session.events import SessionFlush
from dsh.session.testing import assert_balanced, reloaded
from dsh.system_prompt import SystemPrompt
from dsh.testkit import (
    MODEL,
    MemoryApproval,
    StatusTrace,
    assert_paired,
    assert_paired_request,
    captured_requests,
    rebuilt_requests,
    request_parts,
    soon,
    status_trace,
    turn_reasons,
)
from dsh.tools import (
    Accept,
    Ask,
    OutputTool,
    PostToolDecision,
    PreToolDecision,
    Tool,
    ToolExecution,
    ToolPostExecute,
    ToolPreExecute,
    ToolRegistry,
)

MORE: Final = "ATTACK_POINTS"
"""Environment variable: how many times as many points are tried as in an ordinary run."""

NOTE: Final = PluginSource("note")
OBJECT: Final[JsonObject] = {"type": "object"}
LATER: Final = "and now?"


# --- what the turn is made of -------------------------------------------------------------------


def answer(request: LlmRequest) -> Any:
    """Say what the model says: two rounds of tools, then an answer, whatever is asked later."""
    said = [m for m in request.messages if m.role == "assistant" and "calls" in str(m.content)]
    if LATER in str(request.messages[-1].content) or len(said) > 1:
        return text("done", size=2)
    if said:
        return tool_call("c5", "final_answer", {"answer": 7}, text="calls")
    calls = [(f"c{n}", name, "{}") for n, name in enumerate(("safe", "safe", "plain", "asked"), 1)]
    return tool_calls(calls, text="calls")


async def run_tool(arguments: JsonObject, execution: ToolExecution) -> str:
    agent, call = execution.agent, execution.call_id
    assert agent is not None
    await anyio.lowlevel.checkpoint()
    if agent.status == "running":
        agent.inject(f"seen by {call}", NOTE)
        if call == "c3":
            agent.steer("hurry", NOTE)
    await anyio.lowlevel.checkpoint()
    return "ran"


async def approve(request: ApprovalRequest) -> ApprovalOutcome:
    await anyio.lowlevel.checkpoint()
    return AllowedOnce()


class Adapter(Plugin):
    """Offers the model."""

    name = "adapter"
    llm = inject(LlmService)

    async def start(self) -> None:
        self.model = ScriptedAdapter(answer)
        self.entry = self.llm.register(self.ctx, self.model, "test")


class Tools(Plugin):
    """Offers the tools."""

    name = "tools-of-the-turn"
    tools = inject(ToolRegistry)

    async def start(self) -> None:
        self.entries: dict[str, Effect] = {}
        for name in ("safe", "plain", "asked", "final_answer"):
            self.offer(name)

    def offer(self, name: str) -> None:
        made: Tool = Tool(name, "T.", OBJECT, run_tool, concurrent=name == "safe")
        if name == "final_answer":
            made = OutputTool(int)
        self.entries[name] = self.tools.register(self.ctx, made)


class Policy(Plugin):
    """Has an opinion about everything, and takes its time."""

    name = "policy"

    @on(PromptSubmit)
    async def admit(self, event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        await anyio.lowlevel.checkpoint()
        return AllowPrompt(additional_context=HookContext((TextBlock("today"),), NOTE))

    @on(SessionPrefix)
    async def prefix(
        self, event: SessionPrefix, next: Next[tuple[Message, ...]]
    ) -> tuple[Message, ...]:
        await anyio.lowlevel.checkpoint()
        return (Message("user", (TextBlock("rules"),)), *await next())

    @on(PreStep)
    async def prepare(self, event: PreStep) -> None:
        await anyio.lowlevel.checkpoint()
        event.agent.record(TodoWrite(()))

    @on(AgentRequest)
    async def config(self, event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        await anyio.lowlevel.checkpoint()
        return await next()

    @on(StepResult)
    async def reply(self, event: StepResult, next: Next[Message]) -> Message:
        await anyio.lowlevel.checkpoint()
        return await next()

    @on(ToolPreExecute)
    async def gate(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        await anyio.lowlevel.checkpoint()
        return Ask("sure?") if event.execution.name == "asked" else await next()

    @on(ToolPostExecute)
    async def audit(self, event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
        await anyio.lowlevel.checkpoint()
        return Accept(additional_context=HookContext((TextBlock("audited"),), NOTE))

    @on(TurnContinuation)
    async def more(
        self, event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        await anyio.lowlevel.checkpoint()
        return Continue() if event.agent.session.last_step == 3 else await next()


class Disk(Plugin):
    """Takes its time to write."""

    name = "disk"

    @on(SessionFlush)
    async def write(self, event: SessionFlush) -> None:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()


PARTS: Final[tuple[PluginLike, ...]] = (
    LlmService,
    LiveSessions,
    SystemPrompt,
    ToolRegistry,
    AgentRegistry,
    Invariants,
    MemoryApproval,
    Adapter,
    Tools,
    Policy,
    Disk,
    AgentLoop,
)
NEEDED: Final = (LlmService, LiveSessions, SystemPrompt, ToolRegistry, AgentRegistry, AgentLoop)
"""Without these there is no agent; the others may come and go."""


# --- the scene ----------------------------------------------------------------------------------


class Scene:
    """An app, an agent, its turn, and what was heard of them."""

    def __init__(self, app: App, mounts: dict[Any, Mount]) -> None:
        self.app = app
        self.mounts = mounts
        self.failures: list[Failure] = []
        self.errors: list[AgentError] = []
        self.requests: list[LlmRequest] = captured_requests(app.ctx)
        self.receipts: list[Receipt] = []
        self.outside = anyio.CancelScope()
        """Around the block of the app."""
        self.waiting = anyio.CancelScope()
        """Around the wait for the end of the turn, after which the block of the app is left."""
        self.asked_before = 0
        """Model requests there were when the action was over."""
        self.mark = 0
        """Length of the log when the action was over."""
        self.settled: int | None = None
        """Model requests there were when the agent had come to rest."""
        self.answer = answer
        self.struck: int | None = None
        """The turn that was open when the action began."""
        app.on_error(app.ctx, self.failures.append)
        app.ctx.on(AgentError, self.errors.append)

        self.touched = False
        """Whether a part of the app has gone or come since."""
        app.on_status(app.ctx, self._touch)

    handle: AgentHandle
    trace: StatusTrace

    def _touch(self, mount: Mount, previous: MountState) -> None:
        self.touched = self.touched or mount in self.mounts.values()

    def let_approve(self) -> None:
        approval = self.app[Approval]
        assert isinstance(approval, MemoryApproval)
        approval.otherwise = approve

    @property
    def agent(self) -> Agent:
        return self.handle.agent

    @property
    def session(self) -> Session:
        return self.handle.agent.session

    def reasons(self) -> list[TurnEndReason]:
        return turn_reasons(self.session.events)

    async def make(self, seed: Sequence[SessionEvent] = ()) -> AgentHandle:
        options = CreateAgent(options=AgentOptions(model=MODEL), seed=tuple(seed))
        return await self.app[AgentRegistry].create(self.app.ctx, options)

    # -- what has to be true -------------------------------------------------------------------

    def check_log(self) -> None:
        """Fail unless the log is whole, every request can be built from it, and nothing waits."""
        session = self.session
        assert_balanced(session.events)
        assert_paired(session.derive_messages())
        again = reloaded(session)
        assert again.derive_messages() == session.derive_messages()
        assert all(receipt.settled for receipt in self.receipts)
        self.trace.check()
        sent = iter([request_parts(request) for request in self.requests])
        # a request cut off before its first chunk leaves nothing to find it by
        assert all(parts in sent for parts in rebuilt_requests(session))

    async def check_agent(self, handle: AgentHandle) -> None:
        """Fail unless an agent still does what it is asked to."""
        outcome = await soon(handle.agent.ask(LATER))
        assert outcome.text == "done"
        assert_paired_request(self.requests[-1])

    def signature(self) -> Any:
        """Return what two runs have to have in common."""
        events = [
            (event.type, getattr(event.data, "reason", None), getattr(event.data, "error", None))
            for event in self.session.events
        ]
        return events, self.trace.statuses, len(self.requests)


def leftovers(app: App) -> Any:
    """Describe what there is of an app, for a comparison."""
    return (
        sorted(Counter(task.name for task in anyio.get_running_tasks()).items()),
        {event.event_name: len(channel) for event, channel in app.channels.items() if len(channel)},
        [(mount.name, [effect.label for effect in mount.effects]) for mount in app.mounts],
        [effect.label for effect in app.root.effects],
        app.explain().waits,
    )


@asynccontextmanager
async def opened() -> AsyncGenerator[Scene, None]:
    async with App() as app:
        configs: dict[Any, object] = {Invariants: {"level": "full"}}
        mounts = {part: app.mount(part, configs.get(part)) for part in PARTS}
        for mount in mounts.values():
            await mount.settled()
        scene = Scene(app, mounts)
        scene.let_approve()
        yield scene
        checks = app.get(Invariants)
        assert checks is None or not checks.violations


# --- moments ------------------------------------------------------------------------------------

Action = Callable[[Scene], object]


class Trigger:
    """Counts the moments of a turn, and acts at one of them."""

    def __init__(self, number: int = 0, action: Action | None = None) -> None:
        self.number = number
        self.action = action
        self.count = 0
        self.scene: Scene | None = None
        self.deed: Any = action
        self.at = ""
        """At which event a listener has acted."""
        self.error: BaseException | None = None

    @property
    def acted(self) -> bool:
        return self.count >= self.number > 0

    def moment(self) -> None:
        scene = self.scene
        if scene is None:
            return
        self.count += 1
        if self.count == self.number and self.action is not None:
            scene.struck = scene.session.turn_open
            try:
                self.action(scene)
            except BaseException as error:
                # raised here it would break what counts, not the test
                self.error = error
            scene.asked_before = len(scene.requests)
            scene.mark = scene.session.seq

    def strike(self, listener: Any, event: Any) -> None:
        """Act out of a listener; what the action raises, the listener raises."""
        scene = self.scene
        if scene is None:
            return
        self.count += 1
        if self.count == self.number and self.deed is not None:
            self.at = type(event).__name__
            self.deed(scene, listener, event)


class TrioSteps(trio.abc.Instrument):
    """Makes every step of a task but one a moment."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.main = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self.main:
            self.trigger.moment()


class CountedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine, each step of which is a moment."""

    def __init__(self, inner: Coroutine[Any, Any, Any], trigger: Trigger) -> None:
        self.inner = inner
        self.trigger = trigger

    def send(self, value: Any) -> Any:
        self.trigger.moment()
        return self.inner.send(value)

    def throw(self, *args: Any) -> Any:
        self.trigger.moment()
        return self.inner.throw(*args)

    def close(self) -> None:
        self.inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.inner.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@contextmanager
def counted_steps(trigger: Trigger) -> Generator[None]:
    """Make every step of the tasks that are begun in the block moments, on either backend."""
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


# --- the play -----------------------------------------------------------------------------------

CHANCE: Final = random.Random(0)
"""What trio decides with in which order tasks run that are ready."""
REST: Final = (MountState.ACTIVE, MountState.PENDING, MountState.DISPOSED)


async def settle(scene: Scene) -> None:
    """Wait until the agent has come to rest or gone, and whatever was begun has ended."""
    await soon(scene.agent.when_idle())
    await anyio.wait_all_tasks_blocked()
    if scene.agent.status == "disposed":
        await soon(scene.handle.dispose())
    for mount in scene.app.mounts:
        await soon(mount.wait_state(*REST))


async def repair(scene: Scene) -> None:
    """Mount again what was taken away."""
    for part, mount in scene.mounts.items():
        if mount.state is MountState.DISPOSED:
            scene.mounts[part] = scene.app.mount(part)
    for mount in scene.mounts.values():
        await soon(mount.settled())
        assert mount.state is MountState.ACTIVE
    scene.let_approve()


async def check_rest(scene: Scene, before: Any) -> None:
    """Fail unless everything is in order and an agent can go on where the turn ended."""
    scene.check_log()
    untouched = not scene.touched
    await repair(scene)
    if scene.agent.status == "disposed":
        handle = await scene.make(scene.session.events)
        await scene.check_agent(handle)
        await handle.dispose()
    else:
        await scene.check_agent(scene.handle)
        scene.check_log()
        await soon(scene.handle.dispose())
    assert scene.app[AgentRegistry].list() == ()
    assert scene.app[LiveSessions].list() == ()
    if untouched:
        await anyio.wait_all_tasks_blocked()
        assert leftovers(scene.app) == before


async def whole_turn(scene: Scene, trigger: Trigger) -> None:
    app = scene.app
    await anyio.wait_all_tasks_blocked()
    before = leftovers(app)
    scene.handle = handle = await scene.make()
    scene.trace = status_trace(handle.agent.ctx, handle.agent)
    await anyio.wait_all_tasks_blocked()
    # a turn before, which can be forked
    handle.agent.record(TodoWrite(()))
    await handle.agent.when_idle()
    scene.receipts = [handle.agent.send("first"), handle.agent.send("second")]
    trigger.scene = scene
    with scene.waiting:
        await soon(handle.agent.when_idle())
    trigger.scene = None
    if not scene.waiting.cancel_called:
        await settle(scene)
        scene.settled = len(scene.requests)
        await check_rest(scene, before)


async def play(trigger: Trigger, intruder: type[Plugin] | None = None) -> Scene:
    """Play the turn once, hold it to what always holds, and return what is left of it.

    Args:
        trigger: When to act: at a step of a task, or where the listeners of an intruder say so.
        intruder: A plugin that calls `trigger.strike`.
    """
    found: list[Scene] = []
    CHANCE.seed(0)
    steps = counted_steps(trigger) if intruder is None else nullcontext()
    with steps, anyio.CancelScope() as outside:
        async with opened() as scene:
            scene.outside = outside
            found.append(scene)
            if intruder is not None:
                mount = await scene.app.mount(intruder).settled()
                setattr(mount.instance, "trigger", trigger)  # noqa: B010
            await whole_turn(scene, trigger)
    (scene,) = found
    if trigger.error is not None:
        raise trigger.error
    assert scene.agent.status == "disposed"
    scene.check_log()
    return scene


LENGTHS: Final[dict[Any, int]] = {}


@pytest.fixture
def stage(anyio_backend: str) -> Any:
    """The turn, to be played; `length` tells how many moments it has, which is found out once."""

    async def length(intruder: type[Plugin] | None = None) -> int:
        kind = anyio_backend, intruder
        if kind not in LENGTHS:
            whole = Trigger()
            await play(whole, intruder)
            LENGTHS[kind] = whole.count
        return LENGTHS[kind]

    return SimpleNamespace(
        play=play, length=length, Trigger=Trigger, chosen=chosen, NEEDED=NEEDED, PARTS=PARTS
    )


def chosen(total: int, most: int, shift: int) -> list[int]:
    """Choose evenly among so many points, from 1, up to all of them."""
    most = min(total, most * int(os.environ.get(MORE, "1")))
    return sorted({(number * total // most + shift) % total + 1 for number in range(most)})


@pytest.fixture(autouse=True)
def same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have trio run the tasks that are ready in an order that a seed decides."""
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr("trio._core._run._r", CHANCE)
