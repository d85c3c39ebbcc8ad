"""The wire form: exact spelling, both directions, inside other pydantic types too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from dsh.core import NotJsonError
from dsh.core import json as djson
from dsh.llm import (
    BlockEnd,
    BlockStart,
    CancelSignal,
    ContentBlock,
    Finish,
    FinishReason,
    LlmCallConfig,
    LlmError,
    LlmFailure,
    LlmRequest,
    Message,
    ModelInfo,
    ReasoningBlock,
    ReasoningDelta,
    ReplayState,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolResultBlock,
    ToolSchema,
    UnknownBlock,
    UsageChunk,
    block_from_wire,
    chunk_from_wire,
    from_wire,
    to_wire,
)

EXAMPLES: list[tuple[object, dict[str, Any]]] = [
    (TextBlock("a"), {"type": "text", "text": "a"}),
    (ReasoningBlock("a"), {"type": "reasoning", "text": "a"}),
    (
        ToolCallBlock("i", "n", "{}"),
        {"type": "tool-call", "id": "i", "name": "n", "arguments": "{}"},
    ),
    (
        ToolResultBlock("i", (TextBlock("a"),)),
        {"type": "tool-result", "toolCallId": "i", "content": [{"type": "text", "text": "a"}]},
    ),
    (
        ToolResultBlock("i", (), True),
        {"type": "tool-result", "toolCallId": "i", "content": [], "isError": True},
    ),
    (UnknownBlock("image", {"size": [1, 2]}), {"type": "image", "size": [1, 2]}),
    (BlockStart(0, "tool-call"), {"type": "block-start", "index": 0, "blockType": "tool-call"}),
    (TextDelta(0, "a"), {"type": "text-delta", "index": 0, "text": "a"}),
    (ReasoningDelta(1, "a"), {"type": "reasoning-delta", "index": 1, "text": "a"}),
    (
        ToolCallDelta(2, "i", "{", "n"),
        {"type": "tool-call-delta", "index": 2, "id": "i", "name": "n", "argumentsDelta": "{"},
    ),
    (
        ToolCallDelta(2, "", "}"),
        {"type": "tool-call-delta", "index": 2, "id": "", "argumentsDelta": "}"},
    ),
    (
        BlockEnd(0, TextBlock("a")),
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "a"}},
    ),
    (
        UsageChunk(TokenUsage(1, 2, 3, 4, 5)),
        {
            "type": "usage",
            "usage": {
                "inputTokens": 1,
                "outputTokens": 2,
                "cacheReadTokens": 3,
                "cacheWriteTokens": 4,
                "reasoningTokens": 5,
            },
        },
    ),
    (Finish(FinishReason("max-tokens")), {"type": "finish", "reason": {"kind": "max-tokens"}}),
    (
        Finish(
            FinishReason("error", "no", "SERVER", LlmFailure(500, 1.5, "r")),
            ReplayState("p", "m", {"a": None}),
        ),
        {
            "type": "finish",
            "reason": {
                "kind": "error",
                "message": "no",
                "code": "SERVER",
                "failure": {"status": 500, "retryAfterMs": 1.5, "requestId": "r"},
            },
            "replay": {"provider": "p", "model": "m", "state": {"a": None}},
        },
    ),
    (TokenUsage(0, 0), {"inputTokens": 0, "outputTokens": 0}),
    (
        Message("system", (TextBlock("a"),)),
        {"role": "system", "content": [{"type": "text", "text": "a"}]},
    ),
    (
        LlmCallConfig("p/m", 1, 10, (), "low"),
        {"model": "p/m", "temperature": 1, "maxTokens": 10, "stop": [], "reasoningEffort": "low"},
    ),
    (
        ToolSchema("n", "d", {"type": "object"}),
        {"name": "n", "description": "d", "parameters": {"type": "object"}},
    ),
    (
        LlmRequest("m", (), "s", (), session_id="s1", purpose="title", loop=True),
        {
            "model": "m",
            "system": "s",
            "tools": [],
            "messages": [],
            "sessionId": "s1",
            "purpose": "title",
            "loop": True,
        },
    ),
    (
        ModelInfo("m", "M", 10, 5, ("low",), ("text", "image"), "p"),
        {
            "id": "m",
            "name": "M",
            "contextWindow": 10,
            "maxOutputTokens": 5,
            "reasoningEfforts": ["low"],
            "inputModalities": ["text", "image"],
            "provider": "p",
        },
    ),
    (
        ModelInfo("m"),
        {"id": "m", "reasoningEfforts": [], "inputModalities": ["text"]},
    ),
]


@pytest.mark.parametrize(("value", "wire"), EXAMPLES)
def test_each_type_is_spelled_like_this(value: object, wire: dict[str, Any]) -> None:
    assert to_wire(value) == wire
    assert from_wire(type(value), wire) == value
    assert from_wire(type(value), value) is value
    assert TypeAdapter(type(value)).dump_python(value) == wire
    assert json.loads(TypeAdapter(type(value)).dump_json(value)) == wire


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
counts = st.integers(0, 2**53 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | counts | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
unknown_blocks = st.builds(
    UnknownBlock,
    st.sampled_from(["image", "citation", ""]),
    json_objects.map(lambda data: {key: data[key] for key in data if key != "type"}),
)
flat_blocks = st.one_of(
    st.builds(TextBlock, texts),
    st.builds(ReasoningBlock, texts),
    st.builds(ToolCallBlock, texts, texts, texts),
    unknown_blocks,
)
blocks: st.SearchStrategy[ContentBlock] = st.recursive(
    flat_blocks,
    lambda inner: st.builds(
        ToolResultBlock, texts, st.lists(inner, max_size=3).map(tuple), st.booleans()
    ),
    max_leaves=6,
)
replays = st.builds(ReplayState, texts, texts, json_objects)
usages = st.builds(
    TokenUsage, counts, counts, st.none() | counts, st.none() | counts, st.none() | counts
)
failures = st.builds(
    LlmFailure,
    st.none() | st.integers(100, 599),
    st.none() | st.floats(0.001, 1e9) | st.integers(1, 10**9),
    st.none() | texts.filter(bool),
)
reasons = st.builds(
    FinishReason,
    st.sampled_from(["stop", "tool-calls", "max-tokens", "refusal", "aborted", "error", "new"]),
    st.none() | texts,
    st.none() | texts,
    st.none() | failures,
)
chunks: st.SearchStrategy[StreamChunk] = st.one_of(
    st.builds(BlockStart, counts, texts),
    st.builds(TextDelta, counts, texts),
    st.builds(ReasoningDelta, counts, texts),
    st.builds(ToolCallDelta, counts, texts, texts, st.none() | texts),
    st.builds(BlockEnd, counts, blocks),
    st.builds(UsageChunk, usages),
    st.builds(Finish, reasons, st.none() | replays),
)
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant"]),
    st.lists(blocks, max_size=3).map(tuple),
    st.none() | replays,
)
tools = st.builds(ToolSchema, texts, texts, json_objects)
temperatures = st.none() | st.floats(0, 2) | st.integers(0, 2)
configs = st.builds(
    LlmCallConfig,
    texts,
    temperatures,
    st.none() | counts,
    st.none() | st.lists(texts, max_size=2).map(tuple),
    st.none() | texts,
)
requests = st.builds(
    LlmRequest,
    texts,
    st.lists(messages, max_size=3).map(tuple),
    st.none() | texts,
    st.none() | st.lists(tools, max_size=2).map(tuple),
    temperatures,
    session_id=st.none() | texts,
    purpose=st.none() | texts,
    loop=st.booleans(),
)


def through_json(value: object) -> Any:
    return djson.loads(djson.dumps(djson.check(to_wire(value))))


@given(chunks)
def test_chunks_survive_the_wire(chunk: StreamChunk) -> None:
    assert chunk_from_wire(through_json(chunk)) == chunk
    adapter: TypeAdapter[StreamChunk] = TypeAdapter(StreamChunk)
    assert adapter.validate_json(adapter.dump_json(chunk)) == chunk


@given(blocks)
def test_blocks_survive_the_wire(block: ContentBlock) -> None:
    assert block_from_wire(through_json(block)) == block


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(messages, requests, configs, tools, usages, reasons, replays))
def test_everything_else_survives_the_wire(value: object) -> None:
    found = from_wire(type(value), through_json(value))
    assert found == value
    # not only equal: a number that was an integer is dumped as one again
    assert djson.dumps(to_wire(found)) == djson.dumps(to_wire(value))


def test_a_request_travels_without_its_signal() -> None:
    request = LlmRequest("m", (), signal=CancelSignal())
    assert to_wire(request) == {"model": "m", "messages": []}
    assert from_wire(LlmRequest, to_wire(request)).signal is None


def test_a_message_is_read_with_a_memo_of_its_own() -> None:
    wire = to_wire(Message("user", ()))
    first, second = from_wire(Message, wire), from_wire(Message, wire)
    first.memo["a"] = 1
    assert second.memo == {}
    assert "memo" not in to_wire(first)


def test_an_unknown_block_shares_nothing_with_its_source() -> None:
    wire: dict[str, Any] = {"type": "image", "pixels": [[1]]}
    block = block_from_wire(wire)
    wire["pixels"][0].append(2)
    assert block == UnknownBlock("image", {"pixels": [[1]]})


@pytest.mark.parametrize(
    ("wire", "place"),
    [
        (None, "StreamChunk: value"),
        ({}, "value: Unable to extract tag"),
        ({"type": "ping"}, "'ping'"),
        ({"type": "text-delta", "index": 0}, "text-delta.text: Field required"),
        ({"type": "text-delta", "index": "0", "text": "a"}, "text-delta.index"),
        ({"type": "text-delta", "index": True, "text": "a"}, "text-delta.index"),
        ({"type": "text-delta", "index": 0, "text": "a", "new": 1}, "text-delta.new"),
        ({"type": "block-end", "index": 0, "block": {"type": "text"}}, "block-end.block.text.text"),
        ({"type": "block-end", "index": 0, "block": {"kind": "text"}}, "string under 'type'"),
        ({"type": "block-end", "index": 0, "block": 5}, "string under 'type'"),
        (
            {"type": "block-end", "index": 0, "block": {"type": "image", "of": float("nan")}},
            "image.of is not JSON",
        ),
        ({"type": "finish", "reason": {"kind": "error", "failure": {"status": 7}}}, "HTTP status"),
        ({"type": "finish", "reason": {"kind": ""}}, "finish.reason.kind"),
        ({"type": "finish", "reason": {"kind": "stop"}, "replay": {}}, "finish.replay.state"),
    ],
)
def test_what_is_no_chunk_is_refused_with_its_place(wire: object, place: str) -> None:
    with pytest.raises(LlmError) as caught:
        chunk_from_wire(wire)
    assert caught.value.code == LlmError.INVALID_WIRE
    assert place in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        (Message, {"role": "tool", "content": []}),
        (Message, {"role": "user", "content": "text"}),
        (Message, {"role": "user", "content": [], "memo": {}}),
        (TextBlock, {"type": "reasoning", "text": "a"}),
        (UnknownBlock, {"type": "text", "text": "a"}),
        (ToolSchema, {"name": "n", "description": "d", "parameters": []}),
        (LlmCallConfig, {"model": "m", "temperature": float("inf")}),
        (LlmCallConfig, {"model": "m", "max_tokens": 1}),
        (LlmRequest, {"model": "m", "messages": [], "signal": None}),
    ],
)
def test_what_is_no_value_is_refused(kind: type, wire: object) -> None:
    with pytest.raises(LlmError, match=f"wire form of {kind.__name__}"):
        from_wire(kind, wire)


def test_hostile_nesting_is_refused_and_not_followed() -> None:
    deep: Any = {"type": "text", "text": "a"}
    for _ in range(1000):
        deep = {"type": "tool-result", "toolCallId": "i", "content": [deep]}
    with pytest.raises(LlmError) as caught:
        block_from_wire(deep)
    assert caught.value.code == LlmError.INVALID_WIRE
    odd: Any = 0
    for _ in range(1000):
        odd = [odd]
    with pytest.raises(LlmError, match="nested deeper"):
        block_from_wire({"type": "image", "data": odd})


def test_hostile_nesting_is_not_written_either() -> None:
    deep: ContentBlock = TextBlock("a")
    for _ in range(5000):
        deep = ToolResultBlock("i", (deep,))
    with pytest.raises(NotJsonError) as caught:
        to_wire(deep)
    assert caught.value.code == "JSON_TOO_DEEP"


def test_a_foreign_value_has_no_wire_form() -> None:
    with pytest.raises(TypeError, match="no wire form"):
        to_wire(cast("Any", object()))


@dataclass(frozen=True, slots=True)
class Logged:
    """As a plugin would nest the types in a payload of its own."""

    chunk: StreamChunk
    content: tuple[ContentBlock, ...]
    usage: TokenUsage | None = None


class Model(BaseModel):
    message: Message
    chunks: list[StreamChunk]
    replay: ReplayState | None = None


def test_the_types_nest_in_dataclasses_and_models() -> None:
    adapter = TypeAdapter(Logged)
    result = ToolResultBlock("i", (TextBlock("a"), UnknownBlock("image", {"b": 1})))
    logged = Logged(BlockEnd(0, result), (result, TextBlock("c")), TokenUsage(1, 2))
    wire: Any = json.loads(adapter.dump_json(logged))
    assert wire["chunk"] == to_wire(logged.chunk)
    assert wire["content"] == [to_wire(result), to_wire(TextBlock("c"))]
    assert wire["usage"] == to_wire(TokenUsage(1, 2))
    assert adapter.validate_python(wire) == logged
    assert adapter.validate_json(json.dumps(wire)) == logged
    model = Model(message=Message("user", (result,)), chunks=[TextDelta(0, "a")])
    assert Model.model_validate_json(model.model_dump_json()) == model
    with pytest.raises(ValidationError):
        adapter.validate_python({"chunk": wire["chunk"], "content": [{"type": "text"}]})


def test_composites_are_read_too() -> None:
    pair = (Message("user", (TextBlock("a"),)), Message("assistant", ()))
    assert from_wire(tuple[Message, ...], [to_wire(message) for message in pair]) == pair
    assert from_wire(dict[str, ContentBlock], {"a": to_wire(TextBlock("x"))}) == {
        "a": TextBlock("x")
    }
