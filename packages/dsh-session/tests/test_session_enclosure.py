"""Enclosure, the header in force, and what a large log costs."""

from __future__ import annotations

import sys
import time
import tracemalloc
from dataclasses import replace

import pytest

from dsh.llm import (
    LlmCallConfig,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolResultBlock,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    Completed,
    ContextMessage,
    Enclosure,
    MessageTrigger,
    Replace,
    RequestHeader,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    Session,
    SessionData,
    SessionEvent,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
)
from dsh.session.errors import (
    EnclosureError,
    EventRefusedError,
    HeaderFoldError,
)
from dsh.session.testing import assert_balanced, types_of, user_texts, worked_turn

USER = UserSource()


def text(value: str) -> tuple[TextBlock, ...]:
    return (TextBlock(value),)


def user(value: str) -> UserMessage:
    return UserMessage(text(value), USER)


def filled(letters: str) -> Session:
    session = Session("s", enclosed=False)
    for letter in letters:
        session.append(user(letter), APPEND)
    return session


def letters_of(session: Session) -> str:
    return "".join(
        block.text
        for message in session.derive_messages()
        for block in message.content
        if isinstance(block, TextBlock)
    )


def fresh(session: Session) -> Session:
    return Session("fresh", session.events, enclosed=False)


# --- enclosure ----------------------------------------------------------------------------


def opened(*events: SessionData) -> Session:
    session = Session("s")
    for data in events:
        session.append(data, APPEND if data.surface_eligible else None)
    return session


START = TurnStart(1, MessageTrigger(USER))
STEP = StepStart(1, 1)


@pytest.mark.parametrize(
    ("before", "data", "code"),
    [
        ((), user("x"), EnclosureError.NOT_ENCLOSED),
        ((), UnknownData("some/thing", {}), EnclosureError.NOT_ENCLOSED),
        ((), TurnEnd(1, Completed()), EnclosureError.NOT_ENCLOSED),
        ((), StepStart(1, 1), EnclosureError.NOT_ENCLOSED),
        ((), AssistantChunk(1, 1, TextDelta(0, "x")), EnclosureError.NOT_ENCLOSED),
        ((), TurnStart(2, MessageTrigger(USER)), EnclosureError.TURN_MISMATCH),
        ((START,), TurnStart(2, MessageTrigger(USER)), EnclosureError.TURN_MISMATCH),
        ((START,), TurnEnd(2, Completed()), EnclosureError.TURN_MISMATCH),
        ((START,), StepStart(2, 1), EnclosureError.TURN_MISMATCH),
        ((START,), StepStart(1, 2), EnclosureError.STEP_MISMATCH),
        ((START,), StepEnd(1, 1), EnclosureError.STEP_MISMATCH),
        ((START,), AssistantChunk(1, 1, TextDelta(0, "x")), EnclosureError.STEP_MISMATCH),
        ((START,), SteeringMessage(2, (), USER), EnclosureError.TURN_MISMATCH),
        ((START, STEP), StepStart(1, 2), EnclosureError.STEP_MISMATCH),
        ((START, STEP), TurnEnd(1, Completed()), EnclosureError.STEP_MISMATCH),
        ((START, STEP), AssistantChunk(2, 1, TextDelta(0, "x")), EnclosureError.TURN_MISMATCH),
        ((START, STEP), AssistantChunk(1, 2, TextDelta(0, "x")), EnclosureError.STEP_MISMATCH),
        ((START, STEP), AssistantMessage(1, 2, ()), EnclosureError.STEP_MISMATCH),
        ((START, STEP), AssistantMessage(2, 1, ()), EnclosureError.TURN_MISMATCH),
        ((START, STEP), ToolCall(1, 2, "c", "t", ""), EnclosureError.STEP_MISMATCH),
        ((START, STEP), ToolResult(2, 1, "c", ()), EnclosureError.TURN_MISMATCH),
        ((START, STEP), StepEnd(1, 2), EnclosureError.STEP_MISMATCH),
    ],
    ids=lambda value: getattr(value, "event_type", None),
)
def test_an_event_out_of_place_is_refused(
    before: tuple[SessionData, ...], data: SessionData, code: str
) -> None:
    session = opened(*before)
    with pytest.raises(EnclosureError, match=data_name(data)) as caught:
        session.append(data, APPEND if data.surface_eligible else None)
    assert caught.value.code == code
    assert session.seq == len(before)


def test_a_step_that_is_missed_is_told_from_one_that_is_another() -> None:
    with pytest.raises(EnclosureError, match="names step 2, but no step is open"):
        opened(START).append(StepEnd(1, 2))
    with pytest.raises(EnclosureError, match="names step 2, but step 1 is open"):
        opened(START, STEP).append(StepEnd(1, 2))


def data_name(data: SessionData) -> str:
    return data.type if isinstance(data, UnknownData) else data.event_type


def test_an_unenclosed_session_takes_events_in_any_order() -> None:
    session = Session("s", enclosed=False)
    assert not session.enclosed
    session.append(TurnEnd(7, Completed()))
    session.append(AssistantChunk(3, 4, TextDelta(0, "x")))
    session.append(user("x"), APPEND)
    assert session.seq == 3


