"""Sources, triggers and reasons of kinds that other wheels declare."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from dsh.core import NotJsonError, VocabularyError
from dsh.llm import TextBlock, UnknownBlock
from dsh.session import (
    APPEND,
    Completed,
    ContextMessage,
    InjectionTrigger,
    MessageSource,
    MessageTrigger,
    OtherReason,
    OtherSource,
    OtherTrigger,
    Session,
    SessionData,
    SessionEvent,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    TurnTrigger,
    UnknownData,
    UserMessage,
    UserSource,
    event_from_wire,
    event_to_wire,
    undeclared_kinds,
)
from dsh.session.errors import SessionFormatError


@dataclass(frozen=True, slots=True)
class Cron(MessageSource, kind="test-vocabulary/cron"):
    """A clock says it."""

    job_name: str
    context: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Alarm(TurnTrigger, kind="test-vocabulary/alarm"):
    """It rang."""

    at_ms: int
    source: MessageSource


@dataclass(frozen=True, slots=True)
class Snoozed(TurnEndReason, kind="test-vocabulary/snoozed"):
    """Later."""


CASES: tuple[tuple[SessionData, dict[str, Any]], ...] = (
    (
        TurnStart(1, Alarm(5, Cron("nightly"))),
        {
            "turn": 1,
            "trigger": {
                "kind": "test-vocabulary/alarm",
                "atMs": 5,
                "source": {"kind": "test-vocabulary/cron", "jobName": "nightly"},
            },
        },
    ),
    (
        TurnEnd(1, Snoozed()),
        {"turn": 1, "reason": {"kind": "test-vocabulary/snoozed"}},
    ),
    (
        UserMessage((TextBlock("a"),), Cron("j", {"a_b": [None]})),
        {
            "content": [{"type": "text", "text": "a"}],
            "source": {
                "kind": "test-vocabulary/cron",
                "jobName": "j",
                "context": {"a_b": [None]},
            },
        },
    ),
)


@pytest.mark.parametrize(("data", "wire"), CASES, ids=lambda case: type(case).__name__)
def test_declared_kinds_go_there_and_back(data: SessionData, wire: dict[str, Any]) -> None:
    event = SessionEvent(0, 1, data, APPEND if data.surface_eligible else None)
    written = event_to_wire(event)
    assert written["data"] == wire
    assert event_from_wire(written) == event
    assert undeclared_kinds([event]) == ()


def test_what_does_not_fit_its_class_is_kept() -> None:
    for trigger in (
        {"kind": "test-vocabulary/alarm", "atMs": 1},
        {"kind": "test-vocabulary/alarm", "atMs": 1, "source": {"kind": "user"}, "x": None},
    ):
        wire = {"type": "turn/start", "seq": 0, "time": 0, "data": {"turn": 1, "trigger": trigger}}
        event = event_from_wire(wire)
        assert isinstance(event.data, TurnStart)
        assert isinstance(event.data.trigger, OtherTrigger)
        assert event_to_wire(event) == wire


def test_a_kind_of_ours_that_does_not_fit_is_refused() -> None:
    data = {"turn": 1, "trigger": {"kind": "message"}}
    with pytest.raises(SessionFormatError, match="turn/start"):
        event_from_wire({"type": "turn/start", "seq": 0, "time": 0, "data": data})


def test_kinds_are_unknown_once_their_classes_are_gone() -> None:
    def write() -> list[dict[str, Any]]:
        @dataclass(frozen=True, slots=True)
        class Tick(TurnTrigger, kind="test-vocabulary/tick"):
            beat: int

        @dataclass(frozen=True, slots=True)
        class Hushed(TurnEndReason, kind="test-vocabulary/hushed"):
            why: str

        @dataclass(frozen=True, slots=True)
        class Clock(MessageSource, kind="test-vocabulary/clock"):
            zone: str

        session = Session("s")
        session.append(TurnStart(1, Tick(3)))
        session.append(ContextMessage((TextBlock("now"),), Clock("utc")), APPEND)
        session.append(TurnEnd(1, Hushed("night")))
        wires = [event_to_wire(event) for event in session.events]
        assert [event_from_wire(wire) for wire in wires] == list(session.events)
        return wires

    wires = write()
    gc.collect()
    events = [event_from_wire(wire) for wire in wires]
    assert [event.data for event in events] == [
        TurnStart(1, OtherTrigger("test-vocabulary/tick", {"beat": 3})),
        ContextMessage((TextBlock("now"),), OtherSource("test-vocabulary/clock", {"zone": "utc"})),
        TurnEnd(1, OtherReason("test-vocabulary/hushed", {"why": "night"})),
    ]
    assert [event_to_wire(event) for event in events] == wires
    assert undeclared_kinds(events) == (
        "message source test-vocabulary/clock",
        "turn trigger test-vocabulary/tick",
        "turn-end reason test-vocabulary/hushed",
    )


def test_all_that_is_unknown_in_a_log_is_named() -> None:
    events = [
        SessionEvent(0, 0, TurnStart(1, InjectionTrigger(OtherSource("b", {})))),
        SessionEvent(1, 0, UnknownData("x/y", {"content": []})),
        SessionEvent(2, 0, UserMessage((UnknownBlock("z", {}),), UserSource()), APPEND),
        SessionEvent(3, 0, TurnEnd(1, Completed())),
    ]
    assert undeclared_kinds(events) == ("block type z", "event type x/y", "message source b")


def test_declared_kinds_pass_the_door_detached() -> None:
    given: dict[str, Any] = {"a": [1]}
    session = Session("s")
    event = session.append(TurnStart(1, MessageTrigger(Cron("j", given))))
    given["a"].append(2)
    assert event.data == TurnStart(1, MessageTrigger(Cron("j", {"a": [1]})))
    with pytest.raises(NotJsonError, match="context"):
        session.append(ContextMessage((), Cron("j", {"a": object()})), APPEND)


def test_the_model_sees_the_kind_of_a_source_and_nothing_else() -> None:
    texts: list[tuple[object, ...]] = []
    for source in (Cron("secret"), OtherSource("test-vocabulary/cron", {"jobName": "secret"})):
        session = Session("s")
        session.append(TurnStart(1, Alarm(1, source)))
        session.append(ContextMessage((TextBlock("a"),), source), APPEND)
        texts.append(session.derive_messages())
    assert texts[0] == texts[1]
    assert '<context source="test-vocabulary/cron">' in repr(texts[0])
    assert "secret" not in repr(texts[0])


def test_the_families_are_apart() -> None:
    wire = {"kind": "test-vocabulary/snoozed"}
    data = {"turn": 1, "trigger": wire}
    event = event_from_wire({"type": "turn/start", "seq": 0, "time": 0, "data": data})
    assert event.data == TurnStart(1, OtherTrigger("test-vocabulary/snoozed", {}))


@pytest.mark.parametrize("kind", ["user", "plugin", "Cron", "test-vocabulary/cron"])
def test_taken_and_malformed_kinds_are_refused(kind: str) -> None:
    with pytest.raises(VocabularyError, match=kind):

        class Mine(MessageSource, kind=kind):  # pyright: ignore[reportUnusedClass]
            pass


def test_a_stand_in_cannot_pose_as_one_of_ours() -> None:
    with pytest.raises(VocabularyError, match="UserSource"):
        OtherSource("user", {})
    with pytest.raises(VocabularyError, match="Completed"):
        OtherReason("completed", {})
    with pytest.raises(VocabularyError, match="kind"):
        OtherTrigger("acme", {"kind": "message"})
    assert OtherSource("completed", {}).kind == "completed"
