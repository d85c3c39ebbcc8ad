"""The rules of a session log: one violation each, and what must not be taken for one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.core import App, DshError
from dsh.invariants import InvariantError, Invariants, check_log
from dsh.invariants._immutable import mutable_part
from dsh.llm import Message, TextBlock, TextDelta, ToolCallBlock
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    Completed,
    ContextMessage,
    LiveSessions,
    MessageTrigger,
    Replace,
    RequestHeaderDelta,
    Session,
    SessionData,
    SessionEvent,
    SteeringMessage,
    StepEnd,
    StepStart,
    TodoWrite,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
    interrupted_turn_closers,
    synthetic_tool_result,
)
from dsh.session.testing import types_of, worked_turn, write_turn

USER = UserSource()
TRIGGER = MessageTrigger(USER)
START, STEP = TurnStart(1, TRIGGER), StepStart(1, 1)
CALLS = AssistantMessage(1, 1, (ToolCallBlock("c", "t", "{}"),))
CALL = ToolCall(1, 1, "c", "t", "{}")
RESULT = ToolResult(1, 1, "c", ())


@dataclass(frozen=True, slots=True)
class Note(SessionData, type="test-invariants/note"):
    """A plugin's type."""


@dataclass
class Thawed:
    value: int


async def open_session(app: App, level: str = "full", id: str = "s") -> Session:
    """Return a live session that accepts every order, so that only the invariants object."""
    if app.get(LiveSessions) is None:
        await app.mount(LiveSessions).settled()
        await app.mount(Invariants, {"level": level}).settled()
    store = app[LiveSessions]
    session = Session(id, enclosed=False)
    store.enter(app.ctx, session)
    store.announce(session)
    return session


def put(session: Session, *data: SessionData) -> None:
    for item in data:
        session.append(item, APPEND if item.surface_eligible else None)


VIOLATIONS: dict[str, tuple[tuple[SessionData, ...], SessionData]] = {
    "first turn is not 1": ((), TurnStart(2, TRIGGER)),
    "gap between turns": ((START, TurnEnd(1, Completed())), TurnStart(3, TRIGGER)),
    "turn repeated": ((START, TurnEnd(1, Completed())), TurnStart(1, TRIGGER)),
    "turn nested": ((START,), TurnStart(2, TRIGGER)),
    "turn end without turn": ((), TurnEnd(1, Completed())),
    "turn end names another": ((START,), TurnEnd(2, Completed())),
    "turn end with open step": ((START, STEP), TurnEnd(1, Completed())),
    "step outside of a turn": ((), STEP),
    "step of another turn": ((START,), StepStart(2, 1)),
    "first step is not 1": ((START,), StepStart(1, 2)),
    "gap between steps": ((START, STEP, StepEnd(1, 1)), StepStart(1, 3)),
    "step nested": ((START, STEP), StepStart(1, 2)),
    "step end without step": ((START,), StepEnd(1, 1)),
    "step end names another": ((START, STEP), StepEnd(1, 2)),
    "chunk outside of a step": ((START,), AssistantChunk(1, 1, TextDelta(0, "x"))),
    "chunk of another step": ((START, STEP), AssistantChunk(1, 2, TextDelta(0, "x"))),
    "answer of another step": ((START, STEP), AssistantMessage(1, 2, ())),
    "answer of another turn": ((START, STEP), AssistantMessage(2, 1, ())),
    "call outside of a step": ((START,), CALL),
    "result outside of a step": ((START,), RESULT),
    "result without a call": ((START, STEP, CALLS), RESULT),
    "result of another call": ((START, STEP, CALLS, CALL), replace(RESULT, call_id="d")),
    "result a second time": ((START, STEP, CALLS, CALL, RESULT), RESULT),
    "result in a later step": (
        (START, STEP, CALLS, CALL, StepEnd(1, 1), StepStart(1, 2)),
        ToolResult(1, 2, "c", ()),
    ),
    "steering of another turn": ((START,), SteeringMessage(2, (), USER)),
    "prompt outside of a turn": ((), UserMessage((), USER)),
    "context outside of a turn": ((), ContextMessage((), USER)),
    "todo outside of a turn": ((), TodoWrite(())),
    "plugin event outside of a turn": ((START, TurnEnd(1, Completed())), Note()),
    "unknown event outside of a turn": ((), UnknownData("some/thing", {})),
}


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_is_refused(name: str) -> None:
    # case: V-01
    before, data = VIOLATIONS[name]
    async with App() as app:
        session = await open_session(app)
        put(session, *before)
        closing = isinstance(data, StepEnd | TurnEnd)
        if closing:
            put(session, data)
            error = session.take_objection()
        else:
            with pytest.raises(InvariantError) as caught:
                put(session, data)
            error = caught.value
            assert session.seq == len(before)
        assert isinstance(error, InvariantError)
        assert (error.code, error.package) == ("INVARIANT", "dsh-session")
        assert app[Invariants].violations[0].package == "dsh-session"


