"""Cuts a stream of bytes into the payloads of its server-sent events.

It works on bytes, because a text decoder would split payloads at U+2028 and U+0085, and it works
on whole network reads, because a read usually carries many events.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Largest event accepted, field names and line ends included."""

DONE: Final = b"[DONE]"
"""Payload of the terminal event."""

_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 10
_CR: Final = 13


class SseDecoder:
    """Finds complete events; whatever is left over waits for the next read.

    Comments and every field but `data` are dropped, and so is an event without data. An event
    counts only once the blank line behind it has arrived.
    """

    __slots__ = (
        "_after_cr",
        "_ends_lf",
        "_max_event_bytes",
        "_parts",
        "_size",
        "_start",
        "comments",
        "done",
        "overflow",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Start at the beginning of a stream.

        Args:
            max_event_bytes: Events above this size set `overflow`.
        """
        self.done = False
        """Whether the terminal event has been read; everything behind it is ignored."""
        self.overflow = False
        """Whether an event exceeded the limit; nothing is read any more."""
        self.comments = 0
        """How many comment lines have been read."""
        self._max_event_bytes = max_event_bytes
        # The unfinished event, as it came, so that a long one is joined once and not at each read.
        self._parts: list[bytes] = []
        self._size = 0
        self._ends_lf = False
        self._after_cr = False
        # Bytes held back until it is clear whether a byte order mark opens the stream.
        self._start: bytes | None = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of the events that `data` completes, without the terminal one."""
        if self.done or self.overflow:
            return []
        if self._start is not None:
            data = self._skip_mark(data)
        if self._after_cr or b"\r" in data:
            data = self._unify(data)
        if not data:
            return []
        if b"\n\n" not in data and not (self._ends_lf and data[0] == _LF):
            self._keep(data)
            return []
        if self._parts:
            self._parts.append(data)
            data = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
        events, _, rest = data.rpartition(b"\n\n")
        self._ends_lf = False
        if rest:
            self._keep(rest)
        payloads = self._payloads(events)
        if DONE in payloads:
            self.done = True
            self._parts.clear()
            del payloads[payloads.index(DONE) :]
        return payloads

    def _payloads(self, events: bytes) -> list[bytes]:
        """Return the payloads of complete events, joined by the blank lines between them."""
        if events.startswith(b"data: ") and len(events) <= self._max_event_bytes:
            # Nearly every read looks like this: one `data: ` line an event and nothing else,
            # which is proved by the number of line ends.
            single = events[6:].split(b"\n\ndata: ")
            if events.count(b"\n") == 2 * len(single) - 2 and b"" not in single:
                return single
        payloads: list[bytes] = []
        for event in events.split(b"\n\n"):
            if len(event) > self._max_event_bytes:
                self.overflow = True
                break
            payload = self._fields(event)
            if payload:
                payloads.append(payload)
        return payloads

    def _fields(self, event: bytes) -> bytes:
        """Return the data of one event, its data lines joined by line ends."""
        lines: list[bytes] = []
        for line in event.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"data":
                lines.append(value.removeprefix(b" "))
            elif not name and line:
                self.comments += 1
        return b"\n".join(lines)

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        self._ends_lf = data[-1] == _LF
        if self._size > self._max_event_bytes:
            self._parts.clear()
            self.overflow = True

    def _unify(self, data: bytes) -> bytes:
        """Turn every CR and CR LF into LF, also a pair that two reads cut apart."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data[-1] == _CR
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _skip_mark(self, data: bytes) -> bytes:
        """Drop a byte order mark at the start of the stream, even if it arrives in pieces."""
        data = (self._start or b"") + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._start = data
            return b""
        self._start = None
        return data.removeprefix(_BOM)
