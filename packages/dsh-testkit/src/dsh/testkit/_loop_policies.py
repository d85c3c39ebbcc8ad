"""Loop contract: the decision events, and what becomes of bad decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from dsh.agent import (
    AllowPrompt,
    Blocked,
    BlockPrompt,
    ContinuationDecision,
    Continue,
    Dropped,
    HookContext,
    PromptDecision,
    RequestErrorDecision,
    Retry,
    Stop,
)
from dsh.agent.events import (
    AgentRequest,
    AgentRequestError,
    PreStep,
    PromptSubmit,
    SessionPrefix,
    StepResult,
    TurnContinuation,
    TurnStop,
)
from dsh.core import Event, Next
from dsh.llm import Message, TextBlock, ToolCallBlock, ToolResultBlock
from dsh.llm_replay import error, text, tool_call
from dsh.session import (
    AssistantMessage,
    Completed,
    Failed,
    PromptBlocked,
    Rejected,
    StepStart,
    ToolCall,
)
from dsh.session.events import SessionFlush
from dsh.session.testing import types_of
from dsh.testkit._loop_bench import (
    NOTE,
    LoopBench,
    cases_of,
    context_texts,
    of_type,
    steering_texts,
    user_prompts,
)
from dsh.testkit._trace import soon, tool_results, turn_reasons
from dsh.tools import Deny, PreToolDecision, ToolExecution, ToolPreExecute

__all__ = ["POLICIES"]

ASKED: Final[tuple[type[Event], ...]] = (
    PromptSubmit,
    SessionPrefix,
    AgentRequest,
    StepResult,
    TurnContinuation,
    PreStep,
    TurnStop,
)
"""Everything that a turn asks which goes well."""


def _says(value: object) -> Callable[..., Any]:
    """Return a waterfall listener that decides this."""

    async def listen(event: Event, next: Next[Any]) -> Any:
        return value

    return listen


def _reason(text: str) -> HookContext:
    return HookContext((TextBlock(text),), NOTE)


async def prompts_are_rewritten_and_annotated(bench: LoopBench) -> None:
    """An allowed prompt is logged as the policy left it, its context right behind it."""
    decision = AllowPrompt((TextBlock("rewritten"),), _reason("it is Monday"))
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        opened.on(PromptSubmit, _says(decision))
        await soon(agent.ask("original"))
        assert user_prompts(agent.session) == ["rewritten"]
        assert context_texts(agent.session) == ["it is Monday"]
        assert types_of(agent.session.events)[:3] == [
            "turn/start",
            "user/message",
            "context/message",
        ]
        assert "original" not in str(opened.requests[0].messages)


async def a_blocked_prompt_is_a_rejected_turn(bench: LoopBench) -> None:
    """A vetoed prompt is logged as blocked in a turn without a step, and its sender is told."""
    async with bench.open() as opened, opened.agent() as agent:
        opened.on(PromptSubmit, _says(BlockPrompt("not today")))
        outcome = await soon(agent.ask("please", check=False))
        assert outcome.reason == Blocked("not today")
        assert types_of(agent.session.events) == ["turn/start", "prompt/blocked", "turn/end"]
        assert turn_reasons(agent.session.events) == [Rejected("not today")]
        assert of_type(agent.session, PromptBlocked)[0].content == (TextBlock("please"),)


async def a_veto_concerns_one_prompt(bench: LoopBench) -> None:
    """Of two prompts sent at once, one blocked, the other one is answered."""

    async def decide(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        return BlockPrompt("no") if event.content == (TextBlock("bad"),) else await next()

    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        opened.on(PromptSubmit, decide)
        bad, good = agent.send("bad"), agent.send("good")
        assert (await soon(bad.done())).reason == Blocked("no")
        assert (await soon(good.done())).text == "ok"
        assert user_prompts(agent.session) == ["good"]
        assert len(of_type(agent.session, PromptBlocked)) == 1


async def a_reply_is_rewritten_before_it_counts(bench: LoopBench) -> None:
    """agent/step-result decides what is logged and which tools run."""

    async def rewrite(event: StepResult, next: Next[Message]) -> Message:
        message = await next()
        if event.step > 1:
            return message
        call = ToolCallBlock("added", "look", "{}")
        return replace(message, content=(TextBlock("Let me look."), call))

    async with bench.open([text("I guess"), text("ok")]) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            opened.on(StepResult, rewrite)
            assert (await soon(agent.ask("a"))).text == "ok"
            first = of_type(agent.session, AssistantMessage)[0]
            assert first.content[0] == TextBlock("Let me look.")
            assert [result.call_id for result in tool_results(agent.session.events)] == ["added"]
            assert "I guess" not in str(opened.requests[1].messages)


async def a_continuation_forces_another_step(bench: LoopBench) -> None:
    """Continue makes a step of the same turn, its reason is steering before the request."""

    async def more(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        first = event.agent.session.last_step == 1
        return Continue(_reason("go on")) if first else await next()

    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        opened.on(TurnContinuation, more)
        outcome = await soon(agent.ask("a"))
        assert (outcome.turn, outcome.text) == (1, "2")
        assert steering_texts(agent.session) == ["go on"]
        assert "go on" in str(opened.requests[1].messages)
        assert len(turn_reasons(agent.session.events)) == 1


async def a_continuation_may_end_the_turn(bench: LoopBench) -> None:
    """Stop ends a turn that called tools; its default says what the loop would have done."""
    defaults: list[ContinuationDecision] = []

    async def stop(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        defaults.append(event.default)
        return Stop()

    async with bench.open([tool_call("c1", "look"), text("next")]) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            opened.on(TurnContinuation, stop)
            assert (await soon(agent.ask("a"))).ok
            assert len(opened.requests) == 1
            assert (await soon(agent.ask("b"))).text == "next"
            assert [type(default) for default in defaults] == [Continue, Stop]


async def a_terminal_stop_discards_steering(bench: LoopBench) -> None:
    """After `Stop` of agent/turn-stop waiting steering is dropped; queued prompts still run."""

    async def stop(event: TurnStop) -> Stop | None:
        return Stop() if event.turn == 1 else None

    async with bench.open([tool_call("c1", "look"), text("second")]) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            opened.on(TurnStop, stop)
            dropped: list[Any] = []

            async def late(event: SessionFlush) -> None:
                if event.session.turn_open is not None:
                    return
                if not dropped:
                    dropped.append(agent.steer("revive it"))
                    dropped.append(agent.send("something else"))

            opened.on(SessionFlush, late)
            assert (await soon(agent.ask("a"))).ok
            steering, prompt = dropped
            assert isinstance((await soon(steering.done())).reason, Dropped)
            assert (await soon(prompt.done())).text == "second"
            assert user_prompts(agent.session) == ["a", "something else"]
            assert not steering_texts(agent.session)
            assert len(opened.requests) == 2


async def a_failed_request_may_be_made_again(bench: LoopBench) -> None:
    """agent/request-error comes once the step is closed; a retry is a new step of the turn."""
    seen: list[tuple[int | None, str | None, str]] = []

    async def again(
        event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        seen.append((event.agent.session.step_open, event.failure.code, event.config.model))
        return Retry()

    async with bench.open([error("busy", "OVERLOADED"), text("ok")]) as opened:
        async with opened.agent() as agent:
            opened.on(AgentRequestError, again)
            outcome = await soon(agent.ask("a"))
            assert (outcome.turn, outcome.text) == (1, "ok")
            assert seen == [(None, "OVERLOADED", "test/scripted")]
            assert [start.step for start in of_type(agent.session, StepStart)] == [1, 2]
        assert opened.errors == []


async def no_retry_without_a_policy(bench: LoopBench) -> None:
    """A request that fails ends the turn, with the failure's code, reported once."""
    script = [error("busy", "OVERLOADED"), text("ok")]
    async with bench.open(script) as opened, opened.agent() as agent:
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert (outcome.reason.step, outcome.reason.message) == (1, "busy")
        assert outcome.reason.code == "OVERLOADED"
        assert opened.reports == [(1, 1, "busy")]
        assert (await soon(agent.ask("b"))).ok


