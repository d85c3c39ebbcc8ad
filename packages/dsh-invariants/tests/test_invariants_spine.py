"""The checks of requests, streams, prompts, tools, agents and scopes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dsh.agent import Agent, AgentRegistry
from dsh.agent.events import AgentCreated, AgentSessionStart, AgentStatusChanged
from dsh.agent.testing import StubAgent, stub_agent
from dsh.core import App, Context, Emit, Event, Next, NextStream
from dsh.invariants import InvariantError, Invariants, Reporter
from dsh.invariants._scopes import check_dispatch
from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmAdapter,
    LlmCallConfig,
    LlmRequest,
    LlmService,
    Message,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolSchema,
    UsageChunk,
)
from dsh.llm.events import AdaptersUpdated, LlmStream
from dsh.session import (
    APPEND,
    HeaderRecord,
    LiveSessions,
    MessageTrigger,
    RequestHeader,
    Session,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
    record_request_header,
)
from dsh.session import Completed as TurnCompleted
from dsh.system_prompt import (
    AssembleContext,
    AssembledSection,
    PromptAssembly,
    SystemPrompt,
)
from dsh.system_prompt.events import SystemPromptAssemble
from dsh.tools import (
    Allow,
    Tool,
    ToolExecution,
    ToolExecutionResult,
    ToolRegistry,
)
from dsh.tools.events import ToolExecute, ToolFinished, ToolPostExecute, ToolPreExecute
from dsh.tools.testing import call_tool

TRIGGER = MessageTrigger(UserSource())
STOP = Finish(FinishReason("stop"))


class Fixed(LlmAdapter):
    """Yields the chunks of a list."""

    def __init__(self, *chunks: StreamChunk, error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        for chunk in self.chunks:
            yield chunk
        if self.error is not None:
            raise self.error


@asynccontextmanager
async def open_app(*chunks: StreamChunk) -> AsyncGenerator[App, None]:
    async with App() as app:
        for plugin in (LiveSessions, LlmService, SystemPrompt, ToolRegistry, AgentRegistry):
            await app.mount(plugin).settled()
        await app.mount(Invariants, {"level": "full"}).settled()
        app[LlmService].register(app.ctx, Fixed(*(chunks or (STOP,))), "test", ["m"])
        yield app


async def drain(stream: AsyncGenerator[StreamChunk, None]) -> list[StreamChunk]:
    async with aclosing(stream):
        return [chunk async for chunk in stream]


# --- requests -----------------------------------------------------------------------------

TOOL = ToolSchema("t", "d", {"type": "object"})
PREFIX = (Message("user", (TextBlock("prefix"),)),)
HEADER = RequestHeader(LlmCallConfig("test/m", 0.5, 10, ("x",), None), "sys", (TOOL,), PREFIX)


def step_of(app: App) -> tuple[Session, LlmRequest]:
    """Return a session inside a step and the request that its log leads to."""
    session = app[LiveSessions].create(app.ctx, "s")
    session.append(TurnStart(1, TRIGGER))
    session.append(UserMessage((TextBlock("hi"),), UserSource()), APPEND)
    history = session.derive_messages()
    session.append(StepStart(1, 1))
    record_request_header(session, HeaderRecord(), HEADER)
    header = session.request_header()
    assert header is not None
    request = LlmRequest(
        model="test/m",
        messages=(*PREFIX, *history),
        system="sys",
        tools=header.tools,
        temperature=0.5,
        max_tokens=10,
        stop=("x",),
        session_id="s",
        loop=True,
    )
    return session, request


async def test_a_request_that_the_log_leads_to_passes() -> None:
    # case: V-03
    async with open_app() as app:
        _, request = step_of(app)
        assert await drain(app[LlmService].stream(request)) == [STOP]
        assert app[Invariants].violations == ()


DIVERGED: dict[str, dict[str, Any]] = {
    "model": {"model": "test/other"},
    "messages": {"messages": PREFIX},
    "system": {"system": "other"},
    "tools": {"tools": None},
    "temperature": {"temperature": 0.6},
    "max_tokens": {"max_tokens": None},
    "stop": {"stop": None},
    "reasoning_effort": {"reasoning_effort": "high"},
}


@pytest.mark.parametrize("field", DIVERGED)
async def test_a_request_that_differs_from_the_log_fails(field: str) -> None:
    # case: V-03
    async with open_app() as app:
        _, request = step_of(app)
        with pytest.raises(InvariantError, match=field) as caught:
            await drain(app[LlmService].stream(replace(request, **DIVERGED[field])))
        assert caught.value.package == "dsh-agent-loop"


async def test_what_was_logged_after_the_step_began_is_no_part_of_its_request() -> None:
    # case: V-03
    async with open_app() as app:
        session, request = step_of(app)
        session.append(UserMessage((TextBlock("late"),), UserSource()), APPEND)
        await drain(app[LlmService].stream(request))
        late = replace(request, messages=(*PREFIX, *session.derive_messages()))
        with pytest.raises(InvariantError, match="messages"):
            await drain(app[LlmService].stream(late))


async def test_messages_that_can_change_fail() -> None:
    # case: V-03
    async with open_app() as app:
        _, request = step_of(app)
        listed: Any = list(request.messages)
        with pytest.raises(InvariantError, match="can still change: messages"):
            await drain(app[LlmService].stream(replace(request, messages=listed)))
        with pytest.raises(InvariantError, match=r"can still change: tools\[0\].parameters"):
            await drain(app[LlmService].stream(replace(request, tools=(TOOL,))))


async def test_other_requests_are_not_looked_at() -> None:
    # case: V-03
    async with open_app() as app:
        _, request = step_of(app)
        own: Any = list(request.messages)
        for other in (
            replace(request, messages=own, loop=False),
            replace(request, messages=(), session_id="unknown"),
            LlmRequest("test/m", ()),
        ):
            assert await drain(app[LlmService].stream(other)) == [STOP]


async def test_a_request_outside_of_a_step_or_session_fails() -> None:
    # case: V-03
    async with open_app() as app:
        session, request = step_of(app)
        with pytest.raises(InvariantError, match="names no session"):
            await drain(app[LlmService].stream(replace(request, session_id=None)))
        session.append(StepEnd(1, 1))
        with pytest.raises(InvariantError, match="outside of a step"):
            await drain(app[LlmService].stream(request))
        bare = app[LiveSessions].create(app.ctx, "bare")
        bare.append(TurnStart(1, TRIGGER))
        bare.append(StepStart(1, 1))
        with pytest.raises(InvariantError, match="before its header"):
            await drain(app[LlmService].stream(replace(request, session_id="bare")))


async def test_a_listener_that_answers_itself_hides_nothing() -> None:
    # case: V-03
    async with App() as app:
        for plugin in (LiveSessions, LlmService, SystemPrompt, ToolRegistry, AgentRegistry):
            await app.mount(plugin).settled()

        async def answer(
            event: LlmStream, next: NextStream[StreamChunk]
        ) -> AsyncGenerator[StreamChunk, None]:
            yield STOP

        app.ctx.on(LlmStream, answer, prepend=True)
        await app.mount(Invariants, {"level": "full"}).settled()
        _, request = step_of(app)
        assert await drain(app[LlmService].stream(request)) == [STOP]
        with pytest.raises(InvariantError):
            await drain(app[LlmService].stream(replace(request, system=None)))


# --- streams ------------------------------------------------------------------------------

GRAMMAR: dict[str, tuple[StreamChunk, ...]] = {
    "after-finish": (STOP, STOP),
    "invalid-index": (BlockStart(-1, "text"), STOP),
    "repeated-start": (BlockStart(0, "text"), BlockStart(0, "text")),
    "delta-to-closed": (TextDelta(0, "x"),),
    "wrong-type": (BlockStart(0, "reasoning"), TextDelta(0, "x")),
    "end-mismatch": (BlockStart(0, "reasoning"), BlockEnd(0, TextBlock("x"))),
    "repeated-usage": (UsageChunk(TokenUsage(1, 1)), UsageChunk(TokenUsage(1, 1))),
    "open-at-success": (BlockStart(0, "text"), STOP),
}


async def serve(app: App, *chunks: StreamChunk) -> None:
    """Have the stream of any request be exactly these chunks, whatever the service makes of it."""

    async def answer(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        for chunk in chunks:
            yield chunk

    app.ctx.on(LlmStream, answer)


@pytest.mark.parametrize("rule", GRAMMAR)
async def test_a_stream_that_breaks_the_protocol_fails(rule: str) -> None:
    # case: LLM-22
    async with open_app() as app:
        await serve(app, *GRAMMAR[rule])
        with pytest.raises(InvariantError, match=rule) as caught:
            await drain(app[LlmService].stream(LlmRequest("test/m", ())))
        assert caught.value.package == "dsh-llm"


async def test_a_stream_must_finish_unless_it_raises() -> None:
    # case: LLM-22
    async with open_app() as app:
        await serve(app, BlockStart(0, "text"))
        with pytest.raises(InvariantError, match="missing-finish"):
            await drain(app[LlmService].stream(LlmRequest("test/m", ())))
    async with open_app() as app:

        async def broken(
            event: LlmStream, next: NextStream[StreamChunk]
        ) -> AsyncGenerator[StreamChunk, None]:
            yield BlockStart(0, "text")
            raise RuntimeError("listener")

        app.ctx.on(LlmStream, broken)
        with pytest.raises(RuntimeError, match="listener"):
            await drain(app[LlmService].stream(LlmRequest("test/m", ())))
        assert app[Invariants].violations == ()


async def test_a_stream_may_be_left_early() -> None:
    async with open_app(BlockStart(0, "text"), TextDelta(0, "x")) as app:
        async with aclosing(app[LlmService].stream(LlmRequest("test/m", ()))) as stream:
            async for _ in stream:
                break
        assert app[Invariants].violations == ()


async def test_the_model_registry_stays_readable() -> None:
    async with open_app() as app:
        llm = app[LlmService]
        effect = llm.register(app.ctx, Fixed(STOP), "more", ["n"])
        effect.replace(["o"])
        await effect.dispose()
        app.ctx.emit(AdaptersUpdated())
        assert app[Invariants].violations == ()


# --- prompts ------------------------------------------------------------------------------


def section(name: str, text: Any = "x") -> AssembledSection:
    return AssembledSection(name, 0, text)


PROMPTS: dict[str, PromptAssembly] = {
    "section has no name": PromptAssembly([section("")]),
    "section 'a' is there twice": PromptAssembly([section("a"), section("a")]),
    "text of section 'a'": PromptAssembly([section("a", None)]),
    "tool has no name": PromptAssembly(tools=[ToolSchema("", "d", {})]),
    "tool 't' is there twice": PromptAssembly(tools=[TOOL, TOOL]),
    "no name for a prompt variable": PromptAssembly(variables={"Upper": "x"}),
    "variable 'v' is no text": PromptAssembly(variables={"v": 5}),  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("token", PROMPTS)
async def test_a_broken_assembly_fails(token: str) -> None:
    async with open_app() as app:

        async def rewrite(
            event: SystemPromptAssemble, next: Next[PromptAssembly]
        ) -> PromptAssembly:
            return PROMPTS[token]

        app.ctx.on(SystemPromptAssemble, rewrite, prepend=True)
        mount = next(item for item in app.mounts if item.name == "invariants")
        await mount.restart()
        with pytest.raises(InvariantError, match=token) as caught:
            await app[SystemPrompt].assemble(AssembleContext())
        assert caught.value.package == "dsh-system-prompt"


async def test_an_assembly_for_an_agent_is_made_in_its_scope() -> None:
    # case: V-04
    async with open_app() as app:
        agent, scope = stub_agent(app.ctx)
        prompt = app[SystemPrompt]
        await prompt.assemble(AssembleContext.for_agent(agent))
        await prompt.assemble(AssembleContext(scope=agent))
        with pytest.raises(InvariantError, match="outside of that agent's scope") as caught:
            await prompt.assemble(AssembleContext(agent=agent))
        assert caught.value.package == "dsh-core"
        await scope.dispose()


# --- scopes -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unscoped(Emit, name="test-spine/unscoped"):
    """About nobody."""


@dataclass(frozen=True, slots=True)
class Scoped(Emit, name="test-spine/scoped", scope="agent"):
    """About an agent."""

    agent: Agent | None


@dataclass(frozen=True, slots=True)
class Deep(Emit, name="test-spine/deep", scope="session.owner"):
    """About a session's owner, if it has one."""

    session: Session


