"""Who looks at an event before it is committed, who hears of it after, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dsh.core import App, DshError, Failure
from dsh.llm import (
    TextBlock,
    TextDelta,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    Completed,
    LiveSessions,
    MessageTrigger,
    Replace,
    Session,
    SessionData,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
    UserSource,
    synthetic_tool_result,
)
from dsh.session.errors import EventRefusedError
from dsh.session.events import SessionEventAppended


@dataclass(frozen=True, slots=True)
class Note(SessionData, type="test-observers/note"):
    """Free-form payload of these tests."""

    value: Any


async def test_a_raising_observer_changes_nothing() -> None:
    # case: S-03
    # case: core F-02
    async with App() as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        heard: list[str] = []

        def broken(event: SessionEventAppended) -> None:
            if not heard:
                heard.append("broken")
                raise RuntimeError("observer")

        app.ctx.on(SessionEventAppended, broken)
        app.ctx.on(SessionEventAppended, lambda event: heard.append(event.event.type))
        first = session.append(TurnStart(1, MessageTrigger(UserSource())))
        second = session.append(TurnEnd(1, Completed()))
        assert (first.seq, second.seq) == (0, 1)
        assert list(session.events) == [first, second]
        assert heard == ["broken", "turn/start", "turn/end"]
        assert [str(failure.error) for failure in failures] == ["observer"]
        assert session.take_objection() is None


async def test_a_raising_validator_keeps_the_event_out() -> None:
    # case: S-03
    # case: core F-02
    async with App() as app:
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = store.create(app.ctx)
        heard: list[int] = []
        app.ctx.on(SessionEventAppended, lambda event: heard.append(event.event.seq))
        session.append(TurnStart(1, MessageTrigger(UserSource())))

        def veto(subject: Session, event: SessionEvent) -> None:
            assert subject is session
            assert event.seq == subject.seq
            if isinstance(event.data, StepStart):
                raise DshError("no step", code="VETO")

        effect = store.validator(app.ctx, veto)
        with pytest.raises(DshError, match="no step"):
            session.append(StepStart(1, 1))
        assert session.seq == 1
        assert session.step_open is None
        session.append(Note(1))
        effect.dispose_nowait()
        session.append(StepStart(1, 1))
        assert heard == [0, 1, 2]


async def test_a_vetoed_replace_leaves_the_surface_alone() -> None:
    # case: U-06
    async with App() as app:
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = store.create(app.ctx)
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        for text in "ab":
            session.append(UserMessage((TextBlock(text),), UserSource()), APPEND)
        before = session.derive_messages()

        def veto(subject: Session, event: SessionEvent) -> None:
            if isinstance(event.surface_op, Replace):
                raise DshError("no replace", code="VETO")

        store.validator(app.ctx, veto)
        with pytest.raises(DshError, match="no replace"):
            session.append(UserMessage((TextBlock("ab"),), UserSource()), Replace(1, 2))
        assert session.surface.nodes == (1, 2)
        assert session.surface.generation == 0
        assert session.derive_messages() is before
        assert session.seq == 3


async def test_the_event_is_in_the_log_when_observers_hear_of_it() -> None:
    # case: S-05
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        seen: list[bool] = []

        def look(event: SessionEventAppended) -> None:
            seen.append(event.session.events[-1] is event.event)
            if isinstance(event.event.data, StepStart):
                seen.append(event.session.step_open == 1)

        app.ctx.on(SessionEventAppended, look)
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        session.append(StepStart(1, 1))
        assert seen == [True, True, True]


async def test_an_append_from_an_observer_is_refused_without_reordering() -> None:
    # case: U-07
    async with App() as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        refused: list[str] = []
        heard: list[int] = []

        def greedy(event: SessionEventAppended) -> None:
            assert event.session.notifying
            try:
                event.session.append(Note("again"))
            except EventRefusedError as error:
                refused.append(error.code)

        app.ctx.on(SessionEventAppended, greedy)
        app.ctx.on(SessionEventAppended, lambda event: heard.append(event.event.seq))
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        session.append(Note(1))
        session.append(TurnEnd(1, Completed()))
        assert refused == ["REENTRANT_APPEND"] * 3
        assert heard == [0, 1, 2]
        assert failures == []
        assert not session.notifying


async def test_an_append_from_a_validator_is_refused() -> None:
    # case: U-07
    async with App() as app:
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = store.create(app.ctx)
        effect = store.validator(app.ctx, lambda subject, event: subject.append(Note(1)) and None)
        with pytest.raises(EventRefusedError) as caught:
            session.append(TurnStart(1, MessageTrigger(UserSource())))
        assert caught.value.code == EventRefusedError.REENTRANT_APPEND
        assert session.seq == 0
        effect.dispose_nowait()
        session.append(TurnStart(1, MessageTrigger(UserSource())))


async def test_parked_work_runs_in_order_when_the_notification_is_over() -> None:
    # case: U-07
    async with App() as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        session.append(TurnStart(1, MessageTrigger(UserSource())))

        def note(value: str) -> None:
            session.append(Note(value))

        def broken() -> None:
            raise RuntimeError("parked")

        def on_first(event: SessionEventAppended) -> None:
            if isinstance(event.event.data, StepStart):
                session.after_notification(lambda: note("one"))
                session.after_notification(broken)
                session.after_notification(lambda: note("two"))
            elif isinstance(event.event.data, Note) and event.event.data.value == "one":
                session.after_notification(lambda: note("three"))

        app.ctx.on(SessionEventAppended, on_first)
        session.append(StepStart(1, 1))
        values = [event.data.value for event in session.events if isinstance(event.data, Note)]
        assert values == ["one", "two", "three"]
        assert [str(failure.error) for failure in failures] == ["parked"]
        assert "parked until a notification was over" in failures[0].where
        session.after_notification(lambda: note("now"))
        assert session.events[-1].data == Note("now")
        with pytest.raises(RuntimeError, match="parked"):
            session.after_notification(broken)


async def test_work_parked_by_a_validator_runs_although_the_event_is_refused() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = store.create(app.ctx)
        session.append(TurnStart(1, MessageTrigger(UserSource())))

        def veto(subject: Session, event: SessionEvent) -> None:
            if isinstance(event.data, StepStart):
                subject.after_notification(lambda: subject.append(Note("after")))
                raise DshError("no", code="VETO")

        store.validator(app.ctx, veto)
        with pytest.raises(DshError, match="no"):
            session.append(StepStart(1, 1))
        assert session.events[-1].data == Note("after")


async def test_work_parked_by_a_validator_waits_for_the_event_it_looked_at() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = store.create(app.ctx)

        def park(subject: Session, event: SessionEvent) -> None:
            if isinstance(event.data, TurnStart):
                subject.after_notification(lambda: subject.append(Note("after")))

        store.validator(app.ctx, park)
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        assert [event.type for event in session.events] == ["turn/start", "test-observers/note"]


async def test_parked_work_is_not_cut_into_by_what_it_appends() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        done: list[str] = []

        def first() -> None:
            session.append(Note("one"))
            done.append("first")

        def on_event(event: SessionEventAppended) -> None:
            if isinstance(event.event.data, TurnStart):
                session.after_notification(first)
                session.after_notification(lambda: done.append("second"))

        app.ctx.on(SessionEventAppended, on_event)
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        assert done == ["first", "second"]


async def test_closing_records_are_committed_over_an_objection() -> None:
    # case: core F-05
    # case: core F-06
    async with App() as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = store.create(app.ctx)
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        session.append(StepStart(1, 1))

        def veto(subject: Session, event: SessionEvent) -> None:
            raise DshError(f"against {event.type}", code="VETO")

        store.validator(app.ctx, veto)
        with pytest.raises(DshError, match="against test-observers/note"):
            session.append(Note(1))
        with pytest.raises(DshError, match="against tool/result"):
            session.append(ToolResult(1, 1, "c", ()), APPEND)
        session.append(synthetic_tool_result(1, 1, "c", started=False), APPEND)
        session.append(StepEnd(1, 1))
        session.append(TurnEnd(1, Completed()))
        assert session.turn_open is None
        first = session.take_objection()
        assert isinstance(first, DshError)
        assert str(first) == "against tool/result"
        assert session.take_objection() is None
        assert [str(failure.error) for failure in failures] == [
            "against step/end",
            "against turn/end",
        ]
        assert "validating step/end at seq 3" in failures[0].where


async def test_a_dispatch_veto_reaches_the_appender_but_never_keeps_a_turn_open() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        session.append(TurnStart(1, MessageTrigger(UserSource())))

        def veto(event: object, key: object, mode: str) -> None:
            if isinstance(event, SessionEventAppended):
                raise DshError("dispatch", code="VETO")

        app.on_dispatch(app.ctx, veto)
        with pytest.raises(DshError, match="dispatch"):
            session.append(Note(1))
        session.append(TurnEnd(1, Completed()))
        assert session.turn_open is None
        assert str(session.take_objection()) == "dispatch"


async def test_an_objection_at_the_door_comes_before_one_of_the_dispatch() -> None:
    async with App() as app:
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        session.append(TurnStart(1, MessageTrigger(UserSource())))

        def object_to_it(subject: Session, event: SessionEvent) -> None:
            raise DshError("validator", code="VETO")

        def veto(event: object, key: object, mode: str) -> None:
            if isinstance(event, SessionEventAppended):
                raise DshError("dispatch", code="VETO")

        app[LiveSessions].validator(app.ctx, object_to_it)
        app.on_dispatch(app.ctx, veto)
        session.append(TurnEnd(1, Completed()))
        assert str(session.take_objection()) == "validator"
        assert [str(failure.error) for failure in failures] == ["dispatch"]
        assert "turn/end at seq 1" in failures[0].where


async def test_an_objection_to_a_chunk_reaches_the_appender() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        session = app[LiveSessions].create(app.ctx)
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        session.append(StepStart(1, 1))

        def object_to_it(subject: Session, event: SessionEvent) -> None:
            raise DshError("validator", code="VETO")

        def veto(event: object, key: object, mode: str) -> None:
            if isinstance(event, SessionEventAppended):
                raise DshError("dispatch", code="VETO")

        chunk = AssistantChunk(1, 1, TextDelta(0, "x"))
        rule = app[LiveSessions].validator(app.ctx, object_to_it)
        with pytest.raises(DshError, match="validator"):
            session.append(chunk)
        assert session.seq == 2
        rule.dispose_nowait()
        app.on_dispatch(app.ctx, veto)
        with pytest.raises(DshError, match="dispatch"):
            session.append(chunk)
        assert session.events[-1].data == chunk
        assert session.take_objection() is None


async def test_validators_can_leave_chunks_out() -> None:
    async with App() as app:
        await app.mount(LiveSessions).settled()
        store = app[LiveSessions]
        session = store.create(app.ctx)
        some: list[str] = []
        every: list[str] = []
        store.validator(app.ctx, lambda _, event: some.append(event.type), chunks=False)
        store.validator(app.ctx, lambda _, event: every.append(event.type))
        session.append(TurnStart(1, MessageTrigger(UserSource())))
        session.append(StepStart(1, 1))
        session.append(AssistantChunk(1, 1, TextDelta(0, "x")))
        session.append(StepEnd(1, 1))
        assert some == ["turn/start", "step/start", "step/end"]
        assert every == ["turn/start", "step/start", "assistant/chunk", "step/end"]
