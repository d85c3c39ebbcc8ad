"""Rows that stand for many events: an answer's stream, and the message that only repeats it.

Nearly every event of a log is a chunk of a stream, and most of those are deltas of a few
characters. The chunks of a step that stand together are one row, with the gaps between their
times; a run of deltas of one block is one of its items, with its text joined and the lengths:

    {"type":"chunks","seq":3,"time":9,"data":{"turn":1,"step":1,"chunks":[
      {"type":"block-start","index":0,"blockType":"text"},
      {"type":"text-deltas","index":0,"text":"hello","sizes":"KL9lk00"},
      {"type":"block-end","index":0,"since":4}],"gaps":"KL9lk0A"}}

The end of a block repeats what its deltas add up to. Where it is exactly that, it says where they
begin (`since`). The message repeats the blocks once more. Where one of them is exactly what ended
in the same step, the row of the message has the number of that event in its place:

    {"type":"message","seq":12,"time":9,"data":{"turn":1,"step":1,"content":[7]},
     "surfaceOp":"append","sourceEventSeqRanges":[[3,11]]}

And it cites all events it was made from, which are ranges (`sourceEventSeqRanges`). All of it is
lossless. Names of rows have no slash, so no event type can be mistaken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias, cast

from pydantic_core import from_json, to_json

from dsh.llm import (
    BlockEnd,
    ContentBlock,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
)
from dsh.session import (
    AssistantChunk,
    AssistantMessage,
    SessionEvent,
    decode_event,
    event_from_wire,
)
from dsh.session_persistence_jsonl._numbers import stretch, unzigzag

__all__ = ["CHUNKS", "MAX_CHUNKS", "MESSAGE", "RUNS", "Delta", "RowError", "block_of", "read_line"]

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta

CHUNKS: Final = "chunks"
"""Name of the row of chunks of a stream."""

MESSAGE: Final = "message"
"""Name of the row of a message that points to its blocks."""

RUNS: Final[dict[type[Delta], str]] = {
    TextDelta: "text-deltas",
    ReasoningDelta: "reasoning-deltas",
    ToolCallDelta: "tool-call-deltas",
}
"""Names of the items that are runs of deltas."""

MAX_CHUNKS: Final = 16_384
"""The most chunks in one row."""

_KINDS: Final = {name: kind for kind, name in RUNS.items()}
_MAX_CITED: Final = 10_000_000

Before: TypeAlias = "list[SessionEvent] | None"
"""The events before a row; None if they are not known."""


class RowError(ValueError):
    """A row that stands for several events, or points to some, does not hold what it should."""


def block_of(deltas: Sequence[Delta]) -> ContentBlock | None:
    """Return the block that deltas add up to; None if they are not of one block."""
    if not deltas or len(set(map(type, deltas))) > 1:
        return None
    last = deltas[-1]
    text = "".join(map(_text_of, deltas))
    if isinstance(last, TextDelta):
        return TextBlock(text)
    if isinstance(last, ReasoningDelta):
        return ReasoningBlock(text)
    calls = cast("Sequence[ToolCallDelta]", deltas)
    names = [delta.name for delta in calls if delta.name is not None]
    return ToolCallBlock(last.id, names[-1], text) if names else None


def _text_of(delta: Delta) -> str:
    return delta.arguments_delta if isinstance(delta, ToolCallDelta) else delta.text


def read_line(text: bytes, events: Before) -> Iterable[SessionEvent]:
    """Return the events that a JSON object of a log stands for.

    Args:
        text: The object.
        events: The events before it; those an object refers to are among them. None if they are
            not known: then what it refers to is left out.

    Raises:
        SessionFormatError: It is an event that cannot be read here, see `decode_event`.
        RowError: It is a row of several events and not as it should be.
    """
    row = _ROWS.get(text[9 : text.find(b'"', 9)])
    if row is not None:
        return row(text, events)
    return (_read_event(text),)


def _read_event(text: bytes) -> SessionEvent:
    if text.endswith(b"]]}"):
        found = _CITED.search(text)
        if found is not None:
            event = decode_event(text[: found.start()] + b"}")
            return replace(event, source_event_seqs=_cited(found[1]))
    return decode_event(text)


_CITED: Final = re.compile(
    rb',"sourceEventSeqRanges":(\[\[[0-9]+,[0-9]+\](?:,\[[0-9]+,[0-9]+\])*\])\}\Z'
)


def _cited(text: bytes) -> tuple[int, ...]:
    ranges = cast("list[tuple[int, int]]", from_json(text))
    if sum(end - start + 1 for start, end in ranges) > _MAX_CITED:
        raise RowError("it cites more events than there can be")
    return tuple(seq for start, end in ranges for seq in range(start, end + 1))


# --- chunks -------------------------------------------------------------------------------


def _read_chunks(text: bytes, events: Before) -> Iterable[SessionEvent]:
    row = _object_of(text)
    _only(row, "type", "seq", "time", "data")
    data = _object(row, "data")
    _only(data, "turn", "step", "chunks", "gaps")
    seq, turn, step = _whole(row, "seq"), _whole(data, "turn"), _whole(data, "step")
    payloads: list[AssistantChunk] = []
    for item in _list(data, "chunks"):
        fields = _fields(item)
        kind = _KINDS.get(fields.get("type", ""))
        if kind is not None:
            payloads += [AssistantChunk(turn, step, delta) for delta in _deltas(kind, fields)]
        elif "since" in fields:
            payloads.append(_end(turn, step, fields, seq, payloads, events))
        else:
            wire = {"turn": turn, "step": step, "chunk": item}
            event = event_from_wire({"type": "assistant/chunk", "seq": 0, "time": 0, "data": wire})
            if not isinstance(event.data, AssistantChunk):
                raise RowError("it holds something that is no chunk")
            payloads.append(event.data)
    gaps = _numbers(data, "gaps")
    if len(gaps) != len(payloads) - 1:
        raise RowError("it has not as many times as chunks")
    times = accumulate(map(unzigzag, gaps), initial=_whole(row, "time"))
    return map(SessionEvent, range(seq, seq + len(payloads)), times, payloads)


def _deltas(kind: type[Delta], fields: dict[str, Any]) -> Iterable[Delta]:
    """Return the deltas of a run."""
    call = ("id", "name") if "name" in fields else ("id",)
    _only(fields, "type", "index", "text", "sizes", *(call if kind is ToolCallDelta else ()))
    index, joined, sizes = _whole(fields, "index"), _text(fields, "text"), _numbers(fields, "sizes")
    ends = list(accumulate(sizes))
    if not sizes or ends[-1] != len(joined):
        raise RowError("its lengths do not add up to its text")
    pieces = (joined[start:end] for start, end in zip((0, *ends), ends, strict=False))
    if kind is not ToolCallDelta:
        plain = cast("type[TextDelta | ReasoningDelta]", kind)
        return (plain(index, piece) for piece in pieces)
    call_id = _text(fields, "id")
    name = _text(fields, "name") if "name" in fields else None
    return (ToolCallDelta(index, call_id, piece, name) for piece in pieces)


def _end(
    turn: int,
    step: int,
    fields: dict[str, Any],
    seq: int,
    payloads: Sequence[AssistantChunk],
    events: Before,
) -> AssistantChunk:
    """Return the end of a block that says where its deltas begin."""
    _only(fields, "type", "index", "since")
    index, since = _whole(fields, "index"), _whole(fields, "since")
    if fields["type"] != BlockEnd.type or since < 0:
        raise RowError("it ends no block that has deltas")
    before = (event.data for event in (events or ())[since:seq])
    deltas = [
        data.chunk
        for data in chain(before, payloads[max(0, since - seq) :])
        if isinstance(data, AssistantChunk)
        and isinstance(data.chunk, TextDelta | ReasoningDelta | ToolCallDelta)
        and (data.turn, data.step, data.chunk.index) == (turn, step, index)
    ]
    block = block_of(deltas)
    if block is None:
        if events is not None:
            raise RowError("it ends no block that has deltas")
        block = TextBlock("")
    return AssistantChunk(turn, step, BlockEnd(index, block))


# --- messages -----------------------------------------------------------------------------


def _read_message(text: bytes, events: Before) -> Iterable[SessionEvent]:
    row = _object_of(text)
    data = _object(row, "data")
    content = _list(data, "content")
    places = [item if type(item) is int else None for item in content]
    repeated = [item for item in content if type(item) is not int]
    plain = {**row, "type": "assistant/message", "data": {**data, "content": repeated}}
    event = _read_event(to_json(plain))
    message = event.data
    if not isinstance(message, AssistantMessage):
        raise RowError("it is no message")
    rest = iter(message.content)
    blocks = (next(rest) if at is None else _block_at(events, at) for at in places)
    whole = tuple(block for block in blocks if block is not None)
    return (replace(event, data=replace(message, content=whole)),)


def _block_at(events: Before, seq: int) -> ContentBlock | None:
    if events is None:
        return None
    data = events[seq].data if 0 <= seq < len(events) else None
    if not isinstance(data, AssistantChunk) or not isinstance(data.chunk, BlockEnd):
        raise RowError(f"it repeats a block that did not end at seq {seq}")
    return data.chunk.block


_ROWS: Final[dict[bytes, Callable[[bytes, Before], Iterable[SessionEvent]]]] = {
    CHUNKS.encode(): _read_chunks,
    MESSAGE.encode(): _read_message,
}


# --- fields -------------------------------------------------------------------------------


def _object_of(text: bytes) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", from_json(text))
    except ValueError as error:
        raise RowError(f"it is no JSON: {error}") from error


def _only(fields: dict[str, Any], *names: str) -> None:
    if set(fields) != set(names):
        raise RowError("it holds other fields than it should")


def _fields(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RowError("an item of it is no object")
    return cast("dict[str, Any]", value)


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return _fields(fields.get(name))


def _list(fields: dict[str, Any], name: str) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise RowError(f"{name} is no list")
    return cast("list[object]", value)


def _whole(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int:
        raise RowError(f"{name} is no integer")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise RowError(f"{name} is no text")
    return value


def _numbers(fields: dict[str, Any], name: str) -> list[int]:
    try:
        return stretch(_text(fields, name), MAX_CHUNKS)
    except ValueError as error:
        raise RowError(str(error)) from error
