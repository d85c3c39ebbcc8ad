"""Loop contract: what the verbs of the handle do, and what they promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio

from dsh.agent import AgentFault, Dropped, Receipt
from dsh.agent.events import AgentQueued, AgentStatusChanged
from dsh.core import NotJsonError
from dsh.llm import ContentBlock, TextBlock, ToolCallBlock, ToolResultBlock, UnknownBlock
from dsh.llm_replay import hang, text, tool_call
from dsh.session import (
    Aborted,
    Completed,
    InjectionTrigger,
    RecordTrigger,
    SteeringMessage,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
)
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import types_of
from dsh.testkit._loop_bench import (
    NOTE,
    LoopBench,
    cases_of,
    checkpoints,
    context_texts,
    of_type,
    steering_texts,
    user_prompts,
)
from dsh.testkit._trace import soon, turn_reasons
from dsh.tools import ToolExecution

__all__ = ["DRIVING"]


@dataclass(frozen=True, slots=True)
class City:
    """What an answer has to look like."""

    name: str
    people: int


async def idle_means_checkpointed(bench: LoopBench) -> None:
    """Status and checkpoint in their order: running, the flush of the closed turn, idle."""
    seen: list[str] = []

    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is not None:
            return
        await checkpoints()
        seen.append(event.session.events[-1].type)

    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        opened.on(SessionFlush, flush)
        opened.on(AgentStatusChanged, lambda event: seen.append(event.status))
        receipt = agent.send("a")
        assert agent.status == "idle", "a verb does not run anything itself"
        await soon(agent.when_idle())
        assert seen == ["running", "turn/end", "idle"]
        assert receipt.settled


async def receipts_follow_their_prompt(bench: LoopBench) -> None:
    """A receipt knows its turn from the moment that takes it in, and settles after the flush."""
    flushed: list[bool] = []

    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is not None:
            return
        flushed.append(receipt.settled)

    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        opened.on(SessionFlush, flush)
        receipt = agent.send("a")
        assert (receipt.turn, receipt.settled) == (None, False)
        outcome = await soon(receipt.done())
        assert (outcome.turn, receipt.turn, outcome.text) == (1, 1, "ok")
        assert isinstance(agent.session.events[receipt.start].data, TurnStart)
        assert flushed == [False]
        assert outcome.usage is not None


async def a_withdrawn_prompt_is_left_out(bench: LoopBench) -> None:
    """A prompt taken back before its turn is said nowhere, and touches no other."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        gone, stays = agent.send("gone"), agent.send("stays")
        assert gone.withdraw("changed my mind")
        assert (await soon(stays.done())).text == "ok"
        assert (await soon(gone.done())).reason == Dropped("changed my mind")
        assert user_prompts(agent.session) == ["stays"]
        assert not stays.withdraw()
        only = agent.send("only")
        assert only.withdraw()
        await soon(agent.when_idle())
        assert user_prompts(agent.session) == ["stays"]


async def steering_is_heard_between_two_steps(bench: LoopBench) -> None:
    """Steering of a running turn stands before the next request, makes one, and has its receipt."""
    receipts: list[Receipt] = []

    async def look(execution: ToolExecution) -> str:
        assert execution.agent is not None
        receipts.append(execution.agent.steer("hurry"))
        return "ok"

    async with bench.open([tool_call("c1", "look"), text("done")]) as opened:
        opened.tool("look", look)
        async with opened.agent() as agent:
            await soon(agent.ask("a"))
            assert steering_texts(agent.session) == ["hurry"]
            assert "hurry" in str(opened.requests[1].messages)
            assert (await soon(receipts[0].done())).turn == 1


async def steering_keeps_a_turn_going(bench: LoopBench) -> None:
    """What is said while the last reply streams is answered in the same turn."""
    steered = False

    async with bench.open([text("first"), text("second")]) as opened, opened.agent() as agent:

        def steer(event: SessionEventAppended) -> None:
            nonlocal steered
            if event.event.type == "assistant/chunk" and not steered:
                steered = True
                agent.steer("one more thing")

        opened.on(SessionEventAppended, steer)
        outcome = await soon(agent.ask("a"))
        assert (outcome.turn, outcome.text) == (1, "second")
        assert len(of_type(agent.session, SteeringMessage)) == 1