async def opened(app: App) -> Session:
    session = await open_session(app)
    put(session, START, UserMessage((TextBlock("a"),), USER), UserMessage((TextBlock("b"),), USER))
    return session


async def test_provenance_names_an_event_once() -> None:
    # case: V-01
    async with App() as app:
        session = await opened(app)
        with pytest.raises(InvariantError, match="twice"):
            session.append(UserMessage((), USER), APPEND, (1, 1))
        session.append(UserMessage((), USER), APPEND, (1, 2))


async def test_a_replace_cites_what_it_shadows() -> None:
    # case: V-01
    async with App() as app:
        session = await opened(app)
        summary = UserMessage((TextBlock("ab"),), USER)
        for sources in (None, (1,), (0, 2)):
            with pytest.raises(InvariantError, match="does not cite"):
                session.append(summary, Replace(1, 2), sources)
        session.append(summary, Replace(1, 2), (0, 1, 2))
        assert session.surface.nodes == (3,)


SEEDS: dict[str, list[SessionEvent]] = {
    "empty provenance": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, UserMessage((), USER), APPEND, ()),
    ],
    "later provenance": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, UserMessage((), USER), APPEND, (5,)),
    ],
    "provenance of itself": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, UserMessage((), USER), APPEND, (1,)),
    ],
    "provenance on a log-only type": [SessionEvent(0, 0, START, None, (0,))],
    "marker on a log-only type": [SessionEvent(0, 0, START, APPEND)],
    "no marker": [SessionEvent(0, 0, START), SessionEvent(1, 0, UserMessage((), USER))],
    "seq goes back": [SessionEvent(0, 0, START), SessionEvent(0, 0, STEP)],
    "replace start unknown": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, UserMessage((), USER), Replace(7, 8)),
    ],
    "replace reversed": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, UserMessage((), USER), APPEND),
        SessionEvent(2, 0, UserMessage((), USER), APPEND),
        SessionEvent(3, 0, UserMessage((), USER), Replace(2, 1), (1, 2)),
    ],
    "header amended before it is there": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, RequestHeaderDelta(message_prefix=())),
    ],
    "a value that is no JSON": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, UnknownData("some/thing", {"x": float("nan")})),
    ],
    "chunk in no step": [
        SessionEvent(0, 0, START),
        SessionEvent(1, 0, AssistantChunk(1, 1, TextDelta(0, "x"))),
    ],
}


@pytest.mark.parametrize("name", SEEDS)
def test_a_log_that_breaks_a_rule_is_found(name: str) -> None:
    # case: V-01
    with pytest.raises(InvariantError):
        check_log(SEEDS[name])


async def test_a_session_seeded_with_a_broken_log_is_not_announced() -> None:
    # case: V-01
    async with App() as app:
        await open_session(app)
        store = app[LiveSessions]
        broken = [SessionEvent(0, 0, Note())]
        with pytest.raises(InvariantError, match="test-invariants/note"):
            store.create(app.ctx, "broken", seed=broken)
        assert store.get("broken") is None
        assert store.create(app.ctx, "fine", seed=worked_turn()).last_turn == 1


@pytest.mark.parametrize("level", ["basic", "full"])
async def test_well_formed_runs_are_accepted(level: str) -> None:
    # case: V-01
    async with App() as app:
        session = await open_session(app, level)
        for _ in range(3):
            write_turn(session)
        assert check_log(session.events).next_seq == session.seq
        assert app[Invariants].violations == ()


async def test_sessions_are_checked_apart() -> None:
    # case: V-01
    async with App() as app:
        one, two = await open_session(app, id="one"), await open_session(app, id="two")
        put(one, START, STEP)
        put(two, START)
        with pytest.raises(InvariantError):
            put(two, CALL)
        put(one, CALLS, CALL, RESULT)
        put(two, STEP)


async def test_a_missing_result_and_a_synthetic_one_are_accepted() -> None:
    # case: V-02
    # case: U-09
    async with App() as app:
        session = await open_session(app)
        put(session, START, STEP, CALLS)
        put(session, synthetic_tool_result(1, 1, "c", started=False))
        put(session, StepEnd(1, 1), StepStart(1, 2))
        put(session, AssistantMessage(1, 2, CALLS.content), ToolCall(1, 2, "c", "t", "{}"))
        put(session, synthetic_tool_result(1, 2, "c", started=True))
        put(session, StepEnd(1, 2), StepStart(1, 3))
        put(session, AssistantMessage(1, 3, CALLS.content), ToolCall(1, 3, "c", "t", "{}"))
        put(session, StepEnd(1, 3), TurnEnd(1, Completed()))
        assert session.take_objection() is None
        assert app[Invariants].violations == ()