async def what_is_no_decision_fails_the_turn(bench: LoopBench) -> None:
    """A listener that returns something else than its event wants fails its turn, and no more."""
    for event in ASKED:
        async with bench.open(lambda request: text("ok")) as opened, opened.agent() as agent:

            async def junk(event: Event, next: object = None) -> object:
                return ["junk"]

            listener = opened.on(event, junk)
            outcome = await soon(agent.ask("a", check=False))
            assert isinstance(outcome.reason, Failed), event.event_name
            assert outcome.reason.code == "BAD_DECISION", event.event_name
            listener.dispose_nowait()
            assert (await soon(agent.ask("b"))).ok, event.event_name


async def a_raising_policy_fails_its_turn_only(bench: LoopBench) -> None:
    """What a listener raises ends the turn, is reported once, and the next turn is well."""
    for event in ASKED:
        async with bench.open(lambda request: text("ok")) as opened, opened.agent() as agent:

            async def broken(event: Event, next: object = None) -> Any:
                raise ValueError("broken")

            listener = opened.on(event, broken)
            outcome = await soon(agent.ask("a", check=False))
            assert isinstance(outcome.reason, Failed), event.event_name
            assert outcome.reason.message == "broken", event.event_name
            assert len(opened.errors) == 1, event.event_name
            listener.dispose_nowait()
            assert (await soon(agent.ask("b"))).ok, event.event_name


