"""Scripts out of recorded sessions: each run of `assistant/chunk` events is one model call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from dsh.llm import Finish, StreamChunk, chunk_from_wire
from dsh.llm.errors import LlmError
from dsh.llm_replay._entries import Answer
from dsh.llm_replay.errors import ReplayError
from dsh.session import (
    AssistantChunk,
    Session,
    SessionEvent,
    SessionHeader,
    event_to_wire,
    header_to_wire,
)

Row: TypeAlias = SessionEvent | Mapping[str, Any]
"""One event of a recorded log, as an object or in its wire form (`seq` and `time` may lack)."""

Extract: TypeAlias = Callable[[Row], Answer | None]
"""Finds model calls that are recorded in other events than chunks."""

CHUNK: Final = AssistantChunk.event_type
_BORDERS: Final = frozenset(
    {
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "assistant/message",
        "llm/retry",
        "llm/retry-started",
    }
)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One model call found in a log."""

    answer: Answer
    """What the model sent."""
    finished: bool = True
    """Whether a finish was recorded; without one nobody knows how the call ended."""
    turn: int | None = None
    """The turn of the call."""
    step: int | None = None
    """Its step."""


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The model calls of one recorded session."""

    calls: tuple[RecordedCall, ...]
    """The calls in log order, those of the parent of a fork left out."""
    id: str | None = None
    """Id of the recorded session."""
    created_at: int = 0
    """When it was made, epoch milliseconds."""


def derive_calls(
    rows: Iterable[Row], *, seed_length: int = 0, extract: Extract | None = None
) -> tuple[RecordedCall, ...]:
    """Find the model calls of a log.

    A call is a run of `assistant/chunk` events up to and with a finish. Attempts that were retried
    within one step are calls of their own. Events of plugins may stand between the chunks.

    Args:
        rows: The log, oldest first.
        seed_length: How many leading events are the parent's and are skipped.
        extract: Looks at every other event; an answer it returns is a call at that place.

    Raises:
        ReplayError: Code `BAD_RECORDING`, with the position of the malformed row.
    """
    calls: list[RecordedCall] = []
    run = _Run()
    for position, row in enumerate(rows):
        if position < seed_length:
            continue
        kind = _kind(row, position)
        if kind == CHUNK:
            place, chunk = _chunk(row, position)
            if run.chunks and place != run.place:
                calls.append(run.close())
            run.place = place
            run.chunks.append(chunk)
            if isinstance(chunk, Finish):
                calls.append(run.close())
            continue
        if run.chunks and kind in _BORDERS:
            calls.append(run.close())
        answer = None if extract is None else extract(row)
        if answer is not None:
            calls.append(RecordedCall(answer))
    if run.chunks:
        calls.append(run.close())
    return tuple(calls)


def recorded(
    source: Session | Iterable[Row],
    *,
    header: SessionHeader | None = None,
    extract: Extract | None = None,
) -> RecordedSession:
    """Make a recording of a live session or of a list of events.

    Args:
        source: A session, whose own header is used, or its events.
        header: The header that belongs to the events.
        extract: As for `derive_calls`.

    Raises:
        ReplayError: As `derive_calls` does.
    """
    if isinstance(source, Session):
        header = header or source.header
        source = source.events
    seed = (header.seed_length if header is not None else None) or 0
    calls = derive_calls(source, seed_length=seed, extract=extract)
    if header is None:
        return RecordedSession(calls)
    return RecordedSession(calls, header.id, header.created_at)


def load_recording(path: Path, *, extract: Extract | None = None) -> RecordedSession:
    """Read a recorded log, one JSON object a line.

    Lines are events in their wire form; `seq` and `time` may lack. A line with the session's
    header may come first, bare or under the key `header`. The framing lines that `dsh run --json`
    prints around the events (`run/...`) are skipped, so its output can be replayed as it is.

    Raises:
        ReplayError: Code `BAD_RECORDING`, with file and line.
        OSError: If the file cannot be read.
    """
    header: Mapping[str, Any] = {}
    rows: list[Row] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row: object = json.loads(line)
        except ValueError as error:
            raise _bad(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise _bad(f"{path}, line {number}: not an object")
        fields = cast("dict[str, Any]", row)
        if not rows and (found := _header(fields)) is not None:
            header = found
        elif not str(fields.get("type", "")).startswith("run/"):
            rows.append(fields)
    try:
        calls = derive_calls(rows, seed_length=int(header.get("seedLength") or 0), extract=extract)
    except ReplayError as error:
        raise _bad(f"{path}: {error.message}") from error
    return RecordedSession(calls, header.get("id"), int(header.get("createdAt") or 0))


def save_recording(
    path: Path, source: Session | Iterable[SessionEvent], *, envelope: bool = True
) -> None:
    """Write a session as a recording that `load_recording` reads.

    Args:
        path: The file, overwritten.
        source: A session (its header becomes the first line) or its events.
        envelope: Whether `seq` and `time` are written; leaving them out keeps fixtures that are
            made again free of differences that mean nothing.
    """
    lines: list[Mapping[str, Any]] = []
    events: Iterable[SessionEvent]
    if isinstance(source, Session):
        lines.append({"header": header_to_wire(source.header)})
        events = source.events
    else:
        events = source
    for item in events:
        wire = dict(event_to_wire(item))
        if not envelope:
            del wire["seq"], wire["time"]
        lines.append(wire)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


@dataclass(slots=True)
class _Run:
    """Chunks of one call, collected until its end."""

    chunks: list[StreamChunk]
    place: tuple[int | None, int | None]

    def __init__(self) -> None:
        self.chunks = []
        self.place = (None, None)

    def close(self) -> RecordedCall:
        chunks = tuple(self.chunks)
        self.chunks = []
        return RecordedCall(chunks, isinstance(chunks[-1], Finish), *self.place)


def _kind(row: Row, position: int) -> str:
    if isinstance(row, SessionEvent):
        return row.type
    kind = row.get("type")
    if not isinstance(kind, str) or not isinstance(row.get("data"), Mapping):
        raise _bad(f"event {position} is no object with `type` and `data`")
    return kind


def _chunk(row: Row, position: int) -> tuple[tuple[int | None, int | None], StreamChunk]:
    if isinstance(row, SessionEvent):
        data = cast("AssistantChunk", row.data)
        return (data.turn, data.step), data.chunk
    fields = cast("Mapping[str, Any]", row["data"])
    try:
        return (fields.get("turn"), fields.get("step")), chunk_from_wire(fields.get("chunk"))
    except LlmError as error:
        raise _bad(f"event {position}: {error.message}") from error


def _header(fields: dict[str, Any]) -> Mapping[str, Any] | None:
    inner = fields.get("header")
    if isinstance(inner, Mapping) and "data" not in fields:
        return cast("Mapping[str, Any]", inner)
    if "createdAt" in fields and "data" not in fields:
        return fields
    return None


def _bad(message: str) -> ReplayError:
    return ReplayError(message, code=ReplayError.BAD_RECORDING)
