"""The wire form of headers and events, and what a loader refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import TypeAdapter

from dsh.core import json as djson
from dsh.llm import (
    BlockEnd,
    Finish,
    FinishReason,
    LlmCallConfig,
    LlmFailure,
    Message,
    ReplayState,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolSchema,
    UnknownBlock,
)
from dsh.session import (
    APPEND,
    SESSION_FORMAT_VERSION,
    Aborted,
    AssistantChunk,
    AssistantMessage,
    Completed,
    ContextMessage,
    Disposed,
    ErrorInfo,
    Failed,
    InjectionTrigger,
    Interrupted,
    MaxTokens,
    MaxTurnRequests,
    MessageSource,
    MessageTrigger,
    OtherReason,
    OtherSource,
    OtherTrigger,
    PluginSource,
    PromptBlocked,
    RecordTrigger,
    Refusal,
    Rejected,
    Replace,
    RequestHeader,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    Session,
    SessionData,
    SessionEvent,
    SessionHeader,
    SteeringMessage,
    StepEnd,
    StepStart,
    SystemDelta,
    TodoItem,
    TodoWrite,
    ToolCall,
    ToolResult,
    ToolsDelta,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    TurnTrigger,
    UnknownData,
    UserMessage,
    UserSource,
    event_from_wire,
    event_to_wire,
    event_types,
    header_from_wire,
    header_to_wire,
)
from dsh.session._session_data import is_spine
from dsh.session.errors import SessionFormatError
from dsh.session.testing import reloaded, worked_turn

USER = UserSource()
TEXT = (TextBlock("t"),)
TOOL = ToolSchema("t", "d", {"type": "object", "additionalProperties": None})
HEADER = RequestHeader(LlmCallConfig("p/m", 0.5, 10, ("x",), "high"), "sys", (TOOL,), (
    Message("user", TEXT),
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class GoalSet(SessionData, type="test-wire/goal-set"):
    """A plugin's type."""

    goal_text: str
    source: MessageSource
    steps: tuple[str, ...] = ()
    due_ms: int | None = None


