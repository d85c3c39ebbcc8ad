"""Events as rows, each with a checksum of what stands in it.

Text is fetched as bytes: a flipped bit may leave no text, and then the row has to be named, not
the query fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final
from zlib import crc32

from pydantic import TypeAdapter, ValidationError

from dsh.session import AssistantChunk, SessionEvent, event_from_row, event_to_row
from dsh.session.errors import SessionFormatError
from dsh.session_persistence import FormatUnsupported

__all__ = [
    "EVENT_COLUMNS",
    "EventColumns",
    "RowDamaged",
    "encode_event_rows",
    "event_crc",
    "event_reader",
    "seed_of",
]

EVENT_COLUMNS: Final = "seq, type, time, data, surface_op, source_event_seqs, ignorable, crc"
"""What is read of an event, in the order of `EventColumns`."""

EventColumns = tuple[Any, Any, Any, Any, Any, Any, Any, Any]


class RowDamaged(Exception):
    """A row cannot be what was written; the text says why."""


def encode_event_rows(
    session_id: str, events: Iterable[SessionEvent]
) -> tuple[list[tuple[Any, ...]], int]:
    """Return events as the values of rows, and how many bytes they take.

    Each row has the session's id first, then an `EventRow`, then the checksum.
    """
    seed = seed_of(session_id)
    rows: list[tuple[Any, ...]] = []
    size = 0
    for event in events:
        row = event_to_row(event)
        kind, data = row.type.encode(), row.data.encode()
        size += len(data) + len(kind)
        op, seqs = _encoded(row.surface_op), _encoded(row.source_event_seqs)
        crc = event_crc(seed, row.seq, kind, row.time, data, op, seqs, row.ignorable)
        rows.append((session_id, *row, crc))
    return rows, size


def event_reader(session_id: str) -> Callable[..., SessionEvent]:
    """Return a function that reads an event from the values of `EVENT_COLUMNS`.

    It raises `RowDamaged` if a row is not what was written, and `FormatUnsupported` if it is, and
    this version cannot read it.
    """
    seed = seed_of(session_id)
    read_chunk = _chunk_reader()

    def read(
        seq: Any,
        kind: Any,
        time: Any,
        data: Any,
        op: Any,
        seqs: Any,
        ignorable: Any,
        crc: Any,
    ) -> SessionEvent:
        try:
            if kind == _CHUNK and op is None and seqs is None and ignorable is None:
                # nearly every row of a long log
                if crc32(data, crc32(_PLAIN % (seq, time, kind), seed)) == crc:
                    try:
                        return SessionEvent(seq, time, read_chunk(data))
                    except ValidationError:
                        return event_from_row(kind.decode(), seq, time, data)  # tells why
            elif event_crc(seed, seq, kind, time, data, op, seqs, ignorable) == crc:
                return event_from_row(kind.decode(), seq, time, data, op, seqs, ignorable)
            raise RowDamaged("its checksum does not match")
        except SessionFormatError as error:
            # its checksum fits, so no disk did this: it says more than this version understands
            raise FormatUnsupported(error.message, hint=error.hint or NEWER) from error
        except (TypeError, AttributeError, ValueError) as error:
            raise RowDamaged(f"its columns have no values that belong there: {error}") from error

    return read


NEWER: Final = "open this session with the version that wrote it, or a newer one"
"""What to do about a row that is sound and cannot be read."""


@cache
def _chunk_reader() -> Callable[[bytes], AssistantChunk]:
    # the adapter itself would be one more function call for each row
    return TypeAdapter(AssistantChunk).validator.validate_json


def seed_of(session_id: str) -> int:
    """Return what the checksums of a session's rows start from, so that none fits elsewhere."""
    return crc32(session_id.encode())


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


_CHUNK: Final = b"assistant/chunk"
_PLAIN: Final = b"%d %d %b "


def event_crc(
    seed: int,
    seq: int,
    kind: bytes,
    time: int,
    data: bytes,
    op: bytes | None,
    seqs: bytes | None,
    ignorable: int | None,
) -> int:
    """Return the checksum of a row."""
    head = _PLAIN % (seq, time, kind)
    if op is not None or seqs is not None or ignorable is not None:
        head += b"%b %b %d " % (op or b"-", seqs or b"-", ignorable or 0)
    return crc32(data, crc32(head, seed))
