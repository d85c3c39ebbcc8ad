"""Events as bytes and rows: what the wire form of objects means, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.core import DshError, NotJsonError
from dsh.core import json as djson
from dsh.llm import (
    BlockEnd,
    Finish,
    FinishReason,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallDelta,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    EventRow,
    Replace,
    Session,
    SessionData,
    SessionEvent,
    StepStart,
    ToolResult,
    UnknownData,
    UserMessage,
    UserSource,
    decode_event,
    encode_event,
    event_from_row,
    event_from_wire,
    event_to_row,
    event_to_wire,
    event_types,
)
from dsh.session._session_data import is_spine
from dsh.session.errors import SessionFormatError
from dsh.session.testing import worked_turn

Logs = st.SearchStrategy[tuple[SessionEvent, ...]]

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True, slots=True)
class Noted(SessionData, type="test-codec/noted"):
    """A plugin's type."""

    some_text: str
    marks: tuple[int, ...] = ()


def outcome(read: Callable[[], object]) -> object:
    """Return what a call gives, down to the types, or how it refuses."""
    try:
        return repr(read())
    except DshError as error:
        return type(error), error.code, error.message, error.hint


def through_wire(event: SessionEvent) -> Any:
    return djson.loads(djson.dumps(event_to_wire(event)))


@many
@given(data=st.data())
def test_every_event_is_written_and_read_as_its_wire_form(logs: Logs, data: st.DataObject) -> None:
    for event in data.draw(logs):
        line = encode_event(event)
        assert b"\n" not in line
        assert djson.loads(line) == through_wire(event)
        assert repr(decode_event(line)) == repr(event_from_wire(through_wire(event)))
        assert decode_event(line) == event
        row = event_to_row(event)
        assert repr(event_from_row(*row)) == repr(event_from_wire(through_wire(event)))


def test_random_payloads_are_of_every_type(payloads: st.SearchStrategy[SessionData]) -> None:
    found: set[type] = set()

    @settings(max_examples=500, derandomize=True, database=None, deadline=None)
    @given(data=payloads)
    def draw(data: SessionData) -> None:
        found.add(type(data))

    draw()
    assert {cls for cls in event_types().values() if is_spine(cls)} <= found


@pytest.mark.parametrize(
    "event", worked_turn(), ids=[f"{event.seq}-{event.type}" for event in worked_turn()]
)
def test_the_spelling_is_that_of_the_wire_form(event: SessionEvent) -> None:
    assert encode_event(event) == djson.dumps(event_to_wire(event))


DELTAS = (
    TextDelta(0, "caf\u00e9 \u2028"),
    ReasoningDelta(1, ""),
    ToolCallDelta(2, "c", '{"a"', "tool"),
    ToolCallDelta(2, "c", ":1}"),
)
STRAIGHT = (
    *worked_turn(),
    *(SessionEvent(7, 1000, AssistantChunk(1, 2, delta)) for delta in DELTAS),
    SessionEvent(7, 1000, AssistantChunk(1, 2, BlockEnd(0, TextBlock("x")))),
    SessionEvent(9, 1000, UserMessage((), UserSource()), APPEND, (1, 2)),
)


def long_way(*_: object) -> NoReturn:
    raise AssertionError("the long way was taken")