PAYLOADS: list[tuple[SessionData, dict[str, Any]]] = [
    (
        TurnStart(1, MessageTrigger(USER)),
        {"turn": 1, "trigger": {"kind": "message", "source": {"kind": "user"}}},
    ),
    (
        TurnStart(1, InjectionTrigger(PluginSource("p"))),
        {
            "turn": 1,
            "trigger": {"kind": "injection", "source": {"kind": "plugin", "plugin": "p"}},
        },
    ),
    (TurnStart(1, RecordTrigger()), {"turn": 1, "trigger": {"kind": "record"}}),
    (
        TurnStart(1, OtherTrigger("alarm", {"atMs": 1})),
        {"turn": 1, "trigger": {"kind": "alarm", "atMs": 1}},
    ),
    (TurnEnd(1, Completed()), {"turn": 1, "reason": {"kind": "completed"}}),
    (TurnEnd(1, Aborted()), {"turn": 1, "reason": {"kind": "aborted"}}),
    (TurnEnd(1, Aborted("u")), {"turn": 1, "reason": {"kind": "aborted", "reason": "u"}}),
    (
        TurnEnd(1, Failed(2, "m", "C", LlmFailure(429, 1000, "r"))),
        {
            "turn": 1,
            "reason": {
                "kind": "error",
                "step": 2,
                "message": "m",
                "code": "C",
                "failure": {"status": 429, "retryAfterMs": 1000, "requestId": "r"},
            },
        },
    ),
    (
        TurnEnd(1, Failed(0, "m")),
        {"turn": 1, "reason": {"kind": "error", "step": 0, "message": "m"}},
    ),
    (TurnEnd(1, Disposed()), {"turn": 1, "reason": {"kind": "disposed"}}),
    (TurnEnd(1, MaxTokens()), {"turn": 1, "reason": {"kind": "max-tokens"}}),
    (TurnEnd(1, Rejected("n")), {"turn": 1, "reason": {"kind": "rejected", "reason": "n"}}),
    (TurnEnd(1, Interrupted()), {"turn": 1, "reason": {"kind": "interrupted"}}),
    (TurnEnd(1, Refusal()), {"turn": 1, "reason": {"kind": "refusal"}}),
    (
        TurnEnd(1, MaxTurnRequests("max_steps", 3)),
        {"turn": 1, "reason": {"kind": "max-turn-requests", "limit": "max_steps", "value": 3}},
    ),
    (
        TurnEnd(1, OtherReason("later", {"x": None})),
        {"turn": 1, "reason": {"kind": "later", "x": None}},
    ),
    (StepStart(1, 2), {"turn": 1, "step": 2}),
    (StepEnd(1, 2), {"turn": 1, "step": 2}),
    (
        UserMessage(TEXT, OtherSource("cron", {"job": "j"})),
        {
            "content": [{"type": "text", "text": "t"}],
            "source": {"kind": "cron", "job": "j"},
        },
    ),
    (
        PromptBlocked((UnknownBlock("image", {"ref": 1}),), USER, "no"),
        {
            "content": [{"type": "image", "ref": 1}],
            "source": {"kind": "user"},
            "reason": "no",
        },
    ),
    (
        ContextMessage((), PluginSource("p")),
        {"content": [], "source": {"kind": "plugin", "plugin": "p"}},
    ),
    (
        SteeringMessage(3, TEXT, USER),
        {
            "turn": 3,
            "content": [{"type": "text", "text": "t"}],
            "source": {"kind": "user"},
        },
    ),
    (
        AssistantChunk(1, 2, TextDelta(0, "x")),
        {"turn": 1, "step": 2, "chunk": {"type": "text-delta", "index": 0, "text": "x"}},
    ),
    (
        AssistantChunk(1, 2, BlockEnd(0, ToolCallBlock("c", "n", "{}"))),
        {
            "turn": 1,
            "step": 2,
            "chunk": {
                "type": "block-end",
                "index": 0,
                "block": {"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"},
            },
        },
    ),
    (
        AssistantChunk(1, 2, Finish(FinishReason("stop"))),
        {"turn": 1, "step": 2, "chunk": {"type": "finish", "reason": {"kind": "stop"}}},
    ),
    (
        AssistantMessage(1, 2, TEXT, TokenUsage(1, 2, 3), True, ReplayState("p", "m", {"a": 1})),
        {
            "turn": 1,
            "step": 2,
            "content": [{"type": "text", "text": "t"}],
            "usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3},
            "interrupted": True,
            "replay": {"provider": "p", "model": "m", "state": {"a": 1}},
        },
    ),
    (
        ToolCall(1, 2, "c", "n", '{"a":1}'),
        {"turn": 1, "step": 2, "callId": "c", "name": "n", "arguments": '{"a":1}'},
    ),
    (
        ToolResult(1, 2, "c", TEXT, True, ErrorInfo("E", "CODE"), {"kept_key": [None, {"x": 1}]}),
        {
            "turn": 1,
            "step": 2,
            "callId": "c",
            "content": [{"type": "text", "text": "t"}],
            "isError": True,
            "error": {"name": "E", "code": "CODE"},
            "meta": {"kept_key": [None, {"x": 1}]},
        },
    ),
    (
        TodoWrite((TodoItem("a", "in_progress"),)),
        {"todos": [{"content": "a", "status": "in_progress"}]},
    ),
    (
        RequestHeaderSnapshot(HEADER, "initial"),
        {
            "header": {
                "config": {
                    "model": "p/m",
                    "temperature": 0.5,
                    "maxTokens": 10,
                    "stop": ["x"],
                    "reasoningEffort": "high",
                },
                "system": "sys",
                "tools": [
                    {
                        "name": "t",
                        "description": "d",
                        "parameters": {"type": "object", "additionalProperties": None},
                    }
                ],
                "messagePrefix": [{"role": "user", "content": [{"type": "text", "text": "t"}]}],
            },
            "reason": "initial",
        },
    ),
    (
        RequestHeaderDelta(
            SystemDelta(1, 0, ("x",)), ToolsDelta(removed=("t",)), LlmCallConfig("m"), ()
        ),
        {
            "system": {"keepStart": 1, "keepEnd": 0, "insert": ["x"]},
            "tools": {"added": [], "removed": ["t"], "changed": []},
            "config": {"model": "m"},
            "messagePrefix": [],
        },
    ),
    (
        GoalSet("g", PluginSource("p"), ("a",), 5),
        {
            "goalText": "g",
            "source": {"kind": "plugin", "plugin": "p"},
            "steps": ["a"],
            "dueMs": 5,
        },
    ),
    (UnknownData("some/thing", {"a": [1, None]}), {"a": [1, None]}),
]


@pytest.mark.parametrize(
    ("data", "wire"),
    PAYLOADS,
    ids=[f"{i}-{p[0].__class__.__name__}" for i, p in enumerate(PAYLOADS)],
)
def test_every_payload_has_its_wire_form_and_comes_back(
    data: SessionData, wire: dict[str, Any]
) -> None:
    # case: S-07
    event = SessionEvent(4, 1000, data, APPEND if data.surface_eligible else None)
    written = event_to_wire(event)
    shown = {key: written["data"][key] for key in written["data"] if key in wire}
    assert shown == wire
    assert set(written["data"]) - set(wire) <= {"isError", "interrupted", "steps"}
    assert event_from_wire(djson_round_trip(written)) == event
    lean = {**written, "data": wire}
    assert event_from_wire(lean) == event