async def test_a_result_can_be_replaced_in_an_open_turn_only() -> None:
    async with App() as app:
        session = await open_session(app)
        put(session, START, STEP, CALLS, CALL, RESULT, StepEnd(1, 1))
        session.append(RESULT, Replace(4, 4), (4,))
        put(session, TurnEnd(1, Completed()))
        with pytest.raises(InvariantError, match="outside of a turn"):
            session.append(RESULT, Replace(6, 6), (6,))


async def test_a_reload_in_the_middle_of_a_turn_is_no_violation() -> None:
    # case: V-05
    async with App() as app:
        session = await open_session(app)
        put(session, START, STEP, CALLS, CALL)
        mount = next(item for item in app.mounts if item.name == "invariants")
        await mount.restart()
        put(session, AssistantChunk(1, 1, TextDelta(0, "x")), RESULT, StepEnd(1, 1))
        with pytest.raises(InvariantError):
            put(session, StepStart(1, 3))
        put(session, TurnEnd(1, Completed()))
        assert session.take_objection() is None


async def test_a_session_entered_before_the_service_is_taken_as_it_is() -> None:
    # case: V-05
    async with App() as app:
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = Session("s", enclosed=False)
        store.enter(app.ctx, session)
        store.announce(session)
        put(session, Note(), START, STEP)
        await app.mount(Invariants, {"level": "full"}).settled()
        quiet = Session("q", enclosed=False)
        store.enter(app.ctx, quiet)
        put(quiet, START)
        put(session, CALLS, CALL, RESULT, StepEnd(1, 1))
        with pytest.raises(InvariantError):
            put(session, StepStart(2, 1))


async def test_disposal_removes_every_check() -> None:
    # case: V-05
    async with App() as app:
        session = await open_session(app)
        mount = next(item for item in app.mounts if item.name == "invariants")
        await mount.dispose()
        put(session, Note(), TurnStart(7, TRIGGER), RESULT)
        assert session.seq == 3
        assert app.observers == ()


async def test_a_later_veto_does_not_advance_the_trace() -> None:
    # case: NV-08
    async with App() as app:
        session = await open_session(app)
        put(session, START)
        vetoed: list[str] = []

        def veto(subject: Session, event: SessionEvent) -> None:
            if not vetoed:
                vetoed.append(event.type)
                raise DshError("not now", code="VETO")

        app[LiveSessions].validator(app.ctx, veto)
        with pytest.raises(DshError, match="not now"):
            put(session, STEP)
        put(session, STEP, CALLS, CALL, RESULT)
        assert vetoed == ["step/start"]
        assert app[Invariants].violations == ()


async def test_a_closing_event_over_an_objection_is_taken_in() -> None:
    # case: NV-08
    async with App() as app:
        session = await open_session(app)
        put(session, START, STEP)
        put(session, TurnEnd(1, Completed()))
        assert isinstance(session.take_objection(), InvariantError)
        put(session, TurnStart(2, TRIGGER), StepStart(2, 1))


async def test_chunks_are_looked_at_only_when_everything_is() -> None:
    async with App() as app:
        session = await open_session(app, "basic")
        put(session, START, AssistantChunk(9, 9, TextDelta(0, "x")))
        with pytest.raises(InvariantError):
            put(session, CALL)


def test_what_can_change_is_found() -> None:
    # case: V-01
    session = Session("s", enclosed=False)
    logged = session.append(UnknownData("some/thing", {"a": [1, {"b": None}]})).data
    assert mutable_part(logged, "x") is None
    assert mutable_part(MappingProxyType({"a": (1, "b", b"c", 1.5, True)}), "x") is None
    assert mutable_part(UnknownData("some/thing", {"a": 1}), "x") == "x.data"
    assert mutable_part((1, [2]), "x") == "x[1]"
    assert mutable_part(({"a": 1},), "x") == "x[0]"
    assert mutable_part(MappingProxyType({"a": {1}}), "x") == "x.a"
    assert mutable_part(Thawed(1), "x") == "x"
    assert mutable_part(Message("user", (TextBlock("a"),)), "x") is None


def long_log() -> tuple[SessionEvent, ...]:
    session = Session("s", worked_turn())
    write_turn(session)
    session.append(TurnStart(3, TRIGGER))
    session.append(StepStart(3, 1))
    calls = tuple(ToolCallBlock(id, "t", "{}") for id in "xyz")
    session.append(AssistantMessage(3, 1, calls), APPEND)
    for id in "xy":
        session.append(ToolCall(3, 1, id, "t", "{}"))
        session.append(ToolResult(3, 1, id, ()), APPEND)
    return session.events[:]


LOG = long_log()


@given(st.integers(0, len(LOG)))
def test_every_repaired_prefix_is_accepted(length: int) -> None:
    # case: R-05
    prefix = LOG[:length]
    closed = (*prefix, *interrupted_turn_closers(prefix))
    check_log(closed)
    assert interrupted_turn_closers(closed) == ()
    assert types_of(closed)[:1] in ([], ["turn/start"])