def test_turns_and_steps_are_counted() -> None:
    session = opened(START, STEP, StepEnd(1, 1), StepStart(1, 2))
    assert (session.turn_open, session.step_open) == (1, 2)
    assert (session.last_turn, session.last_step) == (1, 2)
    session.append(StepEnd(1, 2))
    assert session.step_open is None
    session.append(TurnEnd(1, Completed()))
    assert session.turn_open is None
    session.append(TurnStart(2, MessageTrigger(USER)))
    assert (session.turn_open, session.last_step) == (2, 0)
    session.append(StepStart(2, 1))


def test_a_result_may_be_replaced_later_in_another_step() -> None:
    session = opened(START, STEP)
    call = ToolCallBlock("c", "t", "{}")
    session.append(AssistantMessage(1, 1, (call,)), APPEND)
    result = session.append(ToolResult(1, 1, "c", text("long")), APPEND)
    session.append(StepEnd(1, 1))
    shorter = ToolResult(1, 1, "c", text("short"))
    session.append(shorter, Replace(result.seq, result.seq), (result.seq,))
    assert session.derive_messages()[-1].content == (ToolResultBlock("c", text("short")),)


def test_a_position_follows_whatever_it_is_given() -> None:
    state = Enclosure()
    state.advance(TurnStart(5, MessageTrigger(USER)))
    state.advance(StepStart(5, 9))
    assert (state.turn, state.step, state.last_turn, state.last_step) == (5, 9, 5, 9)
    state.check_chunk(AssistantChunk(5, 9, TextDelta(0, "x")))
    with pytest.raises(EnclosureError):
        state.check_chunk(AssistantChunk(5, 8, TextDelta(0, "x")))


def test_the_worked_log_is_balanced_and_a_cut_one_is_not() -> None:
    log = worked_turn("hello")
    assert user_texts(log) == ["hello"]
    assert types_of(log, chunks=True).count("assistant/chunk") == 11
    assert_balanced(log)
    with pytest.raises(AssertionError):
        assert_balanced(log[:-1])
    with pytest.raises(AssertionError):
        assert_balanced(log[1:])


# --- request header in a session ----------------------------------------------------------


def test_a_delta_without_a_snapshot_is_refused() -> None:
    # case: H-04
    session = opened(START)
    delta = RequestHeaderDelta(config=LlmCallConfig("m"))
    with pytest.raises(HeaderFoldError, match="before any"):
        session.append(delta)
    assert session.seq == 1
    with pytest.raises(HeaderFoldError, match="corrupt"):
        Session("s", [SessionEvent(0, 0, delta)], enclosed=False)


def test_the_header_in_force_follows_the_log() -> None:
    session = opened(START)
    assert session.request_header() is None
    session.append(RequestHeaderSnapshot(RequestHeader(LlmCallConfig("m"), system=""), "initial"))
    header = session.request_header()
    assert header is not None
    assert header == RequestHeader(LlmCallConfig("m"))
    assert session.request_header() is header
    session.append(RequestHeaderDelta(config=LlmCallConfig("n")))
    assert session.request_header() == replace(header, config=LlmCallConfig("n"))


# --- size and speed -----------------------------------------------------------------------


def test_an_event_costs_less_than_a_kilobyte_beyond_its_text() -> None:
    # case: F-48
    session = opened(START, STEP)
    tracemalloc.start()
    try:
        base, _ = tracemalloc.get_traced_memory()
        for index in range(10_000):
            session.append(AssistantChunk(1, 1, TextDelta(0, f"{index:08d}")))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    texts = 10_000 * sys.getsizeof("12345678")
    assert (used - base - texts) / 10_000 < 400


def test_messages_and_results_stay_below_a_kilobyte_too() -> None:
    # case: F-48
    session = opened(START)
    tracemalloc.start()
    try:
        base, _ = tracemalloc.get_traced_memory()
        for step in range(1, 1001):
            call = ToolCallBlock(f"c{step}", "t", "{}")
            session.append(StepStart(1, step))
            session.append(AssistantMessage(1, step, (call,)), APPEND)
            started = session.append(ToolCall(1, step, call.id, "t", "{}"))
            session.append(ToolResult(1, step, call.id, text("r")), APPEND, (started.seq,))
            session.append(StepEnd(1, step))
        session.derive_messages()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (used - base) / 5000 < 1024


def test_a_thousand_rounds_derive_without_walking_the_history() -> None:
    # The bound is loose on purpose: walking 3,000 messages 1,000 times takes far longer.
    session = opened(START)
    started = time.process_time()
    for step in range(1, 1001):
        session.append(StepStart(1, step))
        session.append(AssistantMessage(1, step, text("a")), APPEND)
        session.append(ContextMessage(text("c"), USER), APPEND)
        session.append(StepEnd(1, step))
        assert len(session.derive_messages()) == 2 * step
    assert time.process_time() - started < 2


def test_a_refused_event_names_itself() -> None:
    session = Session("named", enclosed=False)
    with pytest.raises(EventRefusedError, match="user/message"):
        session.append(user("x"))
