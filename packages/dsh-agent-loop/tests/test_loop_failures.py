"""Failures of a turn: reported once, contained, and the log stays balanced."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.agent import ContinuationDecision, Dropped, open_agent
from dsh.agent.events import (
    AgentError,
    AgentStatusChanged,
    PreStep,
    StepResult,
    TurnContinuation,
)
from dsh.agent_loop import AgentLoop
from dsh.core import App, DshError, JsonObject, Next
from dsh.llm import LlmFailure, Message, TextBlock
from dsh.llm_replay import ScriptedAdapter, error, hang, opening, text, throw, tool_call
from dsh.session import (
    Aborted,
    AssistantMessage,
    Completed,
    ContextMessage,
    Failed,
    LiveSessions,
    Session,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import assert_balanced, types_of, user_texts
from dsh.testkit import assert_paired, soon, turn_numbers, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import Tool, ToolExecution, ToolRegistry

MODEL = "test/scripted"


async def run_a(arguments: JsonObject, execution: ToolExecution) -> str:
    return "ran"


TOOL = Tool("a", "A.", {"type": "object"}, run_a)


def errors_of(app: App) -> list[tuple[int, int, str]]:
    """Take down every reported error."""
    errors: list[tuple[int, int, str]] = []

    def listen(event: AgentError) -> None:
        errors.append((event.turn, event.step, str(event.error)))

    app.ctx.on(AgentError, listen)
    return errors


def observer_that_raises(app: App, kind: type) -> None:
    """Break the observation of one event type."""

    def broken(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, kind):
            raise RuntimeError(f"observer of {kind.__name__} is broken")

    app.ctx.on(SessionEventAppended, broken)


def validator_that_raises(app: App, kind: type, times: int = 1) -> None:
    """Refuse the first events of one type."""
    left = times

    def refuse(session: Session, event: SessionEvent) -> None:
        nonlocal left
        if isinstance(event.data, kind) and left > 0:
            left -= 1
            raise RuntimeError(f"no {event.type}")

    app[LiveSessions].validator(app.ctx, refuse)


# case: core F-01
@pytest.mark.parametrize(
    ("entry", "message", "code"),
    [
        (error("overloaded", "SERVER"), "overloaded", "SERVER"),
        (throw("cut", "TRANSPORT"), "cut", "TRANSPORT"),
        (throw("odd", ""), "odd", None),
    ],
)
async def test_a_failed_stream_is_a_failed_turn(entry: Any, message: str, code: str | None) -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([entry, text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert (outcome.reason.step, outcome.reason.message) == (1, message)
        if code is not None:
            assert outcome.reason.code == code
        assert not [e for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        last = [e.data for e in agent.session.events if e.type == "assistant/chunk"][-1]
        assert getattr(getattr(last, "chunk", None), "type", None) == "finish"
        assert (await soon(agent.ask("b"))).ok


# case: core F-01
async def test_an_aborted_finish_without_a_cancel_is_an_error() -> None:
    from dsh.llm import Finish, FinishReason

    chunks = (*opening("half"), Finish(FinishReason("aborted", "the provider gave up")))
    async with (
        loop_app(AgentLoop, ScriptedAdapter([chunks])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "ABORTED"


async def test_the_facts_of_a_failed_request_reach_the_log() -> None:
    facts = LlmFailure(status=429, retry_after_ms=2000.0, request_id="r-1")
    async with (
        loop_app(
            AgentLoop, ScriptedAdapter([error("slow down", "RATE_LIMIT", failure=facts)])
        ) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        outcome = await soon(agent.ask("a", check=False))
        assert outcome.reason == Failed(1, "slow down", "RATE_LIMIT", facts)
        assert outcome.error == outcome.reason


# case: core F-02
# case: core F-03
# case: core F-04
# case: core F-05
# case: core F-06
@pytest.mark.parametrize("kind", [TurnStart, UserMessage, StepStart, ToolResult, StepEnd, TurnEnd])
async def test_a_raising_observer_changes_nothing(kind: type) -> None:
    adapter = ScriptedAdapter([tool_call("c1", "a"), text("ok"), text("again")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        errors = errors_of(app)
        app[ToolRegistry].register(app.ctx, TOOL)
        observer_that_raises(app, kind)
        assert (await soon(agent.ask("a"))).text == "ok"
        assert (await soon(agent.ask("b"))).text == "again"
        assert turn_reasons(agent.session.events) == [Completed(), Completed()]
        assert errors == []
        assert_balanced(agent.session.events)


# case: core F-02
async def test_a_refused_step_start_fails_the_turn_without_a_step() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        errors = errors_of(app)
        validator_that_raises(app, StepStart)
        await soon(agent.ask("a", check=False))
        assert types_of(agent.session.events) == ["turn/start", "user/message", "turn/end"]
        assert turn_reasons(agent.session.events) == [Failed(1, "no step/start")]
        assert errors == [(1, 1, "no step/start")]
        assert (await soon(agent.ask("b"))).ok
        assert_balanced(agent.session.events)


# case: core F-03
async def test_a_refused_turn_start_loses_its_batch_and_no_more() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        errors = errors_of(app)
        validator_that_raises(app, TurnStart)
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Dropped)
        assert len(agent.session.events) == 0
        assert errors == [(1, 0, "no turn/start")]
        assert (await soon(agent.ask("b"))).turn == 1


# case: core F-05
async def test_an_objection_while_a_cancelled_step_is_closed_leaves_the_cancel_its_say() -> None:
    adapter = ScriptedAdapter([hang("Hm")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        validator_that_raises(app, StepEnd)
        errors = errors_of(app)
        receipt = agent.send("a")
        await soon(adapter.waiting())
        agent.cancel("enough")
        assert (await soon(receipt.done())).reason == Aborted("enough")
        assert errors == [(1, 1, "no step/end")]
        assert_balanced(agent.session.events)


# case: core F-04
async def test_an_objection_to_step_end_fails_a_good_step_and_ends_the_turn() -> None:
    adapter = ScriptedAdapter([tool_call("c1", "a"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        errors = errors_of(app)
        app[ToolRegistry].register(app.ctx, TOOL)
        validator_that_raises(app, StepEnd)
        await soon(agent.ask("a", check=False))
        assert turn_reasons(agent.session.events) == [Failed(1, "no step/end")]
        assert types_of(agent.session.events).count("step/start") == 1
        assert types_of(agent.session.events)[-2:] == ["step/end", "turn/end"]
        assert errors == [(1, 1, "no step/end")]
        assert_paired(agent.session.derive_messages())
        assert (await soon(agent.ask("b"))).ok


# case: core F-05
async def test_an_objection_while_a_failure_is_closed_keeps_the_order() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([error("first")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        errors = errors_of(app)
        validator_that_raises(app, StepEnd)
        await soon(agent.ask("a", check=False))
        assert types_of(agent.session.events)[-2:] == ["step/end", "turn/end"]
        assert len(errors) == 1
        assert_balanced(agent.session.events)


# case: core F-06
async def test_an_objection_to_turn_end_is_contained() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("1"), text("2")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        errors = errors_of(app)
        validator_that_raises(app, TurnEnd)
        await soon(agent.ask("a", check=False))
        await soon(agent.ask("b"))
        assert errors == [(1, 1, "no turn/end")]
        assert turn_numbers(agent.session.events) == [1, 2]
        assert_balanced(agent.session.events)


@pytest.mark.parametrize("kind", [UserMessage, AssistantMessage, ToolResult])
async def test_a_refused_event_of_a_turn_fails_it_and_stays_out(kind: type) -> None:
    adapter = ScriptedAdapter([tool_call("c1", "a"), text("ok"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        errors = errors_of(app)
        app[ToolRegistry].register(app.ctx, TOOL)
        validator_that_raises(app, kind)
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert len(errors) == 1
        assert_balanced(agent.session.events)
        assert_paired(agent.session.derive_messages())
        if kind is ToolResult:
            results = [e.data for e in agent.session.events if isinstance(e.data, ToolResult)]
            assert [r.synthetic for r in results] == [True]
        else:
            assert not [e for e in agent.session.events if isinstance(e.data, kind)]


# case: core F-07
async def test_a_raising_error_listener_is_contained() -> None:
    def broken(event: AgentError) -> None:
        raise ValueError("no")

    async with (
        loop_app(AgentLoop, ScriptedAdapter([error(), text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(AgentError, broken)
        await soon(agent.ask("a", check=False))
        assert (await soon(agent.ask("b"))).ok
        assert_balanced(agent.session.events)


# case: core F-08
async def test_raising_continuation_and_pre_step_listeners_fail_their_turn() -> None:
    async def continuation(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        raise ValueError("continuation is down")

    async def pre_step(event: PreStep) -> None:
        raise ValueError("pre-step is down")

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("1"), text("2")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        first = app.ctx.on(TurnContinuation, continuation)
        await soon(agent.ask("a", check=False))
        first.dispose_nowait()
        second = app.ctx.on(PreStep, pre_step)
        await soon(agent.ask("b", check=False))
        second.dispose_nowait()
        assert (await soon(agent.ask("c"))).ok
        assert turn_reasons(agent.session.events) == [
            Failed(1, "continuation is down"),
            Failed(1, "pre-step is down"),
            Completed(),
        ]
        kinds = types_of(agent.session.events)
        middle = kinds[kinds.index("turn/end") + 1 :]
        assert middle[: middle.index("turn/end")] == ["turn/start", "user/message"]


# case: core F-08
async def test_a_pre_step_listener_that_returns_something_fails_the_turn() -> None:
    async def odd(event: PreStep) -> None:
        return 1  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PreStep, odd)
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "BAD_DECISION"


# case: core F-09
async def test_a_failing_checkpoint_is_reported_and_nothing_is_logged() -> None:
    failing = True

    async def flush(event: SessionFlush) -> None:
        nonlocal failing
        if event.session.turn_open is not None:
            return
        if failing:
            failing = False
            raise OSError("disk full")

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("1"), text("2")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        errors = errors_of(app)
        app.ctx.on(SessionFlush, flush)
        assert (await soon(agent.ask("a"))).ok
        assert types_of(agent.session.events)[-1] == "turn/end"
        assert errors == [(1, 1, "disk full")]
        assert (await soon(agent.ask("b"))).ok
        assert len(errors) == 1


# case: core F-10
async def test_a_prompt_whose_turn_cannot_be_opened_is_reported() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        errors = errors_of(app)
        validator_that_raises(app, TurnStart)
        first, second = agent.send("a"), agent.send("b")
        assert isinstance((await soon(first.done())).reason, Dropped)
        assert isinstance((await soon(second.done())).reason, Dropped)
        assert errors == [(1, 0, "no turn/start")]
        assert (await soon(agent.ask("c"))).ok
        assert user_texts(agent.session.events) == ["c"]


class NoException(BaseException):
    """Derives from what nobody should derive from."""


class Unprintable(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


# case: core F-11
@pytest.mark.parametrize(
    ("raised", "message", "code"),
    [
        (NoException("not proper"), "not proper", "UNKNOWN"),
        (DshError("coded", code="MY_CODE"), "coded", "MY_CODE"),
        (Unprintable(), "Unprintable (its message cannot be read)", None),
        (ExceptionGroup("many", [ValueError("first"), OSError("second")]), "first", None),
    ],
)
async def test_whatever_is_raised_becomes_a_reason(
    raised: BaseException, message: str, code: str | None
) -> None:
    async def broken(event: StepResult, next: Next[Message]) -> Message:
        raise raised

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("1"), text("2")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        listener = app.ctx.on(StepResult, broken)
        outcome = await soon(agent.ask("a", check=False))
        assert outcome.reason == Failed(1, message, code)
        listener.dispose_nowait()
        assert (await soon(agent.ask("b"))).ok


# case: core F-12
async def test_raising_status_listeners_are_contained() -> None:
    def broken(event: AgentStatusChanged) -> None:
        raise ValueError(f"no {event.status}")

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(AgentStatusChanged, broken)
        agent.send("a")
        await soon(agent.when_idle())
        assert turn_reasons(agent.session.events) == [Completed()]


async def test_context_that_policies_add_is_checked() -> None:
    from dsh.agent import AllowPrompt, HookContext, PromptDecision
    from dsh.agent.events import PromptSubmit
    from dsh.llm import ToolResultBlock
    from dsh.session import PluginSource

    async def poison(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        block = ToolResultBlock("c9", (TextBlock("x"),))
        return AllowPrompt(additional_context=HookContext((block,), PluginSource("p")))

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, poison)
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "BAD_CONTENT"
        assert not [e for e in agent.session.events if isinstance(e.data, ContextMessage)]
