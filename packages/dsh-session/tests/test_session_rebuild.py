"""Requests made again from a log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsh.llm import BlockStart, LlmCallConfig, Message, TextBlock, ToolSchema
from dsh.session import (
    APPEND,
    Aborted,
    AssistantChunk,
    Completed,
    ContextMessage,
    Failed,
    HeaderRecord,
    MessageTrigger,
    PluginSource,
    Replace,
    RequestHeader,
    RequestHeaderSnapshot,
    Session,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
    rebuild_request,
    record_request_header,
    request_steps,
)
from dsh.session.errors import RebuildError
from dsh.session.testing import reloaded, write_turn

CONFIG = LlmCallConfig("a/b", 0.5, 100, ("x",), "high")
TOOL = ToolSchema("look", "Look.", {"type": "object"})
RULES = Message("user", (TextBlock("rules"),))
NOTE = PluginSource("note")


def begun(prompt: str = "hi") -> Session:
    session = Session("s")
    session.append(TurnStart(session.last_turn + 1, MessageTrigger(UserSource())))
    session.append(UserMessage((TextBlock(prompt),), UserSource()), APPEND)
    return session


def asked(session: Session, header: RequestHeader, *, record: HeaderRecord | None = None) -> None:
    """Open a step and make its request."""
    turn, step = session.last_turn, session.last_step + 1
    session.append(StepStart(turn, step))
    record_request_header(session, record or HeaderRecord(), header)
    session.append(AssistantChunk(turn, step, BlockStart(0, "text")))


def test_a_request_holds_header_prefix_and_history() -> None:
    session = begun()
    header = RequestHeader(CONFIG, "You are brief.", (TOOL,), (RULES,))
    asked(session, header)
    session.append(ContextMessage((TextBlock("later"),), NOTE), APPEND)
    for log in (session.events, session.events[:], reloaded(session).events):
        request = rebuild_request(log, 1, 1)
        assert request.config == CONFIG
        assert (request.system, request.tools) == ("You are brief.", (TOOL,))
        assert request.messages == (RULES, Message("user", (TextBlock("hi"),)))
        assert (request.loop, request.signal, request.session_id) == (True, None, None)


def test_each_step_has_the_header_and_the_history_of_its_time() -> None:
    session, record = begun(), HeaderRecord()
    asked(session, RequestHeader(CONFIG, "one"), record=record)
    session.append(StepEnd(1, 1))
    asked(session, RequestHeader(CONFIG, "two"), record=record)
    session.append(StepEnd(1, 2))
    session.append(TurnEnd(1, Completed()))
    write_turn(session, "more")
    requests = [rebuild_request(session.events, *place) for place in request_steps(session.events)]
    assert request_steps(session.events) == ((1, 1), (1, 2), (2, 1), (2, 2))
    assert [request.system for request in requests] == ["one", "two", "two", "two"]
    assert [len(request.messages) for request in requests] == [1, 1, 2, 5]


def test_what_was_replaced_is_out_of_later_requests_alone() -> None:
    session, record = begun("long story"), HeaderRecord()
    asked(session, RequestHeader(CONFIG), record=record)
    session.append(StepEnd(1, 1))
    session.append(UserMessage((TextBlock("short"),), UserSource()), Replace(1, 1), (1,))
    asked(session, RequestHeader(CONFIG), record=record)
    before, after = (rebuild_request(session.events, 1, step) for step in (1, 2))
    assert before.messages == (Message("user", (TextBlock("long story"),)),)
    assert after.messages == (Message("user", (TextBlock("short"),)),)


def test_an_open_step_has_the_request_that_is_under_way() -> None:
    session = begun()
    session.append(StepStart(1, 1))
    with pytest.raises(RebuildError) as caught:
        rebuild_request(session.events, 1, 1)
    assert caught.value.code == RebuildError.NO_REQUEST
    session.append(RequestHeaderSnapshot(RequestHeader(CONFIG), "initial"))
    assert rebuild_request(session.events, 1, 1).config == CONFIG
    assert request_steps(session.events) == ((1, 1),)


@pytest.mark.parametrize(
    ("reason", "made"),
    [(Failed(1, "disk full", "DISK"), False), (Aborted("enough"), True), (Failed(2, "x"), True)],
)
def test_a_step_without_chunks_made_a_request_unless_it_failed(
    reason: Failed | Aborted, made: bool
) -> None:
    session = begun()
    session.append(StepStart(1, 1))
    session.append(RequestHeaderSnapshot(RequestHeader(CONFIG), "initial"))
    session.append(StepEnd(1, 1))
    session.append(TurnEnd(1, reason))
    assert request_steps(session.events) == (((1, 1),) if made else ())
    if made:
        assert rebuild_request(session.events, 1, 1).model == "a/b"
        return
    with pytest.raises(RebuildError, match="made no request: disk full") as caught:
        rebuild_request(session.events, 1, 1)
    assert caught.value.code == RebuildError.NO_REQUEST


def test_a_step_that_does_not_exist_is_an_error_that_names_those_that_do() -> None:
    session = Session("s")
    write_turn(session)
    for turn, step, problem in ((1, 3, "turn 1 has 2 steps, so no step 3"), (2, 1, "no turn 2")):
        with pytest.raises(RebuildError, match=problem) as caught:
            rebuild_request(session.events, turn, step)
        assert caught.value.code == RebuildError.STEP_NOT_FOUND
        assert caught.value.hint == "requests were made in turn.step 1.1, 1.2"
    with pytest.raises(RebuildError) as caught:
        rebuild_request((), 1, 1)
    assert caught.value.hint == "no step of this log made a request"


def test_many_steps_are_not_all_named() -> None:
    session = Session("s")
    for _ in range(8):
        write_turn(session)
    with pytest.raises(RebuildError) as caught:
        rebuild_request(session.events, 9, 1)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("6.2 and 4 more")


def test_the_times_of_a_log_do_not_matter() -> None:
    session = Session("s")
    write_turn(session)
    later = [replace(event, time=event.time + 1) for event in session.events]
    assert rebuild_request(later, 1, 2) == rebuild_request(session.events, 1, 2)
