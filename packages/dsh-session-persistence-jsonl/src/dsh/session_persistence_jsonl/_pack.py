"""Rows that stand for many events: the deltas of a stream, and what only repeats them.

Nearly every event of a log is a delta of a few characters. A run of them becomes one row with
the text joined, and the lengths and the gaps between their times beside it:

    {"type":"text-chunks","seq":4,"time":9,"data":{"turn":1,"step":1,"index":0,"text":"hello",
     "sizes":"Y2YGAA==","gaps":"Y2AAAA=="}}

The end of a block repeats the whole text of its deltas. Where it is exactly that, its row says
where they begin:

    {"type":"block-end","seq":9,"time":9,"data":{"turn":1,"step":1,"index":0,"since":4,
     "block":{"type":"text"}}}

And a message cites all events it was made from, which are ranges (`sourceEventSeqRanges`). All
of it is lossless. Names of rows have no slash, so no event type can be mistaken for one.
"""

from __future__ import annotations

import re
import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, repeat
from typing import Any, Final, TypeAlias, cast

from pydantic_core import from_json, to_json

from dsh.llm import (
    BlockEnd,
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
    StepEnd,
    StepStart,
    TurnEnd,
    decode_event,
    encode_event,
)

__all__ = ["Packer", "RowError", "read_line"]

MIN_RUN: Final = 3
"""A shorter run is not worth a row of its own."""

MAX_RUN: Final = 16_384
"""Longest run in one row."""

_MIN_REPEATED: Final = 80
"""A shorter text is repeated, since pointing to it takes as many bytes."""

_MAX_CITED: Final = 10_000_000
_MAX_INTEGER: Final = 2**60

_Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
_Run: TypeAlias = tuple[type[_Delta], int, int, int, str, str | None]
"""What the deltas of one row have in common: kind, turn, step, index, call id, tool name."""


class RowError(ValueError):
    """A row that stands for several events does not hold what it should."""


# --- writing ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stream:
    """A block whose deltas have been written."""

    kind: type[_Delta]
    since: int
    texts: list[str]


class Packer:
    """Turns the batches of one session into rows; it remembers the deltas of open blocks."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: dict[tuple[int, int, int], _Stream] = {}

    def rows(self, events: Sequence[SessionEvent]) -> Iterator[bytes]:
        """Return the rows of the next batch, as JSON objects without line ends.

        A packer whose batch was not stored must not be used again.
        """
        run: list[SessionEvent] = []
        key: _Run | None = None
        for event in events:
            found = _run_of(event)
            if found != key or len(run) == MAX_RUN:
                yield from _flush(run, key)
                run, key = [], found
            if found is None:
                yield self._row(event)
            else:
                run.append(event)
                self._note(event, found)
        yield from _flush(run, key)

    def _note(self, event: SessionEvent, run: _Run) -> None:
        kind, turn, step, index, _, _ = run
        stream = self._streams.get((turn, step, index))
        if stream is None or stream.kind is not kind:
            stream = self._streams[turn, step, index] = _Stream(kind, event.seq, [])
        stream.texts.append(_text_of(_delta(event)))

    def _row(self, event: SessionEvent) -> bytes:
        data = event.data
        seqs = event.source_event_seqs
        if isinstance(data, AssistantChunk):
            if seqs is None and isinstance(data.chunk, BlockEnd):
                return self._block_end(event, data, data.chunk) or encode_event(event)
        elif isinstance(data, AssistantMessage | StepStart | StepEnd | TurnEnd):
            self._streams.clear()
        ranges = None if seqs is None else _ranges(seqs)
        if ranges is None:
            return encode_event(event)
        lean = encode_event(SessionEvent(event.seq, event.time, data, event.surface_op))
        return lean[:-1] + b',"sourceEventSeqRanges":' + to_json(ranges) + b"}"

    def _block_end(
        self, event: SessionEvent, data: AssistantChunk, chunk: BlockEnd
    ) -> bytes | None:
        stream = self._streams.pop((data.turn, data.step, chunk.index), None)
        block = chunk.block
        rest: dict[str, Any]
        fits: type[_Delta]
        if isinstance(block, TextBlock | ReasoningBlock):
            rest, text = {"type": block.type}, block.text
            fits = TextDelta if isinstance(block, TextBlock) else ReasoningDelta
        elif isinstance(block, ToolCallBlock):
            rest = {"type": block.type, "id": block.id, "name": block.name}
            text, fits = block.arguments, ToolCallDelta
        else:
            return None
        if (
            stream is None
            or stream.kind is not fits
            or len(text) < _MIN_REPEATED
            or "".join(stream.texts) != text
        ):
            return None
        return _object(
            "block-end",
            event,
            {
                "turn": data.turn,
                "step": data.step,
                "index": chunk.index,
                "since": stream.since,
                "block": rest,
            },
        )


def _run_of(event: SessionEvent) -> _Run | None:
    """Return what a delta has to have in common with its neighbours; None for anything else."""
    data = event.data
    if type(data) is not AssistantChunk:
        return None
    if event.surface_op is not None or event.source_event_seqs is not None:
        return None
    chunk = data.chunk
    if isinstance(chunk, TextDelta | ReasoningDelta):
        return (type(chunk), data.turn, data.step, chunk.index, "", None)
    if isinstance(chunk, ToolCallDelta):
        return (ToolCallDelta, data.turn, data.step, chunk.index, chunk.id, chunk.name)
    return None


def _delta(event: SessionEvent) -> _Delta:
    return cast("_Delta", cast("AssistantChunk", event.data).chunk)


def _text_of(delta: _Delta) -> str:
    return delta.arguments_delta if isinstance(delta, ToolCallDelta) else delta.text


def _flush(run: list[SessionEvent], key: _Run | None) -> Iterator[bytes]:
    if key is None or len(run) < MIN_RUN:
        yield from map(encode_event, run)
        return
    kind, turn, step, index, call_id, name = key
    texts = [_text_of(_delta(event)) for event in run]
    times = [event.time for event in run]
    data: dict[str, Any] = {"turn": turn, "step": step, "index": index}
    if kind is ToolCallDelta:
        data["id"] = call_id
        if name is not None:
            data["name"] = name
    data["text"] = "".join(texts)
    data["sizes"] = _squeeze(map(len, texts))
    data["gaps"] = _squeeze(_zigzag(after - before) for before, after in pairwise(times))
    yield _object(_NAMES[kind], run[0], data)


def _object(name: str, first: SessionEvent, data: dict[str, Any]) -> bytes:
    return to_json({"type": name, "seq": first.seq, "time": first.time, "data": data})


def _ranges(seqs: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return ranges that add up to these numbers, or None if that would not be shorter."""
    ranges: list[tuple[int, int]] = []
    if len(seqs) < MIN_RUN:
        return None
    for seq in seqs:
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges if 0 < 2 * len(ranges) < len(seqs) else None


