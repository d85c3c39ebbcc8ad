"""Appending: what is refused and what is detached."""

from __future__ import annotations

import copy
import pickle
import re
from collections import OrderedDict
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from dsh.core import NotJsonError
from dsh.core.testing import set_wall_clock
from dsh.llm import (
    BlockStart,
    Finish,
    FinishReason,
    ReasoningDelta,
    ReplayState,
    TextBlock,
    TextDelta,
    ToolCallDelta,
    ToolResultBlock,
    UnknownBlock,
)
from dsh.session import (
    APPEND,
    Aborted,
    AssistantChunk,
    AssistantMessage,
    ContextMessage,
    Failed,
    MessageTrigger,
    OtherSource,
    PluginSource,
    RequestHeaderDelta,
    Session,
    SessionData,
    StepEnd,
    StepStart,
    TodoItem,
    TodoWrite,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownData,
    UserMessage,
    UserSource,
    event_types,
    freeze,
    mend_text,
)
from dsh.session.errors import EventRefusedError, SessionTypeError


@dataclass(frozen=True, slots=True)
class Note(SessionData, type="test-append/note"):
    """Free-form payload of these tests."""

    value: Any


@dataclass(frozen=True, slots=True)
class TwoParts(SessionData, type="test-append/two-parts"):
    first: Any
    second: Any


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    x: int = 1


@dataclass
class Plain:
    x: int = 1


def loose() -> Session:
    return Session("s", enclosed=False)


def open_step() -> Session:
    session = Session("s")
    session.append(TurnStart(1, MessageTrigger(UserSource())))
    session.append(StepStart(1, 1))
    return session


def cycle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        2**53,
        -(2**53),
        lambda: None,
        object(),
        {1, 2},
        b"bytes",
        Decimal(1),
        datetime(2026, 1, 1, tzinfo=UTC),
        Colour.RED,
        {1: "a"},
        {"a": [1, {"b": float("nan")}]},
        cycle(),
        Model(),
        {"a": Plain()},
        int,
        complex(1, 1),
        range(3),
        "\ud800",
        {"\udfff": 1},
    ],
    ids=lambda value: type(value).__name__,
)
def test_lossy_data_is_refused_and_nothing_is_logged(value: Any) -> None:
    # case: S-01
    session = loose()
    with pytest.raises(NotJsonError, match="test-append/note") as caught:
        session.append(Note(value))
    assert caught.value.code == "NOT_JSON"
    assert session.seq == 0
    assert session.append(Note("fine")).seq == 0


def test_every_lossless_value_is_accepted() -> None:
    # case: S-01
    session = loose()
    value: dict[str, Any] = {
        "null": None,
        "yes": True,
        "int": 2**53 - 1,
        "float": -0.5,
        "text": "é\u2028\x00\x1b",
        "list": [1, [2, {"deep": []}]],
        "mapping": OrderedDict(a=1),
    }
    data = session.append(Note(value)).data
    assert isinstance(data, Note)
    assert data.value == value


@dataclass
class Loose(SessionData, type="test-append/loose"):
    value: int


def test_a_payload_that_can_change_is_refused() -> None:
    # case: S-02
    session = loose()
    with pytest.raises(NotJsonError, match="Loose can change"):
        session.append(Loose(1))
    with pytest.raises(NotJsonError, match=r"test-append/note.*Plain"):
        session.append(Note((Plain(),)))
    assert session.seq == 0


def test_one_object_in_two_places_is_no_cycle() -> None:
    # case: S-01
    shared = {"a": [1]}
    data = loose().append(TwoParts({"x": shared}, {"y": shared})).data
    assert isinstance(data, TwoParts)
    assert data.first == {"x": {"a": [1]}}
    assert data.second == {"y": {"a": [1]}}


def test_a_tuple_in_json_becomes_a_list_and_a_list_in_a_field_a_tuple() -> None:
    data = loose().append(TwoParts({"x": (1, 2)}, [1, (2, 3)])).data
    assert isinstance(data, TwoParts)
    assert data.first == {"x": [1, 2]}
    assert data.second == (1, (2, 3))


@pytest.mark.parametrize("make", [dict, list], ids=["objects", "lists"])
def test_deep_nesting_is_refused_without_overflow(make: type) -> None:
    # case: U-12
    value: Any = 1
    for _ in range(10_000):
        value = {"a": value} if make is dict else [value]
    session = loose()
    with pytest.raises(NotJsonError, match="test-append/note") as caught:
        session.append(Note({"top": value}))
    assert caught.value.code == "JSON_TOO_DEEP"
    assert session.seq == 0


