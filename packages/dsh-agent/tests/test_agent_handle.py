"""What every agent can do, whichever loop drives it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio.lowlevel
import pytest
from pydantic import BaseModel

from dsh.agent import (
    Agent,
    AgentDisposed,
    AgentFault,
    AgentOptions,
    AgentRegistry,
    AgentStatus,
    ContinuationDecision,
    Continue,
    Dropped,
    OutputInvalid,
    Prompt,
    Receipt,
    ReceiptBook,
    Stop,
    TurnFailed,
    blocks_of,
    turn_outcome,
)
from dsh.agent.events import TurnContinuation
from dsh.agent.testing import StubAgent, stub_agent
from dsh.core import App, Scope
from dsh.llm import Message, TextBlock, TokenUsage
from dsh.session import (
    APPEND,
    Aborted,
    AssistantMessage,
    Completed,
    Failed,
    LiveSessions,
    MessageSource,
    MessageTrigger,
    Session,
    SessionData,
    SessionEvent,
    SteeringMessage,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
    UserSource,
)
from dsh.session.testing import types_of


class TinyLoop(Agent):
    """A loop of its own kind: it answers from a list, one prompt a turn, when told to step."""

    def __init__(self, session: Session, replies: list[str]) -> None:
        super().__init__("tiny", session, AgentOptions())
        self.replies = replies
        self.waiting: list[tuple[Receipt, UserMessage]] = []
        self.book = ReceiptBook("tiny", session)
        self.ends: list[TurnEndReason] = []

    @property
    def status(self) -> AgentStatus:
        return "running" if self.waiting else "idle"

    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        receipt = self.book.issue()
        self.waiting.append((receipt, UserMessage(blocks_of(content), source or UserSource())))
        return receipt

    def steer(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        return self.send(content, source)

    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        raise AgentFault("no context here")

    def record(self, data: SessionData) -> SessionEvent:
        return self.session.append(data)

    def cancel(self, reason: str | None = None) -> None:
        self.book.drop([receipt for receipt, _ in self.waiting], reason or "cancelled")
        self.waiting.clear()

    async def when_idle(self) -> None:
        while self.waiting:
            await anyio.lowlevel.checkpoint()

    async def work(self) -> None:
        """Take every waiting prompt into a turn of its own."""
        while True:
            while self.waiting:
                await self.turn(*self.waiting.pop(0))
            await anyio.lowlevel.checkpoint()

    async def turn(self, receipt: Receipt, prompt: UserMessage) -> None:
        session, turn = self.session, self.session.last_turn + 1
        start = session.append(TurnStart(turn, MessageTrigger(prompt.source)))
        self.book.admit([receipt], turn, start.seq)
        session.append(prompt, APPEND)
        decision: ContinuationDecision = Continue()
        while isinstance(decision, Continue):
            step = session.last_step + 1
            session.append(StepStart(turn, step))
            reply = (TextBlock(self.replies.pop(0)),)
            session.append(AssistantMessage(turn, step, reply, TokenUsage(1, 2)), APPEND)
            await anyio.lowlevel.checkpoint()
            session.append(StepEnd(turn, step))
            decision = await self.ctx.waterfall(TurnContinuation(self, turn, Stop()), base)
            if isinstance(decision, Continue) and decision.reason is not None:
                reason = decision.reason
                steering = SteeringMessage(turn, reason.content, reason.source)
                session.append(steering, APPEND)
        end = self.ends.pop(0) if self.ends else Completed()
        session.append(TurnEnd(turn, end))
        self.book.settle()


async def base(event: TurnContinuation) -> ContinuationDecision:
    return event.default


@asynccontextmanager
async def tiny(*replies: str) -> AsyncGenerator[TinyLoop, None]:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(AgentRegistry).settled()
        session = app[LiveSessions].prepare()
        agent = TinyLoop(session, list(replies))
        scope = app.ctx.scope(agent)
        agent.bind(scope.ctx)
        app[LiveSessions].enter(scope.ctx, session)
        app.ctx.spawn(agent.work)
        yield agent


async def test_ask_waits_for_the_turn_and_reads_its_outcome_from_the_log() -> None:
    async with tiny("one", "two") as agent:
        first = await agent.ask("a")
        assert (first.turn, first.text, first.ok) == (1, "one", True)
        assert first.message == Message("assistant", (TextBlock("one"),))
        assert first.usage == TokenUsage(1, 2)
        assert first.error is None
        second = await agent.ask("b")
        assert (second.turn, second.text) == (2, "two")
        # an old receipt still tells about its own turn
        assert types_of(agent.session.events).count("turn/end") == 2


async def test_a_turn_that_fails_raises_unless_told_otherwise() -> None:
    async with tiny("half", "half") as agent:
        reason = Failed(1, "overloaded", "SERVER")
        agent.ends = [reason, reason]
        with pytest.raises(TurnFailed, match=r"turn 1 .*overloaded") as caught:
            await agent.ask("a")
        assert caught.value.code == "TURN_FAILED"
        assert caught.value.outcome.reason == reason
        outcome = await agent.ask("b", check=False)
        assert outcome.error == reason
        assert outcome.text == "half"
        assert not outcome.ok


async def test_receipts_follow_a_prompt_through_the_queue() -> None:
    async with tiny("one") as agent:
        receipt = agent.send("a")
        assert receipt.turn is None
        assert not receipt.settled
        with pytest.raises(RuntimeError):
            receipt.outcome()
        assert (await receipt.done()).text == "one"
        assert receipt.turn == 1
        assert receipt.settled
        assert receipt.outcome() == await receipt.done()
        dropped = agent.send("b")
        agent.cancel("never mind")
        outcome = await dropped.done()
        assert outcome.reason == Dropped("never mind")
        assert outcome.reason.kind == "dropped"
        assert outcome.turn is None
        closed = agent.send("c")
        agent.waiting.clear()
        agent.book.close()
        with pytest.raises(AgentDisposed, match="never run"):
            await closed.done()


class Point(BaseModel):
    x: int
    y: int


async def test_output_is_asked_for_and_corrected_by_any_loop() -> None:
    async with tiny("over there", '{"x": 1}', '{"x": 1, "y": 2}') as agent:
        assert await agent.ask("Where?", output=Point) == Point(x=1, y=2)
        prompt = agent.session.events[1].data
        assert isinstance(prompt, UserMessage)
        assert prompt.content[0] == TextBlock("Where?")
        assert '"required": ["x", "y"]' in str(prompt.content[1])
        instruction = prompt.content[1]
        assert isinstance(instruction, TextBlock)
        assert instruction.text.startswith("\n\nGive your final answer")
        corrections = [e.data for e in agent.session.events if isinstance(e.data, SteeringMessage)]
        assert "no JSON value" in str(corrections[0].content)
        assert "y: Field required" in str(corrections[1].content)


async def test_output_that_never_fits_says_what_was_wrong() -> None:
    async with tiny("a", "b", "c") as agent:
        with pytest.raises(OutputInvalid) as caught:
            await agent.ask("Where?", output={"type": "integer"}, retries=1)
        assert caught.value.violations == ("the answer holds no JSON value",)
        assert caught.value.outcome.text == "b"
        assert agent.replies == ["c"]


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ({"type": "strng"}, '#/type names no type: "strng"'),
        ({"items": {"$ref": "#/$defs/missing"}}, "#/items/$ref points at nothing"),
        ({"properties": {"a": {"pattern": "("}}}, "#/properties/a/pattern is no valid regular"),
        (Callable[[], int], "has no JSON Schema"),
    ],
)
async def test_a_bad_output_schema_is_refused_before_anything_is_sent(
    output: Any, place: str
) -> None:
    async with tiny("a") as agent:
        with pytest.raises(AgentFault) as caught:
            await agent.ask("Where?", output=output)
        assert caught.value.code == AgentFault.INVALID_SCHEMA
        assert place in str(caught.value)
        assert agent.replies == ["a"]
        assert not any(isinstance(e.data, UserMessage) for e in agent.session.events)


async def test_a_run_follows_one_turn() -> None:
    async with tiny("one", "two") as agent:
        async with agent.run("a") as run:
            kinds = [event.type async for event in run]
            assert (await run.done()).text == "one"
        assert kinds == types_of(agent.session.events)
        async with agent.run("b") as run:
            assert run.receipt is not None
            turns = {getattr(event.data, "turn", 2) async for event in run}
        assert turns == {2}


async def test_an_agent_has_one_context_and_says_when_it_has_none() -> None:
    agent = StubAgent("stub")
    with pytest.raises(AgentFault) as caught:
        _ = agent.ctx
    assert caught.value.code == "AGENT_IN_SETUP"
    async with App() as app:
        bound, scope = stub_agent(app.ctx)
        async with scope:
            assert bound.ctx is scope.ctx
            with pytest.raises(AgentFault):
                bound.bind(app.ctx)
        assert isinstance(scope, Scope)
        assert isinstance(bound.session, Session)


async def test_a_stub_takes_everything_down() -> None:
    async with App() as app:
        agent, scope = stub_agent(app.ctx, "stub")
        async with scope:
            agent.send("a")
            agent.steer("b")
            agent.inject("c")
            agent.cancel("d")
            await agent.when_idle()
            assert [said.verb for said in agent.said] == ["send", "steer", "inject"]
            assert agent.cancelled == ["d"]
            assert types_of(agent.session.events) == ["context/message"]
            assert agent.status == "idle"
            agent.mode = "running"
            assert "stub" in repr(agent)


async def test_the_outcome_of_a_turn_without_an_end_is_interrupted() -> None:
    session = Session("s")
    session.append(TurnStart(1, MessageTrigger(UserSource())))
    outcome = turn_outcome(session, 1)
    assert outcome.reason.kind == "interrupted"
    assert outcome.text == ""
    assert outcome.message is None
    assert outcome.usage is None
    session.append(TurnEnd(1, Aborted("x")))
    assert turn_outcome(session, 1).reason == Aborted("x")