# --- reading ------------------------------------------------------------------------------


def read_line(text: bytes, events: list[SessionEvent]) -> Iterable[SessionEvent]:
    """Return the events that a JSON object of a log stands for.

    Args:
        text: The object.
        events: The events before it; those an object refers to are among them.

    Raises:
        SessionFormatError: It is an event that cannot be read here, see `decode_event`.
        RowError: It is a row of several events and not as it should be.
    """
    row = _ROWS.get(text[9 : text.find(b'"', 9)])
    if row is not None:
        return row(text, events)
    if text.endswith(b"]]}"):
        found = _CITED.search(text)
        if found is not None:
            event = decode_event(text[: found.start()] + b"}")
            return (replace(event, source_event_seqs=_cited(found[1])),)
    return (decode_event(text),)


_CITED: Final = re.compile(
    rb',"sourceEventSeqRanges":(\[\[[0-9]+,[0-9]+\](?:,\[[0-9]+,[0-9]+\])*\])\}\Z'
)


def _cited(text: bytes) -> tuple[int, ...]:
    ranges = cast("list[tuple[int, int]]", from_json(text))
    if sum(end - start + 1 for start, end in ranges) > _MAX_CITED:
        raise RowError("it cites more events than there can be")
    return tuple(seq for start, end in ranges for seq in range(start, end + 1))


def _read_run(kind: type[_Delta], text: bytes) -> Iterable[SessionEvent]:
    seq, time, data = _envelope(text)
    names = {"turn", "step", "index", "text", "sizes", "gaps"}
    if kind is ToolCallDelta:
        names |= {"id", "name"} if "name" in data else {"id"}
    if set(data) != names:
        raise RowError("its data holds other fields than it should")
    turn, step, index = (_whole(data, name) for name in ("turn", "step", "index"))
    joined = _text(data, "text")
    sizes = _stretch(_text(data, "sizes"))
    gaps = _stretch(_text(data, "gaps"))
    ends = list(accumulate(sizes))
    if not sizes or ends[-1] != len(joined) or len(gaps) != len(sizes) - 1:
        raise RowError("its lengths do not add up to its text")
    starts = [0, *ends[:-1]]
    pieces = [joined[start:end] for start, end in zip(starts, ends, strict=True)]
    times = accumulate(map(_unzigzag, gaps), initial=time)
    deltas: Iterable[_Delta]
    if kind is ToolCallDelta:
        call_id = _text(data, "id")
        name = _text(data, "name") if "name" in data else None
        deltas = map(ToolCallDelta, repeat(index), repeat(call_id), pieces, repeat(name))
    else:
        deltas = map(cast("type[TextDelta]", kind), repeat(index), pieces)
    chunks = map(AssistantChunk, repeat(turn), repeat(step), deltas)
    return map(SessionEvent, range(seq, seq + len(sizes)), times, chunks)