def fails(event: Event, key: object) -> bool:
    report = Reporter("dsh-core", "full", deque())
    try:
        check_dispatch(report, event, key, "emit")
    except InvariantError:
        return True
    return False


def test_a_dispatch_goes_out_under_the_key_of_its_subject() -> None:
    # case: NV-07
    # case: V-04
    one, two = StubAgent("one"), StubAgent("two")
    session = Session("s")
    assert not fails(Unscoped(), None)
    assert fails(Unscoped(), one)
    assert not fails(Scoped(one), one)
    assert fails(Scoped(one), two)
    assert fails(Scoped(one), None)
    assert fails(Scoped(None), None)
    assert not fails(Deep(session), None)
    assert fails(Deep(session), one)
    execution = ToolExecution("c", "t", {}, agent=one)
    assert not fails(ToolPreExecute(execution), one)
    assert fails(ToolPreExecute(execution), two)
    assert not fails(ToolPreExecute(ToolExecution("c", "t", {})), None)


async def test_every_dispatch_is_looked_at() -> None:
    # case: V-04
    async with open_app() as app:
        agent, scope = stub_agent(app.ctx)
        app.ctx.emit(Unscoped())
        app.ctx.emit(Scoped(agent))
        with pytest.raises(InvariantError, match="without its agent"):
            app.ctx.emit(Scoped(None))
        await scope.dispose()