def test_every_type_and_kind_of_ours_is_among_them() -> None:
    given = [data for data, _ in PAYLOADS]
    values = [data.trigger for data in given if isinstance(data, TurnStart)]
    values += [data.reason for data in given if isinstance(data, TurnEnd)]
    for found, known in (
        (given, event_types()),
        (values, {**TurnTrigger.kinds.classes(), **TurnEndReason.kinds.classes()}),
    ):
        assert {cls for cls in known.values() if is_spine(cls)} <= {type(item) for item in found}


def djson_round_trip(value: Any) -> Any:
    return djson.loads(djson.dumps(value))


def test_the_envelope() -> None:
    event = SessionEvent(4, 1000, UserMessage((), USER), Replace(1, 2), (1, 2))
    assert event_to_wire(event) == {
        "type": "user/message",
        "seq": 4,
        "time": 1000,
        "data": {"content": [], "source": {"kind": "user"}},
        "surfaceOp": {"op": "replace", "start": 1, "end": 2},
        "sourceEventSeqs": [1, 2],
    }
    assert event_from_wire(event_to_wire(event)) == event
    plain = SessionEvent(0, 1, UserMessage((), USER), APPEND)
    assert event_to_wire(plain)["surfaceOp"] == "append"
    assert "sourceEventSeqs" not in event_to_wire(plain)


def test_a_logged_event_is_written_from_its_frozen_form() -> None:
    session = Session("s", enclosed=False)
    meta: dict[str, Any] = {"a": [1, {"b": None}], "c": {}}
    result = session.append(ToolResult(1, 1, "c", TEXT, meta=meta), APPEND)
    unknown = session.append(UnknownData("some/thing", meta))
    written = event_to_wire(result)["data"]["meta"]
    assert written == meta
    assert type(event_to_wire(unknown)["data"]) is dict
    assert type(event_to_wire(unknown)["data"]["a"]) is list
    assert djson.dumps(event_to_wire(result))
    assert event_from_wire(djson_round_trip(event_to_wire(result))) == result


def test_a_whole_log_goes_there_and_back() -> None:
    # case: S-26
    session = Session("s", worked_turn())
    assert reloaded(session).events[:] == session.events[:]


def wire(kind: str, data: Any, **envelope: Any) -> dict[str, Any]:
    return {"type": kind, "seq": 3, "time": 1, "data": data, **envelope}


def test_an_unknown_log_only_type_is_kept_verbatim() -> None:
    # case: PS-29
    raw = wire("future/thing", {"camelKey": [1, {"x": None}], "snake_key": "é"})
    event = event_from_wire(raw)
    assert event.type == "future/thing"
    assert event.data == UnknownData("future/thing", raw["data"])
    assert event_to_wire(event) == raw
    marked = wire("future/thing", {}, ignorable=True)
    assert event_to_wire(event_from_wire(marked)) == marked


def test_a_plugin_type_that_does_not_fit_is_kept_verbatim() -> None:
    raw = wire("test-wire/goal-set", {"goalText": "g", "addedLater": 1})
    event = event_from_wire(raw)
    assert isinstance(event.data, UnknownData)
    assert event_to_wire(event) == raw
    session = Session("s", enclosed=False)
    assert session.append(event.data).type == "test-wire/goal-set"


@pytest.mark.parametrize("kind", ["future/message", "turn/start", "test-wire/goal-set"])
def test_an_unknown_surface_type_refuses_the_load_and_is_named(kind: str) -> None:
    # case: PS-29
    with pytest.raises(SessionFormatError, match=rf"seq 3.*{kind}") as caught:
        event_from_wire(wire(kind, {}, surfaceOp="append"))
    assert caught.value.code == SessionFormatError.UNKNOWN_SURFACE_TYPE