@pytest.mark.parametrize("event", STRAIGHT, ids=lambda event: f"{event.seq}-{event.type}")
def test_what_is_written_is_read_without_the_long_way(
    event: SessionEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, row = encode_event(event), event_to_row(event)
    monkeypatch.setattr("dsh.session._codec.event_from_wire", long_way)
    assert decode_event(line) == event
    assert event_from_row(*row) == event


@pytest.mark.parametrize("delta", DELTAS, ids=lambda delta: delta.type)
def test_deltas_are_written_without_a_serializer(
    delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = SessionEvent(7, 1000, AssistantChunk(1, 2, delta))
    wire = event_to_wire(event)
    monkeypatch.setattr("dsh.session._codec.adapter_of", long_way)
    assert djson.loads(encode_event(event)) == djson.loads(djson.dumps(wire))


@pytest.mark.parametrize("delta", DELTAS, ids=lambda delta: delta.type)
@pytest.mark.parametrize("field", ["turn", "step", "index", "more"])
def test_a_delta_with_a_field_of_another_type_is_refused(delta: Any, field: str) -> None:
    wire: Any = event_to_wire(SessionEvent(7, 1000, AssistantChunk(1, 2, delta)))
    place = wire["data"] if field in {"turn", "step"} else wire["data"]["chunk"]
    place[field] = "1"
    assert outcome(lambda: decode_event(djson.dumps(wire))) == outcome(
        lambda: event_from_wire(wire)
    )


def test_a_row_has_a_column_for_each_field_of_the_envelope() -> None:
    event = SessionEvent(4, 1000, UserMessage((), UserSource()), Replace(1, 2), (1, 2))
    assert event_to_row(event) == EventRow(
        "user/message",
        4,
        1000,
        '{"content":[],"source":{"kind":"user"}}',
        '{"op":"replace","start":1,"end":2}',
        "[1,2]",
    )
    plain = SessionEvent(0, 1, UserMessage((), UserSource()), APPEND)
    assert event_to_row(plain)[4:] == ('"append"', None, None)
    marked = SessionEvent(0, 1, UnknownData("far/away", {"a": 1}, ignorable=True))
    assert event_to_row(marked) == EventRow("far/away", 0, 1, '{"a":1}', ignorable=1)
    for each in (event, plain, marked):
        assert event_from_row(*event_to_row(each)) == each


def test_a_plugins_type_is_read_as_its_class_or_kept() -> None:
    event = SessionEvent(3, 5, Noted("ü", (1, 2)))
    assert decode_event(encode_event(event)) == event
    assert event_from_row(*event_to_row(event)) == event
    wire: Any = {"type": "test-codec/noted", "seq": 3, "time": 5, "data": {"someText": 1}}
    assert decode_event(djson.dumps(wire)).data == UnknownData("test-codec/noted", {"someText": 1})
    kept = event_from_row("test-codec/noted", 3, 5, '{"someText":1}')
    assert kept == decode_event(djson.dumps(wire))


ODD: list[Any] = [
    None, True, 1, -1, 1.0, 2.5, "", "1", "append", [], ["x"], [True], {}, {"x": 1},
]  # fmt: skip


@st.composite
def bent(draw: st.DrawFn, wire: Any) -> Any:
    """Change one thing somewhere in a wire form."""
    if isinstance(wire, dict):
        fields = cast("dict[str, Any]", wire)
        if fields and draw(st.integers(0, 3)):
            key = draw(st.sampled_from(sorted(fields)))
            return {**fields, key: draw(bent(fields[key]))}
        gone = draw(st.sampled_from([*sorted(fields), "later"]))
        if draw(st.booleans()):
            return {key: value for key, value in fields.items() if key != gone}
        return {**fields, gone: draw(st.sampled_from(ODD))}
    if isinstance(wire, list) and wire and draw(st.booleans()):
        items = cast("list[Any]", wire)
        at = draw(st.integers(0, len(items) - 1))
        return [*items[:at], draw(bent(items[at])), *items[at + 1 :]]
    return draw(st.sampled_from(ODD))


@many
@given(data=st.data())
def test_what_is_bent_reads_or_fails_in_the_same_way(logs: Logs, data: st.DataObject) -> None:
    for event in data.draw(logs):
        wire = data.draw(bent(through_wire(event)))
        line = json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode()
        assert outcome(partial(decode_event, line)) == outcome(partial(event_from_wire, wire))


@many
@given(data=st.data())
def test_bent_columns_read_or_fail_as_the_wire_form_does(logs: Logs, data: st.DataObject) -> None:
    for event in data.draw(logs):
        wire = through_wire(event)
        wire["data"] = data.draw(bent(wire["data"]))
        for name in ("surfaceOp", "sourceEventSeqs"):
            if name in wire:
                wire[name] = data.draw(bent(wire[name]))
        columns = (
            wire["type"],
            wire["seq"],
            wire["time"],
            json.dumps(wire["data"]),
            json.dumps(wire["surfaceOp"]) if "surfaceOp" in wire else None,
            json.dumps(wire["sourceEventSeqs"]) if "sourceEventSeqs" in wire else None,
            1 if "ignorable" in wire else None,
        )
        assert outcome(partial(event_from_row, *columns)) == outcome(partial(event_from_wire, wire))


def test_another_spelling_of_the_same_is_read() -> None:
    event = SessionEvent(4, 1000, AssistantChunk(1, 2, TextDelta(0, "ü")))
    wire = event_to_wire(event)
    for spelling in (
        json.dumps(wire),
        json.dumps(wire, indent=1),
        json.dumps(dict(reversed(wire.items()))),
        json.dumps(wire, sort_keys=True),
    ):
        assert decode_event(spelling.encode()) == event


@pytest.mark.parametrize(
    "chunk",
    [
        TextDelta(0, "x" * 10),
        ToolCallDelta(1, "", "{", None),
        ToolCallDelta(1, "c", "", "n"),
        BlockEnd(0, TextBlock('a"chunk":{"type":"b')),
        Finish(FinishReason("stop")),
    ],
    ids=lambda chunk: chunk.type,
)
def test_a_chunk_is_read_whatever_its_kind(chunk: Any) -> None:
    event = SessionEvent(4, 1000, AssistantChunk(1, 2, chunk))
    assert repr(decode_event(encode_event(event))) == repr(event)


def test_a_payload_as_deep_as_a_log_takes_comes_back() -> None:
    deep: dict[str, Any] = {}
    for _ in range(198):
        deep = {"a": deep}
    session = Session("s", enclosed=False)
    for event in (
        session.append(ToolResult(1, 1, "c", (), meta=deep["a"]), APPEND),
        session.append(UnknownData("far/away", deep)),
    ):
        assert decode_event(encode_event(event)) == event
        assert event_from_row(*event_to_row(event)) == event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b'{"type":"step/start"',
        b"\xff",
        b'{"type":"step/start","seq":NaN}',
    ],
)
def test_what_is_no_json_object_is_malformed(line: bytes) -> None:
    with pytest.raises(SessionFormatError, match="an event is no JSON") as caught:
        decode_event(line)
    assert caught.value.code == SessionFormatError.MALFORMED_EVENT