def test_deep_nesting_of_blocks_is_refused_without_overflow() -> None:
    # case: U-12
    block: Any = TextBlock("x")
    for _ in range(10_000):
        block = ToolResultBlock("c", (block,))
    with pytest.raises(NotJsonError) as caught:
        loose().append(UserMessage((block,), UserSource()), APPEND)
    assert caught.value.code == "JSON_TOO_DEEP"


def test_nesting_up_to_the_limit_is_accepted() -> None:
    value: Any = 1
    for _ in range(190):
        value = [value]
    assert loose().append(Note({"v": value})).seq == 0


def test_content_can_be_checked_before_it_is_appended() -> None:
    # case: I-10
    blocks = (TextBlock("a"), TextBlock("b"))
    assert freeze(blocks, where="prompt") is blocks
    assert freeze("text") == "text"
    assert freeze([TextBlock("a")]) == (TextBlock("a"),)
    with pytest.raises(NotJsonError, match=r"prompt\[1\]\.text"):
        freeze((TextBlock("a"), TextBlock("\ud800")), where="prompt")
    with pytest.raises(NotJsonError, match=r"meta\.a\[1\]\.b is not JSON: set"):
        freeze({"z": [[1], 2], "a": [1, {"b": {1}}]}, where="meta")
    assert mend_text("plain") == "plain"
    assert mend_text("\ud83d\ude00 \udc00") == "\U0001f600 \ufffd"


def test_later_mutation_by_the_caller_changes_nothing() -> None:
    # case: S-02
    session = loose()
    first = session.append(UserMessage((TextBlock("a"),), UserSource()), APPEND)
    meta: dict[str, Any] = {"a": [1, {"b": 2}]}
    block_data: dict[str, Any] = {"k": [1]}
    content = [TextBlock("b"), UnknownBlock("odd", block_data)]
    sources = [first.seq]
    data = ToolResult(1, 1, "c", content, meta=meta)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    event = session.append(data, APPEND, sources)
    before = session.derive_messages()
    meta["a"].append(3)
    meta["a"][1]["b"] = 9
    block_data["k"].append(2)
    content.append(TextBlock("c"))
    sources.append(99)
    assert isinstance(event.data, ToolResult)
    assert event.data.meta == {"a": [1, {"b": 2}]}
    assert event.data.content == (TextBlock("b"), UnknownBlock("odd", {"k": [1]}))
    assert event.source_event_seqs == (0,)
    assert session.derive_messages() is before
    assert session.events[1] is event


def test_the_logged_value_refuses_mutation() -> None:
    # case: S-02
    data = loose().append(Note({"a": [1], "b": {"c": 1}})).data
    assert isinstance(data, Note)
    for change in (
        lambda: data.value.update(x=1),
        lambda: data.value.setdefault("x", 1),
        lambda: data.value.pop("a"),
        lambda: data.value["a"].append(2),
        lambda: data.value["a"].sort(),
        lambda: data.value.clear(),
    ):
        with pytest.raises(TypeError, match="session log"):
            change()
    with pytest.raises(TypeError, match="session log"):
        data.value["a"] = 1
    with pytest.raises(TypeError, match="session log"):
        data.value["a"][0] = 1
    with pytest.raises(TypeError, match="session log"):
        del data.value["b"]["c"]
    with pytest.raises(FrozenInstanceError):
        data.value = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert data.value == {"a": [1], "b": {"c": 1}}


def test_a_copy_of_a_logged_value_is_ordinary_and_free() -> None:
    data = loose().append(Note({"a": [1, [2]]})).data
    assert isinstance(data, Note)
    mine = copy.deepcopy(data.value)
    mine["a"][1].append(3)
    copy.deepcopy(data.value["a"]).append(3)
    shallow = copy.copy(data.value)
    shallow["b"] = 1
    inner = copy.copy(data.value["a"])
    inner.append(4)
    assert mine == {"a": [1, [2, 3]]}
    assert data.value == {"a": [1, [2]]}
    assert pickle.loads(pickle.dumps(data.value)) == data.value
    assert pickle.loads(pickle.dumps(data.value["a"])) == data.value["a"]


def test_immutable_payloads_are_shared_and_not_copied() -> None:
    session = loose()
    content = (TextBlock("a"),)
    data = UserMessage(content, UserSource())
    assert session.append(data, APPEND).data is data
    note = session.append(Note({"a": [1]})).data
    assert session.append(note).data is note