async def steering_that_comes_too_late_is_a_prompt(bench: LoopBench) -> None:
    """What is steered once the turn is closed opens the next turn, and nothing is lost."""
    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        late: list[Receipt] = []

        async def flush(event: SessionFlush) -> None:
            if event.session.turn_open is not None:
                return
            if not late:
                late.append(agent.steer("late"))

        opened.on(SessionFlush, flush)
        await soon(agent.ask("a"))
        outcome = await soon(late[0].done())
        assert (outcome.turn, outcome.text) == (2, "2")
        assert user_prompts(agent.session) == ["a", "late"]


async def steering_an_idle_agent_is_a_prompt(bench: LoopBench) -> None:
    """Without a turn to steer, `steer` does what `send` does."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        assert (await soon(agent.steer("hi").done())).text == "ok"
        assert user_prompts(agent.session) == ["hi"]


async def what_is_queued_is_announced(bench: LoopBench) -> None:
    """agent/queued tells content, source and whether it steers, for each prompt in its order."""
    seen: list[tuple[str, str, bool]] = []

    def listen(event: AgentQueued) -> None:
        seen.append((str(event.content[0]), event.source.kind, event.steering))

    async with bench.open(lambda request: text("ok")) as opened, opened.agent() as agent:
        opened.on(AgentQueued, listen)
        agent.send("a")
        agent.steer("b", NOTE)
        await soon(agent.when_idle())
        assert [kind for _, kind, _ in seen] == ["user", "plugin"]
        assert [steering for _, _, steering in seen] == [False, False]


async def a_prompt_sent_meanwhile_runs_without_a_rest(bench: LoopBench) -> None:
    """A prompt queued while a turn runs has the next one; the agent is not idle in between."""
    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        sent: list[Receipt] = []

        def send(event: SessionEventAppended) -> None:
            if event.event.type == "assistant/message" and not sent:
                sent.append(agent.send("next"))

        opened.on(SessionEventAppended, send)
        first = agent.send("a")
        assert (await soon(first.done())).text == "1"
        assert (await soon(sent[0].done())).text == "2"
        await soon(agent.when_idle())
        assert opened.traces[agent].statuses == ["running", "idle"]


async def idle_context_has_a_turn_of_its_own(bench: LoopBench) -> None:
    """Context for an idle agent is logged and checkpointed at once, without the model."""
    flushes: list[int] = []

    async def flush(event: SessionFlush) -> None:
        flushes.append(event.session.last_turn)

    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        opened.on(SessionFlush, flush)
        agent.inject("remember this", NOTE)
        assert types_of(agent.session.events) == ["turn/start", "context/message", "turn/end"]
        (start,) = of_type(agent.session, TurnStart)
        assert start.trigger == InjectionTrigger(NOTE)
        await soon(agent.when_idle())
        assert flushes == [1]
        assert (await soon(agent.ask("a"))).turn == 2
        assert "remember this" in str(opened.requests[0].messages)


async def context_joins_the_open_turn(bench: LoopBench) -> None:
    """Injected by an observer of the log, context is logged as soon as the log is free."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:

        def inject(event: SessionEventAppended) -> None:
            if event.event.type == "user/message":
                agent.inject("by the way", NOTE)

        opened.on(SessionEventAppended, inject)
        await soon(agent.ask("a"))
        assert types_of(agent.session.events)[:3] == [
            "turn/start",
            "user/message",
            "context/message",
        ]
        assert context_texts(agent.session) == ["by the way"]


async def records_join_a_turn_or_make_one(bench: LoopBench) -> None:
    """`record` logs in the open turn, or in one of its own; nothing that the model would read."""

    def note(value: Any) -> UnknownData:
        return UnknownData("loop-contract/note", {"value": value})

    async def mark(execution: ToolExecution) -> str:
        assert execution.agent is not None
        execution.agent.record(note("inside"))
        return "ok"

    async with bench.open([tool_call("c1", "mark"), text("ok")]) as opened:
        opened.tool("mark", mark)
        async with opened.agent() as agent:
            event = agent.record(note("outside"))
            assert agent.session.events[event.seq] is event
            await soon(agent.ask("a"))
            starts = of_type(agent.session, TurnStart)
            assert starts[0].trigger == RecordTrigger()
            notes = of_type(agent.session, UnknownData)
            assert [data.data["value"] for data in notes] == ["outside", "inside"]
            assert len(starts) == 2
            before = agent.session.seq
            _refused(lambda: agent.record(UserMessage((TextBlock("x"),), UserSource())))
            _refused(lambda: agent.record(note(float("nan"))))
            assert agent.session.seq == before


