"""Turns events into the rows of a log; `_rows` says what they look like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
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
    StepEnd,
    StepStart,
    TurnEnd,
    encode_event,
)
from dsh.session_persistence_jsonl._numbers import squeeze, zigzag
from dsh.session_persistence_jsonl._rows import CHUNKS, MAX_CHUNKS, MESSAGE, RUNS, Delta, block_of

__all__ = ["Packer"]

MIN_CHUNKS: Final = 3
"""Fewer chunks are not worth a row, and fewer deltas no item of their own."""

_MIN_TEXT: Final = 80
"""A shorter text stands in its message, for who reads the file."""

_CHUNK: Final = b'"chunk":'
"""What stands in front of the chunk in an event."""

_Step: TypeAlias = tuple[int, int]
"""A turn and a step."""

_Run: TypeAlias = tuple[type[Delta], int, str, str | None]
"""What the deltas of one item have in common: kind, index, call id, tool name."""


class Packer:
    """Turns the batches of one session into rows; it remembers the blocks of the open step."""

    __slots__ = ("_deltas", "_ended", "_step")

    def __init__(self) -> None:
        self._step: _Step | None = None
        self._deltas: dict[int, tuple[int, list[Delta]]] = {}
        """The deltas of each open block, and where they begin."""
        self._ended: list[tuple[int, ContentBlock]] = []
        """The blocks that have ended, and where."""

    def rows(self, events: Sequence[SessionEvent]) -> Iterator[bytes]:
        """Return the rows of the next batch, as JSON objects without line ends.

        A packer whose batch was not stored must not be used again.
        """
        chunks: list[SessionEvent] = []
        step: _Step | None = None
        for event in events:
            found = _step_of(event)
            if found != step or len(chunks) == MAX_CHUNKS:
                yield from self._flush(chunks, step)
                chunks, step = [], found
            if found is None:
                yield self._row(event)
            else:
                chunks.append(event)
        yield from self._flush(chunks, step)

    def _flush(self, chunks: Sequence[SessionEvent], step: _Step | None) -> Iterator[bytes]:
        if step is None:
            return
        if step != self._step:
            self._begin(step)
        items = b",".join(self._items(chunks))
        if len(chunks) < MIN_CHUNKS:
            yield from map(encode_event, chunks)
            return
        first = chunks[0]
        times = (after.time - before.time for before, after in pairwise(chunks))
        yield b'{"type":"%b","seq":%d,"time":%d,"data":{"turn":%d,"step":%d,"chunks":[%b],' % (
            CHUNKS.encode(),
            first.seq,
            first.time,
            *step,
            items,
        ) + b'"gaps":%b}}' % to_json(squeeze(map(zigzag, times)))

    def _items(self, chunks: Iterable[SessionEvent]) -> Iterator[bytes]:
        for run, group in groupby(chunks, _run_of):
            events = list(group)
            if run is None:
                for event in events:
                    yield self._other(event)
            else:
                deltas = [cast("Delta", cast("AssistantChunk", item.data).chunk) for item in events]
                _, so_far = self._deltas.setdefault(run[1], (events[0].seq, []))
                so_far += deltas
                if len(events) < MIN_CHUNKS:
                    yield from map(_chunk_in, events)
                else:
                    yield _joined(run, deltas)

    def _other(self, event: SessionEvent) -> bytes:
        chunk = cast("AssistantChunk", event.data).chunk
        if isinstance(chunk, BlockEnd):
            self._ended.append((event.seq, chunk.block))
            since, deltas = self._deltas.pop(chunk.index, (0, []))
            if block_of(deltas) == chunk.block:
                return to_json({"type": chunk.type, "index": chunk.index, "since": since})
        return _chunk_in(event)

    def _row(self, event: SessionEvent) -> bytes:
        data = event.data
        if isinstance(data, AssistantMessage):
            row = self._message(event, data)
            self._begin(None)
            return row
        if isinstance(data, AssistantChunk | StepStart | StepEnd | TurnEnd):
            self._begin(None)
        return _ranged(event)

    def _begin(self, step: _Step | None) -> None:
        self._step = step
        self._deltas.clear()
        self._ended.clear()

    def _message(self, event: SessionEvent, message: AssistantMessage) -> bytes:
        places = [self._ended_at(block) for block in message.content]
        if all(place is None for place in places):
            return _ranged(event)
        blocks = zip(message.content, places, strict=True)
        rest = replace(message, content=tuple(block for block, place in blocks if place is None))
        lean = SessionEvent(event.seq, event.time, rest, event.surface_op, event.source_event_seqs)
        row = cast("dict[str, Any]", from_json(_ranged(lean)))
        repeated = iter(row["data"]["content"])
        row["type"] = MESSAGE
        row["data"]["content"] = [next(repeated) if at is None else at for at in places]
        return to_json(row)

    def _ended_at(self, block: ContentBlock) -> int | None:
        """Return the event that ended a block, if the block need not be repeated."""
        if isinstance(block, TextBlock | ReasoningBlock):
            if len(block.text) < _MIN_TEXT:
                return None
        elif not isinstance(block, ToolCallBlock):
            return None
        return next((seq for seq, ended in self._ended if ended == block), None)


def _step_of(event: SessionEvent) -> _Step | None:
    """Return the step of a chunk that a row may hold; None for anything else."""
    data = event.data
    if type(data) is not AssistantChunk:
        return None
    if event.surface_op is not None or event.source_event_seqs is not None:
        return None
    return data.turn, data.step


def _run_of(event: SessionEvent) -> _Run | None:
    """Return what a delta has to have in common with its neighbours; None for other chunks."""
    chunk = cast("AssistantChunk", event.data).chunk
    if isinstance(chunk, TextDelta | ReasoningDelta):
        return (type(chunk), chunk.index, "", None)
    if isinstance(chunk, ToolCallDelta):
        return (ToolCallDelta, chunk.index, chunk.id, chunk.name)
    return None


def _chunk_in(event: SessionEvent) -> bytes:
    """Return the JSON of the chunk that an event holds."""
    line = encode_event(event)
    return line[line.index(_CHUNK) + len(_CHUNK) : -2]


def _joined(run: _Run, deltas: Sequence[Delta]) -> bytes:
    kind, index, call_id, name = run
    texts = [d.arguments_delta if isinstance(d, ToolCallDelta) else d.text for d in deltas]
    item: dict[str, Any] = {"type": RUNS[kind], "index": index}
    if kind is ToolCallDelta:
        item["id"] = call_id
        if name is not None:
            item["name"] = name
    item["text"] = "".join(texts)
    item["sizes"] = squeeze(map(len, texts))
    return to_json(item)


def _ranged(event: SessionEvent) -> bytes:
    """Return an event as JSON, with the events it cites as ranges if that is shorter."""
    seqs = event.source_event_seqs
    ranges = None if seqs is None else _ranges(seqs)
    if ranges is None:
        return encode_event(event)
    lean = encode_event(SessionEvent(event.seq, event.time, event.data, event.surface_op))
    return lean[:-1] + b',"sourceEventSeqRanges":' + to_json(ranges) + b"}"


def _ranges(seqs: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return ranges that add up to these numbers, or None if that would not be shorter."""
    ranges: list[tuple[int, int]] = []
    if len(seqs) < MIN_CHUNKS:
        return None
    for seq in seqs:
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges if 0 < 2 * len(ranges) < len(seqs) else None