@pytest.mark.parametrize(
    "data",
    [
        UserMessage((), UserSource()),
        AssistantMessage(1, 1, ()),
        ToolResult(1, 1, "c", ()),
        ContextMessage((), UserSource()),
    ],
    ids=lambda data: data.event_type,
)
def test_a_surface_type_needs_its_marker(data: SessionData) -> None:
    # case: S-04
    session = loose()
    with pytest.raises(EventRefusedError, match=rf"{data.event_type}.*surfaceOp") as caught:
        session.append(data)
    assert caught.value.code == EventRefusedError.SURFACE_OP_MISSING
    assert session.seq == 0


def test_a_log_only_type_takes_no_marker_and_no_provenance() -> None:
    # case: S-04
    session = loose()
    session.append(Note(1))
    with pytest.raises(EventRefusedError, match="surfaceOp") as caught:
        session.append(Note(1), APPEND)
    assert caught.value.code == EventRefusedError.SURFACE_OP_UNEXPECTED
    with pytest.raises(EventRefusedError, match="sourceEventSeqs") as caught:
        session.append(Note(1), None, (0,))
    assert caught.value.code == EventRefusedError.BAD_PROVENANCE
    chunk = AssistantChunk(1, 1, TextDelta(0, "x"))
    with pytest.raises(EventRefusedError):
        session.append(chunk, APPEND)
    assert session.seq == 1


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ((1,), "at seq 1 cites an event that is not before it"),
        ((-1,), "at seq 1 cites an event that is not before it"),
        ((0, 7), "at seq 1 cites an event that is not before it"),
        ((True,), "holds something that is no integer"),
        (("0",), "holds something that is no integer"),
    ],
    ids=repr,
)
def test_provenance_names_earlier_events(sources: Any, problem: str) -> None:
    session = loose()
    session.append(Note(1))
    with pytest.raises(EventRefusedError, match=f"user/message.*{problem}") as caught:
        session.append(UserMessage((), UserSource()), APPEND, sources)
    assert caught.value.code == EventRefusedError.BAD_PROVENANCE
    assert session.seq == 1


def test_empty_provenance_is_absent() -> None:
    event = loose().append(UserMessage((), UserSource()), APPEND, ())
    assert event.source_event_seqs is None


def test_what_is_no_payload_is_refused() -> None:
    session = loose()
    with pytest.raises(NotJsonError, match="Plain"):
        session.append(Plain())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert session.seq == 0


def test_control_characters_and_nul_are_carried() -> None:
    # case: F-28
    session = loose()
    text = "".join(map(chr, range(32))) + "\x7f\u2028\u0085"
    session.append(ToolCall(1, 1, "c", "t", text))
    session.append(ToolResult(1, 1, "c", (TextBlock(text),)), APPEND)
    session.append(AssistantChunk(1, 1, TextDelta(0, text)))
    assert session.derive_messages()[0].content == (ToolResultBlock("c", (TextBlock(text),)),)


@pytest.mark.parametrize(
    "chunk",
    [
        TextDelta(0, "\ud83d"),
        ReasoningDelta(0, "a\udc00"),
        ToolCallDelta(0, "c", "\ud800"),
        Finish(FinishReason("stop"), ReplayState("p", "m", {"x": float("nan")})),
    ],
    ids=lambda chunk: chunk.type,
)
def test_a_chunk_that_cannot_be_written_is_refused(chunk: Any) -> None:
    session = open_step()
    with pytest.raises(NotJsonError, match="assistant/chunk"):
        session.append(AssistantChunk(1, 1, chunk))
    assert session.seq == 2


def test_plain_chunks_go_in_as_they_are() -> None:
    session = open_step()
    for chunk in (
        BlockStart(0, "text"),
        TextDelta(0, "é中"),
        ReasoningDelta(1, "x"),
        ToolCallDelta(2, "c", '{"é"'),
    ):
        data = AssistantChunk(1, 1, chunk)
        assert session.append(data).data is data


def test_todo_is_a_log_only_snapshot() -> None:
    # case: S-27
    session = loose()
    session.append(TodoWrite((TodoItem("a", "pending"),)))
    last = session.append(TodoWrite((TodoItem("a", "completed"), TodoItem("b", "in_progress"))))
    session.append(Note(1))
    empty = session.append(TodoWrite(()))
    assert last.surface_op is None
    assert session.derive_messages() == ()
    lists = [event.data for event in session.events if isinstance(event.data, TodoWrite)]
    assert lists[-1] is empty.data
    assert lists[-2] is last.data


def test_the_envelope_tells_seq_time_and_type() -> None:
    session = loose()
    with set_wall_clock(lambda: 1.5):
        event = session.append(Note(1))
    assert (event.seq, event.time, event.type) == (0, 1500, "test-append/note")
    assert session.append(UnknownData("some/thing", {})).type == "some/thing"
    assert session.seq == len(session.events) == 2
    assert session.events[-1].type == "some/thing"
    assert session.events[:1] == (event,)
    assert next(iter(session.events)) is event
    assert "2 events" in repr(session.events)
    assert "'s'" in repr(session)


