"""Crash repair and balanced cuts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm import TextBlock, ToolCallBlock
from dsh.session import (
    APPEND,
    AssistantMessage,
    Completed,
    ContextMessage,
    Interrupted,
    MessageTrigger,
    Replace,
    Session,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
    interrupted_turn_closers,
    is_tool_pairing_balanced,
)
from dsh.session.errors import SurfaceError
from dsh.session.testing import assert_balanced, worked_turn, write_turn

USER = UserSource()
OUT = (TextBlock("out"),)


def calls(*ids: str) -> tuple[ToolCallBlock, ...]:
    return tuple(ToolCallBlock(id, "tool", "{}") for id in ids)


def open_step(*ids: str) -> Session:
    """Return a session with a turn and a step open and the calls made."""
    session = Session("s")
    session.append(TurnStart(1, MessageTrigger(USER)))
    session.append(UserMessage((TextBlock("hi"),), USER), APPEND)
    session.append(StepStart(1, 1))
    session.append(AssistantMessage(1, 1, calls(*ids)), APPEND)
    return session


def closed(session: Session) -> tuple[SessionEvent, ...]:
    return (*session.events, *interrupted_turn_closers(session.events))


def results(events: tuple[SessionEvent, ...]) -> list[ToolResult]:
    return [event.data for event in events if isinstance(event.data, ToolResult)]


def test_a_closed_log_needs_nothing() -> None:
    # case: R-01
    assert interrupted_turn_closers(()) == ()
    assert interrupted_turn_closers(worked_turn()) == ()


def test_an_open_turn_is_ended() -> None:
    # case: R-01
    session = Session("s")
    session.append(TurnStart(1, MessageTrigger(USER)))
    (closer,) = interrupted_turn_closers(session.events)
    assert closer.data == TurnEnd(1, Interrupted())
    assert closer.seq == 1


def test_an_open_step_is_ended_before_its_turn() -> None:
    # case: R-01
    session = Session("s")
    session.append(TurnStart(1, MessageTrigger(USER)))
    session.append(StepStart(1, 1))
    assert [event.data for event in interrupted_turn_closers(session.events)] == [
        StepEnd(1, 1),
        TurnEnd(1, Interrupted()),
    ]


def test_a_call_without_result_gets_one() -> None:
    # case: R-02
    session = open_step("a", "b")
    for id in ("a", "b"):
        session.append(ToolCall(1, 1, id, "tool", "{}"))
    session.append(ToolResult(1, 1, "a", OUT), APPEND, (4,))
    closers = interrupted_turn_closers(session.events)
    assert [event.type for event in closers] == ["tool/result", "step/end", "turn/end"]
    (result,) = results(closers)
    assert (result.call_id, result.is_error, result.turn, result.step) == ("b", True, 1, 1)
    assert [event.seq for event in closers] == [7, 8, 9]
    assert {event.time for event in closers} == {session.events[-1].time}
    assert closers[0].surface_op == APPEND


def test_calls_of_closed_steps_and_turns_stay_as_they_are() -> None:
    # case: R-03
    session = open_step("a")
    session.append(StepEnd(1, 1))
    session.append(StepStart(1, 2))
    assert results(interrupted_turn_closers(session.events)) == []
    session.append(StepEnd(1, 2))
    session.append(TurnEnd(1, Completed()))
    session.append(TurnStart(2, MessageTrigger(USER)))
    assert [event.type for event in interrupted_turn_closers(session.events)] == ["turn/end"]


def test_provenance_is_there_if_the_call_had_started() -> None:
    # case: R-04
    session = open_step("a", "b")
    started = session.append(ToolCall(1, 1, "a", "tool", "{}"))
    session.append(ToolCall(1, 1, "stray", "tool", "{}"))
    first, second = interrupted_turn_closers(session.events)[:2]
    assert first.source_event_seqs == (started.seq,)
    assert second.source_event_seqs is None
    assert [result.call_id for result in results(closed(session))] == ["a", "b"]


def test_the_two_codes_tell_started_from_not_started() -> None:
    # case: U-09
    # case: PS-30
    session = open_step("a", "b")
    session.append(ToolCall(1, 1, "a", "tool", "{}"))
    unknown, unstarted = results(interrupted_turn_closers(session.events))
    assert unknown.error is not None
    assert unstarted.error is not None
    assert (unknown.error.name, unknown.error.code) == (
        "ToolOutcomeUnknownError",
        "TOOL_OUTCOME_UNKNOWN",
    )
    assert (unstarted.error.name, unstarted.error.code) == (
        "ToolNotStartedError",
        "TOOL_NOT_STARTED",
    )
    assert unknown.synthetic
    assert unstarted.synthetic
    assert unknown.content != unstarted.content
    assert not ToolResult(1, 1, "c", OUT, is_error=True).synthetic


def test_where_more_was_lost_no_call_is_said_to_have_done_nothing() -> None:
    session = open_step("a", "b")
    session.append(ToolCall(1, 1, "a", "tool", "{}"))
    closed = results(interrupted_turn_closers(session.events, more_was_lost=True))
    assert [result.error and result.error.code for result in closed] == ["TOOL_OUTCOME_UNKNOWN"] * 2


def test_an_open_turn_without_a_step_only_gets_its_end() -> None:
    # case: PS-31
    session = open_step()
    session.append(StepEnd(1, 1))
    assert [event.type for event in interrupted_turn_closers(session.events)] == ["turn/end"]


def prefixes() -> tuple[SessionEvent, ...]:
    session = Session("s", worked_turn())
    write_turn(session, tool=True)
    session.append(TurnStart(3, MessageTrigger(USER)))
    session.append(StepStart(3, 1))
    session.append(AssistantMessage(3, 1, calls("x", "y", "z")), APPEND)
    for id in ("x", "y"):
        session.append(ToolCall(3, 1, id, "tool", "{}"))
        session.append(ToolResult(3, 1, id, OUT), APPEND)
    session.append(StepEnd(3, 1))
    session.append(TurnEnd(3, Completed()))
    return session.events[:]


LOG = prefixes()


@given(st.integers(0, len(LOG)))
def test_any_prefix_is_closed_and_stays_closed(length: int) -> None:
    # case: R-05
    # case: PS-32
    session = Session("s", LOG[:length])
    closers = interrupted_turn_closers(session.events)
    for event in closers:
        appended = session.append(event.data, event.surface_op, event.source_event_seqs)
        assert appended.seq == event.seq
    assert interrupted_turn_closers(session.events) == ()
    assert_balanced(session.events)
    # a call left without a result in a step that was closed is not the repair's business
    dangling = length >= len(LOG) - 1
    assert is_tool_pairing_balanced(session.surface.nodes, session.events) is not dangling


def test_a_log_without_a_turn_needs_nothing() -> None:
    session = Session("s", enclosed=False)
    session.append(UserMessage((), USER), APPEND)
    assert interrupted_turn_closers(session.events) == ()


def test_a_result_that_answers_no_call_is_passed_over() -> None:
    session = Session("s", enclosed=False)
    session.append(TurnStart(1, MessageTrigger(USER)))
    session.append(ToolResult(1, 1, "a", OUT), APPEND)
    assert [event.type for event in interrupted_turn_closers(session.events)] == ["turn/end"]


# --- cuts ---------------------------------------------------------------------------------


def cut(session: Session, before: int | None) -> bool:
    return is_tool_pairing_balanced(session.surface.nodes, session.events, before)


def test_cuts_around_a_step_with_two_calls() -> None:
    # case: R-06
    session = open_step("a", "b")
    first = session.append(ToolResult(1, 1, "a", OUT), APPEND)
    second = session.append(ToolResult(1, 1, "b", OUT), APPEND)
    after = session.append(UserMessage((), USER), APPEND)
    assert cut(session, 1)
    assert cut(session, 3)
    assert not cut(session, first.seq)
    assert not cut(session, second.seq)
    assert cut(session, after.seq)
    assert cut(session, None)


def test_calls_of_several_answers_add_up() -> None:
    session = Session("s", enclosed=False)
    for call_id in ("a", "b"):
        session.append(AssistantMessage(1, 1, calls(call_id)), APPEND)
    first = session.append(ToolResult(1, 1, "a", OUT), APPEND)
    session.append(ToolResult(1, 1, "b", OUT), APPEND)
    assert not cut(session, first.seq)
    assert not cut(session, first.seq + 1)
    assert cut(session, None)


def test_context_inside_a_batch_cannot_be_cut_around() -> None:
    # case: R-07
    session = open_step("a")
    context = session.append(ContextMessage((), USER), APPEND)
    result = session.append(ToolResult(1, 1, "a", OUT), APPEND)
    assert not cut(session, context.seq)
    assert not cut(session, result.seq)
    assert cut(session, None)


def test_a_checkpoint_at_the_head_is_cut_by_position() -> None:
    # case: R-08
    session = open_step("a")
    session.append(ToolResult(1, 1, "a", OUT), APPEND)
    session.append(UserMessage((), USER), APPEND)
    summary = session.append(UserMessage((), USER), Replace(1, 4))
    assert session.surface.nodes == (summary.seq, 5)
    assert cut(session, summary.seq)
    assert cut(session, 5)


def test_a_result_before_its_call_is_corrupt() -> None:
    # case: R-09
    session = Session("s", enclosed=False)
    session.append(ToolResult(1, 1, "a", OUT), APPEND)
    session.append(UserMessage((), USER), APPEND)
    assert cut(session, 0)
    with pytest.raises(SurfaceError, match="corrupt surface") as caught:
        cut(session, 1)
    assert caught.value.code == SurfaceError.CORRUPT_SURFACE
