"""Sessions that a whole spine has recorded, with everything that comes into one from outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio.lowlevel
import pytest

from dsh.agent import (
    Agent,
    AgentHandle,
    AgentOptions,
    AgentRegistry,
    AllowPrompt,
    BlockPrompt,
    ContinuationDecision,
    Continue,
    CreateAgent,
    HookContext,
    PromptDecision,
    RequestErrorDecision,
    Retry,
)
from dsh.agent.events import (
    AgentRequest,
    AgentRequestError,
    PreStep,
    PromptSubmit,
    SessionPrefix,
    TurnContinuation,
)
from dsh.agent_core import AgentCore
from dsh.core import App, DshError, JsonObject, Next
from dsh.llm import LlmCallConfig, LlmService, Message, TextBlock
from dsh.llm_replay import (
    Entry,
    ScriptedAdapter,
    error,
    hang,
    max_tokens,
    reasoning,
    text,
    tool_call,
    tool_calls,
)
from dsh.session import (
    APPEND,
    Completed,
    OtherSource,
    OtherTrigger,
    PluginSource,
    Replace,
    Session,
    SessionEvent,
    TodoItem,
    TodoWrite,
    TurnEnd,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
    interrupted_turn_closers,
)
from dsh.system_prompt import SystemPrompt
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"
NOTE = PluginSource("note")


class NoRoom(DshError):
    code = "NO_ROOM"


class Recorder:
    """An app in which agents are recorded, one after the other, on one log."""

    def __init__(self, app: App, model: ScriptedAdapter) -> None:
        self.app = app
        self.model = model
        self.log: tuple[SessionEvent, ...] = ()

    @asynccontextmanager
    async def agent(self, **options: Any) -> AsyncGenerator[AgentHandle, None]:
        """Go on with the log, as a new process does."""
        create = CreateAgent(
            seed=(*self.log, *interrupted_turn_closers(self.log)),
            options=AgentOptions(model=MODEL, **options),
        )
        handle = await self.app[AgentRegistry].create(self.app.ctx, create)
        try:
            yield handle
        finally:
            await handle.dispose()
            self.log = handle.agent.session.events[:]

    def tool(self, name: str, *, concurrent: bool = False, **acts: str) -> None:
        """Offer a tool whose body does something with its agent, then returns."""

        async def run(arguments: JsonObject, execution: ToolExecution) -> str:
            agent = execution.agent
            assert agent is not None
            for verb, said in acts.items():
                if verb == "record":
                    agent.record(TodoWrite((TodoItem(said, "pending"),)))
                elif verb == "raises":
                    raise ValueError(said)
                elif verb == "cancel":
                    agent.cancel(said)
                else:
                    getattr(agent, verb)(said, NOTE)
                await anyio.lowlevel.checkpoint()
            return f"{name} is through"

        tool = Tool(name, f"The tool {name}.", {"type": "object"}, run, concurrent=concurrent)
        self.app[ToolRegistry].register(self.app.ctx, tool)


@asynccontextmanager
async def _recorder(script: Iterable[Entry], **config: Any) -> AsyncGenerator[Recorder, None]:
    async with App() as app:
        await app.mount(AgentCore, {"invariants": {"level": "full"}, **config}).settled()
        model = ScriptedAdapter(script)
        app[LlmService].register(app.ctx, model, "test")
        yield Recorder(app, model)


Open = Callable[..., AbstractAsyncContextManager[Recorder]]


@pytest.fixture
def recorder() -> Open:
    """Return a function that opens a recorder on a script."""
    return _recorder


SCRIPT: tuple[Entry, ...] = (
    # the first instance
    text("hello"),
    tool_calls([("c1", "look", "{}"), ("c2", "look", "{}"), ("c3", "act", "{}")], text="Hm."),
    tool_calls([("c1", "broken", '{"a": 1}'), ("", "nothing", "{oops")]),
    reasoning("so", "done"),
    error("overloaded", "OVERLOADED", chunks=text("So")[:2]),
    text("second try"),
    error("no more", "NO_MORE"),
    max_tokens("this is cut"),
    text("goes on"),
    text("on and on"),
    text("until it is stopped"),
    hang("half a"),
    tool_calls([("d1", "stop", "{}"), ("d2", "look", "{}"), ("d3", "look", "{}")]),
    text("other header"),
    text("compacted"),
    hang("and then"),
    # the next one
    tool_call("e1", "look", {"what": "again"}),
    text("resumed"),
)


def _policies(app: App, held: dict[str, Any]) -> None:
    """Decide as `held` says at the time."""

    async def submit(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        said = str(event.content)
        if "forbidden" in said:
            return BlockPrompt("not this one")
        if "fails" in said:
            raise NoRoom("no room for prompts")
        if "annotated" in said:
            return AllowPrompt(
                (TextBlock("rewritten"),), HookContext((TextBlock("seen"),), OtherSource("hm", {}))
            )
        return await next()

    async def request(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        config = await next()
        return LlmCallConfig(config.model, temperature=held["temperature"])

    async def again(
        event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        return Retry() if event.failure.code == "OVERLOADED" else await next()

    async def more(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        if held["more"]:
            return Continue(HookContext((TextBlock("go on"),), NOTE))
        return await next()

    for kind, listener in (
        (PromptSubmit, submit),
        (AgentRequest, request),
        (AgentRequestError, again),
        (TurnContinuation, more),
    ):
        app.ctx.on(kind, listener)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _preparations(app: App, held: dict[str, Any]) -> None:
    """Put something in front of the history, and fail when `held` says so."""

    async def prefix(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> Any:
        return (Message("user", (TextBlock("rules"),)), *await next())

    async def prepare(event: PreStep) -> None:
        if held["fails"]:
            raise NoRoom("no room for steps")

    app.ctx.on(SessionPrefix, prefix)
    app.ctx.on(PreStep, prepare)


async def _everything(recorder: Recorder) -> None:
    recorder.tool("look", concurrent=True, record="look closer")
    recorder.tool("act", inject="something happened", steer="be quick")
    recorder.tool("broken", raises="no such file")
    recorder.tool("stop", cancel="the tool said so", inject="too late")
    held: dict[str, Any] = {"fails": False, "more": False, "temperature": None}
    _policies(recorder.app, held)
    _preparations(recorder.app, held)
    async with recorder.agent(max_steps=3) as handle:
        await _first(recorder, handle, held)
    async with recorder.agent() as handle:
        agent = handle.agent
        await agent.ask("where were we?")
        agent.record(UnknownData("acme/note", {"text": "the end"}))
        await agent.when_idle()


async def _first(recorder: Recorder, handle: AgentHandle, held: dict[str, Any]) -> None:
    agent = handle.agent
    agent.inject("before anything", NOTE)
    prompts = [agent.send(said) for said in ("annotated", "forbidden", "hello")]
    await prompts[-1].done()
    await agent.ask("forbidden", check=False)
    await agent.ask("use your tools", OtherSource("acme", {"id": 3}), check=False)
    await agent.ask("an overloaded model")
    await agent.ask("a failing model", check=False)
    await agent.ask("this fails", check=False)
    await agent.ask("too long", check=False)
    held["more"] = True
    await agent.ask("a policy wants more", check=False)
    held["more"] = False
    await _cancel_when(recorder, agent, 12)
    agent.record(TodoWrite((TodoItem("rest", "completed"),)))
    await agent.ask("stop in a tool", check=False)
    held["fails"] = True
    await agent.ask("no step", check=False)
    held.update(fails=False, temperature=0.5)
    extra = recorder.app[SystemPrompt].section(recorder.app.ctx, "extra", 50, "And be brief.")
    recorder.tool("late")
    await agent.ask("other header")
    extra.dispose_nowait()
    held["temperature"] = None
    await agent.when_idle()
    _compact(agent.session)
    await agent.ask("compacted")
    agent.send("and good bye")
    await recorder.model.waiting(16)
    await handle.dispose()


async def _cancel_when(recorder: Recorder, agent: Agent, call: int) -> None:
    receipt = agent.send("wait")
    await recorder.model.waiting(call)
    agent.cancel("enough")
    await receipt.done()


def _compact(session: Session) -> None:
    """Write a whole turn that takes the beginning of the history away, as a plugin does."""
    nodes = session.surface.nodes
    session.append(TurnStart(session.last_turn + 1, OtherTrigger("acme-compact", {"tokens": 7})))
    session.append(UnknownData("acme-compact/note", {"why": "too long"}))
    summary = UserMessage((TextBlock("what was before"),), UserSource())
    session.append(summary, Replace(nodes[0], nodes[3]), nodes[:4])
    session.append(UserMessage((TextBlock("and more"),), UserSource()), APPEND)
    session.append(TurnEnd(session.last_turn, Completed()))


@pytest.fixture
async def everything() -> Sequence[SessionEvent]:
    """Return the log of a session in which everything happened."""
    async with _recorder(SCRIPT) as opened:
        await _everything(opened)
        opened.model.assert_consumed()
        return opened.log