# --- agents -------------------------------------------------------------------------------


async def test_a_status_never_repeats_and_disposed_is_the_last() -> None:
    async with open_app() as app:
        agent, other = StubAgent("one"), StubAgent("two")

        def become(subject: Agent, status: Any) -> None:
            app.ctx.emit(AgentStatusChanged(subject, status))

        become(agent, "running")
        with pytest.raises(InvariantError, match="running twice") as caught:
            become(agent, "running")
        assert caught.value.package == "dsh-agent"
        become(other, "running")
        become(agent, "idle")
        become(agent, "disposed")
        for status in ("idle", "disposed"):
            with pytest.raises(InvariantError, match="disposed"):
                become(agent, status)


async def enter(app: App, id: str) -> tuple[StubAgent, Context]:
    session = app[LiveSessions].create(app.ctx, f"{id}-session")
    agent = StubAgent(id, session)
    scope = app.ctx.scope(agent)
    agent.bind(scope.ctx)
    app[AgentRegistry].enter(scope.ctx, agent)
    return agent, scope.ctx


async def test_creation_registers_and_does_not_drive() -> None:
    async with open_app() as app:
        agent, ctx = await enter(app, "one")
        heard: list[str] = []

        def too_early(event: AgentCreated) -> None:
            heard.append("created")
            with pytest.raises(InvariantError, match="agent/session-start") as caught:
                agent.session.append(TurnStart(1, TRIGGER))
            assert caught.value.package == "dsh-agent"

        def in_time(event: AgentSessionStart) -> None:
            heard.append("start")
            agent.session.append(TurnStart(1, TRIGGER))
            agent.session.append(TurnEnd(1, TurnCompleted()))

        app.ctx.on(AgentCreated, too_early)
        app.ctx.on(AgentSessionStart, in_time)
        app[AgentRegistry].announce(agent)
        ctx.emit(AgentSessionStart(agent, "startup"))
        assert heard == ["created", "start"]
        assert agent.session.last_turn == 1


