"""Loop contract: what fails ends its turn, and no more."""

from __future__ import annotations

from dsh.agent import Dropped
from dsh.agent import events as agent_events
from dsh.agent.events import AgentStatusChanged, StepResult
from dsh.core import Event, Next
from dsh.llm import Message
from dsh.llm_replay import Entry, error, text, throw, tool_call
from dsh.session import (
    AssistantChunk,
    AssistantMessage,
    Failed,
    LiveSessions,
    Session,
    SessionEvent,
    StepEnd,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.session.testing import types_of
from dsh.testkit._loop_bench import (
    LoopBench,
    OpenLoop,
    cases_of,
    check_log,
    of_type,
)
from dsh.testkit._trace import soon

__all__ = ["FAILURES"]


async def a_failed_stream_is_a_failed_turn(bench: LoopBench) -> None:
    """The chunks stay in the log and belong to no message; the next turn is well."""
    script: list[Entry] = [
        error("broken", "BROKEN", chunks=text("So")[:2]),
        throw("thrown", "THROWN"),
        text("ok"),
    ]
    async with bench.open(script) as opened, opened.agent() as agent:
        for message, code in (("broken", "BROKEN"), ("thrown", "THROWN")):
            reason = (await soon(agent.ask("a", check=False))).reason
            assert isinstance(reason, Failed)
            assert (reason.step, reason.message, reason.code) == (1, message, code)
        assert not of_type(agent.session, AssistantMessage)
        assert of_type(agent.session, AssistantChunk)
        assert opened.reports == [(1, 1, "broken"), (2, 1, "thrown")]
        assert (await soon(agent.ask("b"))).ok


async def whatever_is_raised_has_a_reason(bench: LoopBench) -> None:
    """Also what is no exception, cannot say what it is, or comes in a group."""

    class NoException(BaseException):
        """Derives from what nobody should derive from."""

    class Mute(Exception):
        """Cannot even say what it is."""

        def __str__(self) -> str:
            raise RuntimeError("no text")

    raised: tuple[BaseException, ...] = (
        NoException("odd"),
        Mute(),
        ExceptionGroup("many", [ValueError("first"), OSError("second")]),
    )
    async with bench.open(lambda request: text("ok")) as opened, opened.agent() as agent:
        for each in raised:

            async def broken(
                event: StepResult, next: Next[Message], each: BaseException = each
            ) -> Message:
                raise each

            listener = opened.on(StepResult, broken)
            reason = (await soon(agent.ask("a", check=False))).reason
            assert isinstance(reason, Failed)
            assert reason.message
            listener.dispose_nowait()
        assert (await soon(agent.ask("b"))).ok
        assert len(opened.errors) == len(raised)


async def what_the_log_refuses_fails_the_turn(bench: LoopBench) -> None:
    """An event that a validator keeps out fails its turn; every call still has its result."""
    for kind in (UserMessage, AssistantMessage, ToolResult):
        async with bench.open([tool_call("c1", "look"), text("ok"), text("ok")]) as opened:
            opened.tool("look")
            async with opened.agent() as agent:
                _object_to(opened, kind)
                reason = (await soon(agent.ask("a", check=False))).reason
                assert isinstance(reason, Failed), kind
                assert f"no {kind.__name__}" in reason.message, kind
                check_log(agent.session)
                assert (await soon(agent.ask("b"))).ok


async def a_refused_turn_drops_its_prompts(bench: LoopBench) -> None:
    """Where no turn can be opened the prompt is dropped and reported; nothing else is lost."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        _object_to(opened, TurnStart)
        assert isinstance((await soon(agent.ask("a", check=False))).reason, Dropped)
        assert len(agent.session.events) == 0
        assert len(opened.errors) == 1
        assert (await soon(agent.ask("b"))).ok


async def an_objection_to_a_closing_event_is_reported(bench: LoopBench) -> None:
    """What a validator has against `step/end` or `turn/end` is heard and not obeyed."""
    for kind in (StepEnd, TurnEnd):
        async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
            _object_to(opened, kind)
            await soon(agent.ask("a", check=False))
            assert types_of(agent.session.events)[-2:] == ["step/end", "turn/end"]
            assert [report[2] for report in opened.reports] == [f"no {kind.__name__}"]
            assert (await soon(agent.ask("b"))).ok


async def raising_observers_change_nothing(bench: LoopBench) -> None:
    """Listeners that only hear, of the log, the status or of failures, cannot break a turn."""

    def broken(event: object) -> None:
        raise ValueError("broken")

    observed = (
        SessionEventAppended,
        AgentStatusChanged,
        agent_events.AgentQueued,
        agent_events.AgentError,
    )
    async with bench.open([text("1"), error("x"), text("2")]) as opened, opened.agent() as agent:
        for event in observed:
            opened.on(event, broken)
        assert (await soon(agent.ask("a"))).ok
        assert isinstance((await soon(agent.ask("b", check=False))).reason, Failed)
        assert (await soon(agent.ask("c"))).ok


async def a_failing_checkpoint_is_reported(bench: LoopBench) -> None:
    """It cannot be logged any more: the turn stays as it ended, and agent/error says so."""
    failing = True

    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is not None:
            return
        if failing:
            raise OSError("disk full")

    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        opened.on(SessionFlush, flush)
        assert (await soon(agent.ask("a"))).ok
        assert opened.reports == [(1, 1, "disk full")]
        failing = False
        assert (await soon(agent.ask("b"))).ok
        assert len(opened.errors) == 1


async def a_turn_nobody_may_be_told_of_ends(bench: LoopBench) -> None:
    """Its start is in the log although telling about it was vetoed: it fails, with its prompt."""

    def veto(event: Event, key: object, mode: str) -> None:
        if isinstance(event, SessionEventAppended) and isinstance(event.event.data, TurnStart):
            raise ValueError("nobody is to hear of it")

    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        observer = opened.app.on_dispatch(opened.ctx, veto)
        outcome = await soon(agent.ask("a", check=False))
        assert (outcome.turn, outcome.reason) == (1, Failed(0, "nobody is to hear of it"))
        assert opened.reports == [(1, 0, "nobody is to hear of it")]
        await observer.dispose()
        assert (await soon(agent.ask("b"))).ok


def _object_to(opened: OpenLoop, kind: type) -> None:
    """Keep the first event of one type out of the log."""
    left = 1

    def check(session: Session, event: SessionEvent) -> None:
        nonlocal left
        if isinstance(event.data, kind) and left:
            left -= 1
            raise ValueError(f"no {kind.__name__}")

    opened.app[LiveSessions].validator(opened.ctx, check)


FAILURES = cases_of(
    a_failed_stream_is_a_failed_turn,
    whatever_is_raised_has_a_reason,
    what_the_log_refuses_fails_the_turn,
    a_refused_turn_drops_its_prompts,
    a_turn_nobody_may_be_told_of_ends,
    an_objection_to_a_closing_event_is_reported,
    raising_observers_change_nothing,
    a_failing_checkpoint_is_reported,
)
"""The cases of this subject."""