def test_the_view_of_events_grows_and_cannot_be_written() -> None:
    session = loose()
    view = session.events
    assert len(view) == 0
    session.append(Note(1))
    assert len(view) == 1
    assert not hasattr(view, "append")


# --- event types --------------------------------------------------------------------------


def test_an_event_type_belongs_to_one_class() -> None:
    @dataclass(frozen=True, slots=True)
    class Mine(SessionData, type="test-append/mine"):
        pass

    assert event_types()["test-append/mine"] is Mine
    with pytest.raises(SessionTypeError, match="test-append/mine") as caught:

        class Other(SessionData, type="test-append/mine"):  # pyright: ignore[reportUnusedClass]
            pass

    assert caught.value.code == SessionTypeError.DUPLICATE_EVENT_TYPE


def test_the_same_class_again_replaces_it() -> None:
    def declare() -> type[SessionData]:
        @dataclass(frozen=True, slots=True)
        class Again(SessionData, type="test-append/again"):
            pass

        return Again

    first = declare()
    second = declare()
    assert event_types()["test-append/again"] is second is not first


@pytest.mark.parametrize("name", ["plain", "Upper/case", "a/", "/b", "a b/c", "a/b c"])
def test_an_event_type_has_a_family(name: str) -> None:
    with pytest.raises(SessionTypeError) as caught:

        class Bad(SessionData, type=name):  # pyright: ignore[reportUnusedClass]
            pass

    assert caught.value.code == SessionTypeError.BAD_EVENT_TYPE


def test_only_the_spine_writes_history() -> None:
    with pytest.raises(SessionTypeError, match="history") as caught:

        class Bad(SessionData, type="test-append/bad", surface=True):  # pyright: ignore[reportUnusedClass]
            pass

    assert caught.value.code == SessionTypeError.BAD_EVENT_TYPE


def test_a_type_says_whether_it_stands_in_the_history() -> None:
    class Aside(SessionData, type="test-append/aside"):
        __module__ = "dsh.session.test"

    class Said(SessionData, type="test-append/said", surface=True):
        __module__ = "dsh.session.test"

    class Derived(Said):
        __module__ = "dsh.session.test"

    assert (Aside.surface_eligible, Said.surface_eligible) == (False, True)
    assert Derived.surface_eligible


def test_a_base_class_needs_no_type() -> None:
    class Base(SessionData):
        pass

    assert Base.surface_eligible is False


def test_unknown_data_cannot_pose_as_a_spine_type() -> None:
    with pytest.raises(SessionTypeError, match="user/message"):
        UnknownData("user/message", {})


def test_an_empty_header_delta_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        RequestHeaderDelta()


def test_texts_of_closing_records_are_mended_and_not_refused() -> None:
    session = open_step()
    with pytest.raises(NotJsonError):
        session.append(Note("\ud800"))
    session.append(StepEnd(1, 1))
    session.append(TurnEnd(1, Failed(1, "broken \ud83d\ude00 and \ud800")))
    assert session.events[-1].data == TurnEnd(1, Failed(1, "broken 😀 and \ufffd"))


def test_other_kinds_and_reasons_pass_the_door() -> None:
    session = Session("s")
    session.append(TurnStart(1, MessageTrigger(OtherSource("cron", {"at": [1]}))))
    session.append(UserMessage((), PluginSource("p")), APPEND)
    session.append(TurnEnd(1, Aborted("user")))
    assert session.last_turn == 1


def test_what_is_no_payload_is_told_with_what_to_log() -> None:
    class Plain(SessionData, type="append-test/plain"):
        pass

    class Nameless(SessionData):
        pass

    session = loose()
    cases: tuple[tuple[Any, str, str], ...] = (
        ({"type": "x/y"}, "dict is not JSON: no event payload", "derives from dsh.session"),
        (Note, "the class Note", r"Note\(\.\.\.\)"),
        (Plain(), "append-test/plain is not JSON: Plain is no dataclass", "@dataclass"),
    )
    given: Any
    for given, says, hint in cases:
        with pytest.raises(NotJsonError, match=says) as refused:
            session.append(given)
        assert re.search(hint, refused.value.hint or "")
    with pytest.raises(SessionTypeError, match="Nameless has no event type") as nameless:
        session.append(Nameless())
    assert "type=" in (nameless.value.hint or "")
    assert len(session.events) == 0