async def test_agents_from_before_are_exempt() -> None:
    # case: V-05
    async with open_app() as app:
        agent, _ = await enter(app, "one")
        mount = next(item for item in app.mounts if item.name == "invariants")
        await mount.dispose()
        app[AgentRegistry].announce(agent)
        await app.mount(Invariants, {"level": "full"}).settled()
        agent.session.append(TurnStart(1, TRIGGER))


# --- tools --------------------------------------------------------------------------------


def echo() -> Tool:
    async def run(arguments: Any, execution: ToolExecution) -> str:
        return "echo"

    return Tool("echo", "Say it again.", {"type": "object"}, run)


async def test_ordinary_calls_pass() -> None:
    async with open_app() as app:
        tools = app[ToolRegistry]
        tools.register(app.ctx, echo())
        for name in ("echo", "unknown"):
            await call_tool(tools, name)
        await call_tool(tools, "echo", "[1]", call_id="c2")
        tools.guard(app.ctx, lambda execution: "no")
        await call_tool(tools, "echo", call_id="c3")
        assert app[Invariants].violations == ()


async def emit_stages(ctx: Context, execution: ToolExecution, *stages: str) -> None:
    result = ToolExecutionResult(execution.call_id, ())

    async def base(event: Any) -> Any:
        return Allow() if isinstance(event, ToolPreExecute) else result

    for stage in stages:
        if stage == "pre":
            await ctx.waterfall(ToolPreExecute(execution), base)
        elif stage == "execute":
            await ctx.waterfall(ToolExecute(execution), base)
        elif stage == "post":
            await ctx.waterfall(ToolPostExecute(execution, result), base)
        else:
            ctx.emit(ToolFinished(execution, result))