@pytest.mark.parametrize(
    ("raw", "token"),
    [
        (wire("turn/start", {"turn": 1}), "trigger"),
        (wire("turn/start", {"turn": "1", "trigger": {"kind": "record"}}), "turn"),
        (wire("turn/start", {"turn": 1, "trigger": {}}), "kind"),
        (wire("turn/start", {"turn": 1, "trigger": 7}), "kind"),
        (wire("step/end", {"turn": 1, "step": 1, "more": 1}), "more"),
        (wire("step/end", {"turn": 1.5, "step": 1}), "turn"),
        (wire("step/end", {"turn": True, "step": 1}), "turn"),
        (wire("turn/end", {"turn": 1, "reason": {"kind": "error"}}), "step"),
        (wire("todo/write", {"todos": [{"content": "a", "status": "later"}]}), "status"),
        (wire("request/header-delta", {}), "at least one"),
        (wire("user/message", {"content": "x", "source": {"kind": "user"}},
              surfaceOp="append"), "content"),
        (wire("step/end", [1]), "no object"),
        (wire("future/thing", None), "no object"),
        (wire("future/thing", {"x": float("nan")}), "not JSON"),
        (wire("future/thing", {}, later=1, after=2), "unknown fields after, later"),
        (wire("future/thing", {}, surfaceOp="prepend"), "surfaceOp"),
        (wire("user/message", {}, surfaceOp={"op": "replace", "start": 1}), "surfaceOp"),
        (wire("future/thing", {}, sourceEventSeqs=[1.5]), "sourceEventSeqs"),
        ({"type": "future/thing", "time": 1, "data": {}}, "seq"),
        ({"type": "future/thing", "seq": True, "time": 1, "data": {}}, "seq"),
        ({"seq": 1, "time": 1, "data": {}}, "type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_read_is_refused_and_named(raw: dict[str, Any], token: str) -> None:
    with pytest.raises(SessionFormatError, match=token) as caught:
        event_from_wire(raw)
    assert caught.value.code == SessionFormatError.MALFORMED_EVENT
    assert f"at seq {raw.get('seq')!r} of type {raw.get('type')!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (
            wire("todo/write", {"todos": [{"content": "a", "status": "later"}]}),
            r"todos\.0\.status: Input should be",
        ),
        (wire("request/header-delta", {}), "cannot be read: Value error, a"),
    ],
    ids=["in a field", "in the whole"],
)
def test_what_cannot_be_read_is_found_by_its_path(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(SessionFormatError, match=problem):
        event_from_wire(raw)


def test_numbers_are_not_coerced_into_text() -> None:
    raw = wire("tool/call", {"turn": 1, "step": 1, "callId": 5, "name": "n", "arguments": ""})
    with pytest.raises(SessionFormatError, match="callId"):
        event_from_wire(raw)


def test_a_source_that_is_one_already_is_taken_as_it_is() -> None:
    adapter = TypeAdapter[MessageSource](MessageSource)
    for source in (USER, PluginSource("p"), OtherSource("cron", {"a": 1})):
        assert adapter.validate_python(source) is source
        assert adapter.validate_python(adapter.dump_python(source)) == source


# --- headers ------------------------------------------------------------------------------


def test_a_header_goes_there_and_back() -> None:
    lean = SessionHeader(id="s", created_at=5)
    assert header_to_wire(lean) == {"version": 0, "id": "s", "createdAt": 5}
    full = SessionHeader(
        id="s", created_at=5, cwd="/w", parent_session="p", seed_length=3, origin="subagent",
        delegation_depth=1, agent_preset="x",
    )  # fmt: skip
    written = header_to_wire(full)
    assert written == {
        "version": SESSION_FORMAT_VERSION,
        "id": "s",
        "createdAt": 5,
        "cwd": "/w",
        "parentSession": "p",
        "seedLength": 3,
        "origin": "subagent",
        "delegationDepth": 1,
        "agentPreset": "x",
    }
    for header in (lean, full, SessionHeader(id="s", created_at=0)):
        assert header_from_wire(djson_round_trip(header_to_wire(header))) == header


def test_another_version_is_refused_before_anything_else() -> None:
    # case: PS-29
    # case: F-24
    with pytest.raises(SessionFormatError, match="upgrade") as newer:
        header_from_wire({"version": 1, "id": "s", "unheardOf": []})
    with pytest.raises(SessionFormatError, match="version that wrote it") as older:
        header_from_wire({"version": -1, "id": "s"})
    for caught in (newer, older):
        assert caught.value.code == SessionFormatError.UNSUPPORTED_VERSION
        assert "'s'" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"version": None},
        {"version": "0"},
        {"createdAt": 1.5},
        {"createdAt": -1},
        {"createdAt": None},
        {"id": 5},
        {"later": True},
    ],
    ids=repr,
)
def test_a_header_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    # case: PS-02
    with pytest.raises(SessionFormatError) as caught:
        header_from_wire({"version": 0, "id": "s", "createdAt": 1, **change})
    assert caught.value.code == SessionFormatError.MALFORMED_HEADER