@pytest.mark.parametrize(
    "columns",
    [
        ("step/start", 1, 1, None),
        ("step/start", 1, 1, b"\xff"),
        ("step/start", 1, 1, "{"),
        ("step/start", 1, 1, "[]"),
        ("step/start", None, 1, '{"turn":1,"step":1}'),
        ("step/start", 1, 1, '{"turn":1,"step":1}', "append"),
        ("step/start", 1, 1, '{"turn":1,"step":1}', None, "1"),
        ("step/start", 1, 1, '{"turn":1,"step":1}', None, ""),
        ("step/start", 1, 1, '{"turn":1,"step":1}', None, 0),
        (None, 1, 1, "{}"),
    ],
)
def test_a_row_that_is_none_is_malformed(columns: tuple[Any, ...]) -> None:
    with pytest.raises(SessionFormatError) as caught:
        event_from_row(*columns)
    assert caught.value.code == SessionFormatError.MALFORMED_EVENT


def test_a_row_of_a_log_only_type_takes_no_surface_operation() -> None:
    with pytest.raises(SessionFormatError) as caught:
        event_from_row("step/start", 1, 1, '{"turn":1,"step":1}', '"append"')
    assert caught.value.code == SessionFormatError.UNKNOWN_SURFACE_TYPE


@pytest.mark.parametrize(
    "data",
    [
        UnknownData("far/away", {"x": float("nan")}),
        UnknownData("far/away", {"x": {1}}),
        UnknownData("far/away", {"x": "\ud800"}),
        UserMessage((TextBlock("\ud800"),), UserSource()),
        AssistantChunk(1, 1, TextDelta(0, "\ud800")),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_is_no_json_is_not_written(data: SessionData) -> None:
    event = SessionEvent(0, 0, data)
    with pytest.raises(NotJsonError):
        encode_event(event)
    with pytest.raises(NotJsonError):
        event_to_row(event)


def test_a_field_of_a_wrong_type_is_written_as_the_wire_form_has_it() -> None:
    chunk: Any = TextDelta(0, "x")
    odd = SessionEvent(0, 0, AssistantChunk(True, 1, chunk))
    assert djson.loads(encode_event(odd)) == through_wire(odd)
    fine = replace(odd, data=StepStart(1, 1))
    assert djson.loads(encode_event(fine)) == through_wire(fine)