async def what_policies_add_is_checked(bench: LoopBench) -> None:
    """Context with blocks that are the loop's own stays out of the log."""
    poison = HookContext((ToolResultBlock("c9", (TextBlock("x"),)),), NOTE)
    async with bench.open(lambda request: text("ok")) as opened, opened.agent() as agent:
        opened.on(PromptSubmit, _says(AllowPrompt(additional_context=poison)))
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "BAD_CONTENT"
        assert not context_texts(agent.session)


async def a_gate_keeps_a_tool_from_running(bench: LoopBench) -> None:
    """A denied call is logged and answered with the reason; its body does not run."""
    ran: list[str] = []

    async def erase(execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        return "gone"

    async def gate(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        return Deny("not allowed here")

    async with bench.open([tool_call("c1", "erase"), text("ok")]) as opened:
        opened.tool("erase", erase)
        opened.on(ToolPreExecute, gate)
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).reason == Completed()
            (result,) = tool_results(agent.session.events)
            assert result.is_error
            assert "not allowed here" in str(result.content)
            assert len(of_type(agent.session, ToolCall)) == 1
            assert ran == []


async def listeners_of_an_agent_hear_their_agent_alone(bench: LoopBench) -> None:
    """A policy registered through `agent.ctx` decides for that agent and no other."""
    async with (
        bench.open(lambda request: text("ok")) as opened,
        opened.agent() as one,
        opened.agent() as other,
    ):
        one.ctx.on(PromptSubmit, _says(BlockPrompt("not this one")))
        assert isinstance((await soon(one.ask("a", check=False))).reason, Blocked)
        assert (await soon(other.ask("a"))).ok


POLICIES = cases_of(
    prompts_are_rewritten_and_annotated,
    a_blocked_prompt_is_a_rejected_turn,
    a_veto_concerns_one_prompt,
    a_reply_is_rewritten_before_it_counts,
    a_continuation_forces_another_step,
    a_continuation_may_end_the_turn,
    a_terminal_stop_discards_steering,
    a_failed_request_may_be_made_again,
    no_retry_without_a_policy,
    what_is_no_decision_fails_the_turn,
    a_raising_policy_fails_its_turn_only,
    what_policies_add_is_checked,
    a_gate_keeps_a_tool_from_running,
    listeners_of_an_agent_hear_their_agent_alone,
)
"""The cases of this subject."""