def _read_block_end(text: bytes, events: list[SessionEvent]) -> Iterable[SessionEvent]:
    seq, time, data = _envelope(text)
    block = data.get("block")
    if set(data) != {"turn", "step", "index", "since", "block"} or not isinstance(block, dict):
        raise RowError("its data holds other fields than it should")
    shape = cast("dict[str, Any]", block)
    turn, step, index, since = (_whole(data, name) for name in ("turn", "step", "index", "since"))
    kind, make = _block_of(shape)
    joined = "".join(
        _text_of(chunk)
        for event in events[since:]
        if type(event.data) is AssistantChunk
        and isinstance(chunk := event.data.chunk, kind)
        and (event.data.turn, event.data.step, chunk.index) == (turn, step, index)
    )
    return (SessionEvent(seq, time, AssistantChunk(turn, step, BlockEnd(index, make(joined)))),)


def _block_of(
    shape: dict[str, Any],
) -> tuple[type[_Delta], Callable[[str], TextBlock | ReasoningBlock | ToolCallBlock]]:
    match shape:
        case {"type": "text", **more} if not more:
            return TextDelta, TextBlock
        case {"type": "reasoning", **more} if not more:
            return ReasoningDelta, ReasoningBlock
        case {"type": "tool-call", "id": str(call_id), "name": str(name), **more} if not more:
            return ToolCallDelta, lambda text: ToolCallBlock(call_id, name, text)
        case _:
            raise RowError("it ends no block that has deltas")


_NAMES: Final[dict[type[_Delta], str]] = {
    TextDelta: "text-chunks",
    ReasoningDelta: "reasoning-chunks",
    ToolCallDelta: "tool-call-chunks",
}

_ROWS: Final[dict[bytes, Callable[[bytes, list[SessionEvent]], Iterable[SessionEvent]]]] = {
    b"text-chunks": lambda text, _: _read_run(TextDelta, text),
    b"reasoning-chunks": lambda text, _: _read_run(ReasoningDelta, text),
    b"tool-call-chunks": lambda text, _: _read_run(ToolCallDelta, text),
    b"block-end": _read_block_end,
}


def _envelope(text: bytes) -> tuple[int, int, dict[str, Any]]:
    try:
        row = cast("dict[str, Any]", from_json(text))
    except ValueError as error:
        raise RowError(f"it is no JSON: {error}") from error
    data = row.get("data")
    if set(row) != {"type", "seq", "time", "data"} or not isinstance(data, dict):
        raise RowError("it holds other fields than it should")
    return _whole(row, "seq"), _whole(row, "time"), cast("dict[str, Any]", data)


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


# --- numbers ------------------------------------------------------------------------------


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _unzigzag(number: int) -> int:
    return -((number + 1) // 2) if number % 2 else number // 2


def _squeeze(numbers: Iterable[int]) -> str:
    """Return numbers from 0 on as text: seven bits a byte, deflated, in base 85."""
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    # repeats longer than a run of one number are chance, and cost more than they save
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return b85encode(deflate.compress(out) + deflate.flush()).decode()


def _stretch(text: str) -> list[int]:
    """Return the numbers that `_squeeze` made a text of."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    limit = 10 * MAX_RUN
    try:
        raw = inflate.decompress(b85decode(text), limit + 1)
    except (ValueError, zlib.error) as error:
        raise RowError("its numbers cannot be read") from error
    if len(raw) > limit or not inflate.eof or inflate.unused_data:
        raise RowError("its numbers cannot be read")
    if raw.isascii():
        return list(raw)
    numbers: list[int] = []
    number = shift = 0
    for byte in raw:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
        elif number > _MAX_INTEGER:
            raise RowError("its numbers cannot be read")
    if shift:
        raise RowError("its numbers cannot be read")
    return numbers
