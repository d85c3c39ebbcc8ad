"""What a loop is made of, without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from dsh.agent import (
    AgentFault,
    AgentOptions,
    AllowPrompt,
    BlockPrompt,
    Continue,
    Dropped,
    HookContext,
    PromptDecision,
    Stop,
)
from dsh.agent.events import AgentRequest, PreStep, PromptSubmit, StepResult, TurnContinuation
from dsh.agent.loopkit import (
    CallIds,
    Checkpoints,
    Notes,
    Policies,
    ReceiptBook,
    Requests,
    checked_content,
    checked_prompt,
    context_message,
    failed,
    is_fatal,
    leaf_of,
    text_of_error,
    without_calls,
)
from dsh.agent.testing import StubAgent, stub_agent
from dsh.core import App, DshError, LifecycleDeadlock, Next, NotJsonError
from dsh.llm import (
    CancelSignal,
    LlmCallConfig,
    LlmService,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from dsh.session import (
    APPEND,
    AssistantMessage,
    ContextMessage,
    Failed,
    InjectionTrigger,
    LiveSessions,
    MessageTrigger,
    PluginSource,
    RecordTrigger,
    RequestHeaderSnapshot,
    Session,
    SessionData,
    SessionEvent,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
)
from dsh.session.events import SessionFlush
from dsh.session.testing import types_of

NOTE = PluginSource("note")
TEXT = (TextBlock("x"),)


@dataclass(frozen=True, slots=True)
class Marked(SessionData, type="test-loop-parts/marked"):
    """A log-only event."""

    data: Any


def note(text: str) -> ContextMessage:
    return ContextMessage((TextBlock(text),), NOTE)


def opened(session: Session) -> Session:
    session.append(TurnStart(session.last_turn + 1, MessageTrigger(UserSource())))
    return session


def test_blocks_of_the_loop_cannot_be_said() -> None:
    for block in (ToolCallBlock("c", "t", "{}"), ToolResultBlock("c", TEXT)):
        with pytest.raises(AgentFault) as caught:
            checked_content((block,), "prompt")
        assert caught.value.code == AgentFault.BAD_CONTENT
    blocks = [TextBlock("as it was")]
    taken = checked_content(blocks, "prompt")
    blocks.clear()
    assert taken == (TextBlock("as it was"),)
    with pytest.raises(AgentFault) as caught:
        context_message("no context")  # pyright: ignore[reportArgumentType]
    assert caught.value.code == AgentFault.BAD_DECISION


def test_context_gets_a_turn_of_its_own_or_joins_the_open_one() -> None:
    closed: list[tuple[int, Exception | None]] = []
    session = Session("s")
    notes = Notes(session, lambda turn, objection: closed.append((turn, objection)))
    notes.inject(note("alone"))
    assert types_of(session.events) == ["turn/start", "context/message", "turn/end"]
    start = session.events[0].data
    assert isinstance(start, TurnStart)
    assert start.trigger == InjectionTrigger(NOTE)
    assert closed == [(1, None)]
    opened(session)
    notes.inject(note("inside"))
    assert types_of(session.events)[-2:] == ["turn/start", "context/message"]
    assert closed == [(1, None)]


def test_held_back_context_comes_in_its_order() -> None:
    session = opened(Session("s"))
    notes = Notes(session, lambda turn, objection: None)
    notes.hold()
    notes.inject(note("first"))
    notes.park(note("second"))
    assert types_of(session.events) == ["turn/start"]
    notes.release()
    assert [event.data for event in session.events][1:] == [note("first"), note("second")]


async def test_one_refused_context_does_not_keep_the_others_out() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = opened(app[LiveSessions].create(app.ctx, "s"))
        notes = Notes(session, lambda turn, objection: None)

        def check(session: Session, event: SessionEvent) -> None:
            if event.data == note("bad"):
                raise ValueError("no")

        app[LiveSessions].validator(app.ctx, check)
        notes.hold()
        for text in ("bad", "good"):
            notes.inject(note(text))
        with pytest.raises(ValueError, match="no"):
            notes.release()
        assert session.events[-1].data == note("good")


def test_records_are_log_only_and_checked_first() -> None:
    session = Session("s")
    notes = Notes(session, lambda turn, objection: None)
    with pytest.raises(AgentFault) as caught:
        notes.record(UserMessage(TEXT, UserSource()))
    assert caught.value.code == AgentFault.BAD_CONTENT
    with pytest.raises(NotJsonError):
        notes.record(Marked(float("nan")))
    assert len(session.events) == 0
    assert notes.record(Marked([1])).seq == 1
    start = session.events[0].data
    assert isinstance(start, TurnStart)
    assert start.trigger == RecordTrigger()


async def test_an_objection_to_the_end_of_a_note_is_told() -> None:
    told: list[tuple[int, str]] = []
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx, "s")
        notes = Notes(session, lambda turn, objection: told.append((turn, str(objection))))

        def check(session: Session, event: SessionEvent) -> None:
            if isinstance(event.data, TurnEnd):
                raise ValueError("never end")

        app[LiveSessions].validator(app.ctx, check)
        notes.inject(note("x"))
        assert told == [(1, "never end")]
        assert session.turn_open is None


async def test_decisions_are_asked_for_with_their_defaults() -> None:
    async with App() as app:
        agent, scope = stub_agent(app.ctx)
        policies = Policies(app.ctx, agent)
        assert await policies.prompt(TEXT, NOTE) == AllowPrompt()
        assert await policies.prefix(CancelSignal()) == ()
        assert await policies.goes_on(1, True) == Continue()
        assert await policies.goes_on(1, False) == Stop()
        assert not await policies.stops_for_good(1)
        reply = Message("assistant", TEXT)
        assert await policies.reply(StepResult(agent, 1, 1, reply)) is reply
        wanted = LlmCallConfig("a/b")
        assert await policies.config(AgentRequest(agent, 1, 1, wanted)) is wanted
        with pytest.raises(AgentFault) as caught:
            await policies.config(AgentRequest(agent, 1, 1, LlmCallConfig("")))
        assert caught.value.code == AgentFault.NO_MODEL
        await scope.dispose()


async def test_decisions_are_checked_and_detached() -> None:
    async with App() as app:
        agent, scope = stub_agent(app.ctx)
        policies = Policies(app.ctx, agent)
        said: list[object] = [BlockPrompt("no")]

        async def decide(event: PromptSubmit, next: Next[PromptDecision]) -> Any:
            return said[0]

        async def go_on(event: TurnContinuation, next: Next[Any]) -> Any:
            return said[0]

        async def wrong(event: object, next: Next[Any]) -> Any:
            return 5

        agent.ctx.on(PromptSubmit, decide)
        agent.ctx.on(TurnContinuation, go_on)
        assert await policies.prompt(TEXT, NOTE) == BlockPrompt("no")
        poison = HookContext((ToolResultBlock("c", TEXT),), NOTE)
        for decision, code in (
            ("allow", AgentFault.BAD_DECISION),
            (AllowPrompt((ToolCallBlock("c", "t", "{}"),)), AgentFault.BAD_CONTENT),
            (AllowPrompt(additional_context=poison), AgentFault.BAD_CONTENT),
        ):
            said[0] = decision
            with pytest.raises(AgentFault) as caught:
                await policies.prompt(TEXT, NOTE)
            assert caught.value.code == code
        said[0] = "on"
        with pytest.raises(AgentFault, match=f"{TurnContinuation.event_name} returned 'on'"):
            await policies.goes_on(1, False)

        async def five(event: object) -> Any:
            return 5

        agent.ctx.on(PreStep, five)
        with pytest.raises(AgentFault, match=f"{PreStep.event_name} returned 5, not nothing"):
            await policies.pre_step(PreStep(agent, 1, 1, "", (), CancelSignal()))
        agent.ctx.on(AgentRequest, wrong)
        agent.ctx.on(StepResult, wrong)
        with pytest.raises(AgentFault, match=f"{AgentRequest.event_name} returned 5, not an Llm"):
            await policies.config(AgentRequest(agent, 1, 1, LlmCallConfig("a/b")))
        with pytest.raises(AgentFault, match=f"{StepResult.event_name} returned 5, not an assis"):
            await policies.reply(StepResult(agent, 1, 1, Message("assistant", TEXT)))
        said[0] = Continue(poison)
        with pytest.raises(AgentFault) as caught:
            await policies.goes_on(1, False)
        assert caught.value.code == AgentFault.BAD_CONTENT
        await scope.dispose()


def test_calls_get_ids_and_names_that_can_be_answered() -> None:
    session = opened(Session("s"))
    session.append(StepStart(1, 1))
    session.append(AssistantMessage(1, 1, (ToolCallBlock("used", "t", "{}"),)), APPEND)
    ids = CallIds(session)
    names = ("t", "functions.t", " ", "x" * 70)
    calls = tuple(ToolCallBlock("used", name, "{}") for name in names)
    mended = ids.mend(Message("assistant", calls), 1, 2)
    blocks = [block for block in mended.content if isinstance(block, ToolCallBlock)]
    assert [block.id for block in blocks] == [f"call_1_2_{index}" for index in range(4)]
    assert [block.name for block in blocks] == ["t", "functions_t", "unknown_tool", "x" * 64]
    fine = Message("assistant", (ToolCallBlock("fresh", "t", "{}"),))
    assert ids.mend(fine, 1, 3) is fine
    (again,) = ids.mend(fine, 1, 4).content
    assert again == ToolCallBlock("call_1_4_0", "t", "{}")
    assert without_calls(Message("assistant", (*TEXT, *calls))).content == TEXT


def test_a_new_id_is_free_even_where_the_model_has_used_its_form() -> None:
    session = Session("s", enclosed=False)
    ids = CallIds(session)
    taken = tuple(ToolCallBlock(f"call_1_2_{number}", "t", "{}") for number in ("0", "0_2"))
    ids.mend(Message("assistant", taken), 1, 1)
    (block,) = ids.mend(Message("assistant", (ToolCallBlock("", "t", "{}"),)), 1, 2).content
    assert isinstance(block, ToolCallBlock)
    assert block.id == "call_1_2_0_3"


async def test_requests_are_built_from_the_log_and_remember_the_choice() -> None:
    async with App() as app:
        await app.mount(LlmService).settled()
        await app.mount(LiveSessions).settled()
        options = AgentOptions(model="a/b", temperature=0.5)
        session = app[LiveSessions].create(app.ctx, "s")
        agent = StubAgent("a", opened(session), options)
        flushed: list[str] = []

        async def flush(event: SessionFlush) -> None:
            flushed.append(event.session.events[-1].type)

        app.ctx.on(SessionFlush, flush)
        agent.session.append(StepStart(1, 1))
        requests = Requests(agent, Checkpoints(app[LiveSessions], agent.session))
        assert requests.seed() == LlmCallConfig("a/b", temperature=0.5)
        front = Message("user", (TextBlock("rules"),))
        history = (Message("user", TEXT),)
        signal = CancelSignal()
        call = await requests.build(
            app[LlmService],
            LlmCallConfig("c/d", max_tokens=7, reasoning_effort="high"),
            system="You are brief.",
            tools=(),
            prefix=(front,),
            history=history,
            signal=signal,
        )
        header = agent.session.events[-1].data
        assert isinstance(header, RequestHeaderSnapshot)
        assert (header.header.system, header.header.tools) == ("You are brief.", None)
        assert call.request.messages == (front, *history)
        assert (call.request.model, call.request.loop) == ("c/d", True)
        assert call.request.signal is signal
        assert call.prepared is None, "nobody serves the model"
        assert flushed == ["request/header"]
        assert requests.seed() == LlmCallConfig("c/d", max_tokens=7, reasoning_effort="high")


class Tagged(DshError):
    code = "TAGGED"
    failure = "no failure of a model"


class Full(DshError):
    code = "DISK_FULL"


class Waiting:
    """A call whose body has not begun."""

    def __init__(self, *, refused: bool = False) -> None:
        self.refused = refused
        self.given_up: list[tuple[str, str]] = []

    def abandon(self, message: str, code: str, *, notify: bool = True) -> None:
        assert not notify
        self.given_up.append((message, code))


async def test_a_checkpoint_that_fails_gives_up_the_calls_that_wait() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx, "s")
        points = Checkpoints(app[LiveSessions], session)
        signal = CancelSignal()
        flushes: list[Exception | None] = []
        failures: list[Exception | None] = [Full("no room left"), OSError("no device"), None]

        async def flush(event: SessionFlush) -> None:
            flushes.append(failures.pop(0))
            if flushes[-1] is not None:
                raise flushes[-1]

        app.ctx.on(SessionFlush, flush)
        denied = Waiting(refused=True)
        await points.before_tools([denied], signal)
        assert flushes == []
        for code in ("DISK_FULL", "UNKNOWN"):
            calls = (Waiting(), denied, Waiting())
            await points.before_tools(calls, signal)
            assert [[each[1] for each in call.given_up] for call in calls] == [[code], [], [code]]
            assert str(flushes[-1]) in calls[0].given_up[0][0]
        fine = Waiting()
        await points.before_tools([fine], signal)
        assert fine.given_up == []
        assert len(flushes) == 3
        signal.abort()
        await points.before_tools([fine], signal)
        assert len(flushes) == 3, "nothing is waited for once the signal has fired"


async def test_a_checkpoint_is_left_when_the_signal_fires() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx, "s")
        signal = CancelSignal()

        async def hang(event: SessionFlush) -> None:
            signal.abort("enough")
            await anyio.sleep_forever()

        app.ctx.on(SessionFlush, hang)
        with anyio.fail_after(5):
            await Checkpoints(app[LiveSessions], session).reach(signal)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_whatever_is_raised_becomes_a_reason() -> None:
    group = ExceptionGroup("many", [DshError("first", code="FIRST"), OSError("second")])
    leaf = leaf_of(group)
    assert leaf.__cause__ is group
    assert failed(leaf, 2) == Failed(2, "first", "FIRST")
    assert failed(Tagged("odd"), 2) == Failed(2, "odd", "TAGGED")
    assert text_of_error(Mute()) == "Mute (its message cannot be read)"
    assert text_of_error(ValueError()) == "ValueError"
    odd = leaf_of(BaseException("odd"))
    assert failed(odd, 0) == Failed(0, "odd", "UNKNOWN")
    assert is_fatal(BaseExceptionGroup("g", [KeyboardInterrupt()]))
    assert not is_fatal(group)


def test_a_prompt_has_a_block() -> None:
    assert checked_prompt("x") == (TextBlock("x"),)
    assert checked_content([], "context") == ()
    with pytest.raises(AgentFault) as caught:
        checked_prompt([])
    assert caught.value.code == AgentFault.BAD_CONTENT


async def test_a_receipt_refuses_only_a_wait_that_could_not_end() -> None:
    def refuse() -> None:
        raise LifecycleDeadlock(["a", "a"], hint="do not wait")

    book = ReceiptBook("a", Session("s"), refuse)
    receipt = book.issue()
    for wait in (receipt.settle, receipt.done):
        with pytest.raises(LifecycleDeadlock) as caught:
            await wait()
        assert caught.value.hint == "do not wait"
    book.drop([receipt], "no")
    assert (await receipt.done()).reason == Dropped("no")