async def bad_content_is_refused_at_the_door(bench: LoopBench) -> None:
    """What no log can carry raises where it is said; nothing is logged and nothing queued."""
    bad: tuple[tuple[ContentBlock, ...], ...] = (
        (ToolCallBlock("c1", "look", "{}"),),
        (ToolResultBlock("c1", (TextBlock("x"),)),),
        (UnknownBlock("odd", {"n": float("nan")}),),
    )
    async with bench.open() as opened, opened.agent() as agent:
        for content in bad:
            for say in (agent.send, agent.steer, agent.inject):
                _refused(lambda say=say, content=content: say(content))
        await soon(agent.when_idle())
        assert len(agent.session.events) == 0
        assert agent.status == "idle"


async def content_is_copied_when_it_is_said(bench: LoopBench) -> None:
    """Changing a list of blocks later changes nothing."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        blocks: list[ContentBlock] = [TextBlock("as it was")]
        receipt = agent.send(blocks)
        blocks[0] = TextBlock("changed")
        await soon(receipt.done())
        assert user_prompts(agent.session) == ["as it was"]


async def answers_of_a_shape_are_corrected_in_the_turn(bench: LoopBench) -> None:
    """`ask(output=...)` needs nothing but the public events."""
    script = [text("Paris, I think"), text('{"name": "Paris", "people": 2100000}')]
    async with bench.open(script) as opened, opened.agent() as agent:
        city = await soon(agent.ask("Which city?", output=City))
        assert city == City(name="Paris", people=2100000)
        assert len(turn_reasons(agent.session.events)) == 1


async def a_run_yields_its_turn_live(bench: LoopBench) -> None:
    """`run` gives every event of the turn, from turn/start to turn/end."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        async with agent.run("hi") as run:
            seen = [event async for event in run]
        assert seen == list(agent.session.events)
        assert (await soon(run.done())).text == "ok"


async def leaving_a_run_cancels_its_turn(bench: LoopBench) -> None:
    """A block that is left early ends the turn and leaves an idle agent."""
    async with bench.open([hang("Hm"), text("ok")]) as opened, opened.agent() as agent:
        with anyio.fail_after(20):
            async with agent.run("hi") as run:
                async for event in run:
                    if event.type == "assistant/chunk":
                        break
        assert agent.status == "idle"
        (reason,) = turn_reasons(agent.session.events)
        assert isinstance(reason, Aborted)
        assert (await soon(agent.ask("and now?"))).reason == Completed()


def _refused(say: Any) -> None:
    caught: Exception | None = None
    try:
        say()
    except (AgentFault, NotJsonError) as error:
        caught = error
    assert caught is not None, "bad content was taken"
    if isinstance(caught, AgentFault):
        assert caught.code == AgentFault.BAD_CONTENT, caught


DRIVING = cases_of(
    idle_means_checkpointed,
    receipts_follow_their_prompt,
    a_withdrawn_prompt_is_left_out,
    steering_is_heard_between_two_steps,
    steering_keeps_a_turn_going,
    steering_that_comes_too_late_is_a_prompt,
    steering_an_idle_agent_is_a_prompt,
    what_is_queued_is_announced,
    a_prompt_sent_meanwhile_runs_without_a_rest,
    idle_context_has_a_turn_of_its_own,
    context_joins_the_open_turn,
    records_join_a_turn_or_make_one,
    bad_content_is_refused_at_the_door,
    content_is_copied_when_it_is_said,
    answers_of_a_shape_are_corrected_in_the_turn,
    a_run_yields_its_turn_live,
    leaving_a_run_cancels_its_turn,
)
"""The cases of this subject."""