@pytest.mark.parametrize(
    ("stages", "token"),
    [
        (("pre", "pre"), "twice"),
        (("execute",), "without pre-execute"),
        (("post",), "without pre-execute or execute"),
        (("pre", "execute", "result", "result"), "after its result"),
        (("pre", "result", "execute"), "after its result"),
    ],
    ids=["pre twice", "execute first", "post first", "result twice", "execute last"],
)
async def test_stages_out_of_order_fail(stages: tuple[str, ...], token: str) -> None:
    async with open_app() as app:
        execution = ToolExecution("c", "t", {})
        with pytest.raises(InvariantError, match=token) as caught:
            await emit_stages(app.ctx, execution, *stages)
        assert caught.value.package == "dsh-tools"


@pytest.mark.parametrize(
    ("call_id", "name", "result", "token"),
    [
        ("c", "", ToolExecutionResult("c", ()), "without a name"),
        ("", "t", ToolExecutionResult("", ()), "without an id"),
        ("c", "t", ToolExecutionResult("d", ()), "is for 'd'"),
        ("c", "t", ToolExecutionResult("c", (), meta={"a": 1}), "can still change"),
    ],
    ids=["name", "id", "other", "mutable"],
)
async def test_results_that_say_nothing_fail(
    call_id: str, name: str, result: ToolExecutionResult, token: str
) -> None:
    async with open_app() as app:
        with pytest.raises(InvariantError, match=token):
            app.ctx.emit(ToolFinished(ToolExecution(call_id, name, {}), result))


async def test_calls_under_way_at_a_reload_are_exempt() -> None:
    # case: V-05
    async with open_app() as app:
        agent, ctx = await enter(app, "one")
        app.ctx.emit(AgentSessionStart(agent, "startup"))
        agent.session.append(TurnStart(1, TRIGGER))
        execution = ToolExecution("c", "t", {}, agent=agent)
        await emit_stages(ctx, execution, "pre")
        mount = next(item for item in app.mounts if item.name == "invariants")
        await mount.restart()
        await emit_stages(ctx, execution, "execute", "post", "result")
        agent.session.append(TurnEnd(1, TurnCompleted()))
        with pytest.raises(InvariantError):
            await emit_stages(ctx, ToolExecution("d", "t", {}, agent=agent), "execute")
