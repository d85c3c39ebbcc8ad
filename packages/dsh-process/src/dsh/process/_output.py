"""Collecting a stream of output: its end in memory, all of it on disk, nothing without bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from dsh.core import secrets
from dsh.process._redact import redact_after
from dsh.process._spill import SpillFile, SpillStore

__all__ = [
    "DEFAULT_MAX_BYTES",
    "DEFAULT_SPILL_BYTES",
    "OutputCollector",
    "OutputRead",
    "OutputSnapshot",
]

DEFAULT_MAX_BYTES: Final = 64_000
DEFAULT_SPILL_BYTES: Final = 64 << 20

_CONTEXT_BYTES: Final = 4096
"""How far before a window its text is searched for the beginning of a secret."""
_SPILL_HOLD_BYTES: Final = 65_536
"""Longest unterminated line kept back from the spill file, so that no secret is cut in two."""


@dataclass(frozen=True, slots=True)
class OutputSnapshot:
    """A stream as it can be shown."""

    text: str
    """The end of the stream, at most `max_bytes` of it; secrets are masked."""
    truncated: bool
    """Whether `text` lacks the beginning."""
    spill_path: str | None
    """File with the whole stream, if it was too long for memory and the disk took all of it."""
    undecodable: bool
    """Whether `text` has U+FFFD in place of bytes that are not UTF-8."""
    spill_note: str | None = None
    """Why there is no spill file of a truncated stream."""


@dataclass(frozen=True, slots=True)
class OutputRead:
    """What came since an earlier read."""

    text: str
    """The new part of the stream; secrets are masked."""
    next_offset: int
    """Where the next read goes on, in bytes of the whole stream."""
    lossy: bool
    """Whether bytes between the two reads are in memory no more."""
    undecodable: bool
    """Whether `text` has U+FFFD in place of bytes that are not UTF-8."""


class OutputCollector:
    """Takes the bytes of one stream.

    In memory it keeps the last `max_bytes`. When more arrives, the stream is also written to a
    file, from its first byte on. The file is given up, and the path withheld, when it grows past
    `max_spill_bytes`, when the store's total is reached, or when the disk fails; collecting goes
    on without it. Registered secrets are masked in every text and in the file.

    Args:
        name: Goes into the file's name.
        max_bytes: Bytes kept in memory.
        max_spill_bytes: Longest stream kept on disk.
        store: Makes the spill file; none is made without it.
    """

    def __init__(
        self,
        name: str = "stdout",
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_spill_bytes: int = DEFAULT_SPILL_BYTES,
        store: SpillStore | None = None,
    ) -> None:
        self.name = name
        self.max_bytes = max_bytes
        self.max_spill_bytes = max_spill_bytes
        self.total = 0
        """Bytes seen so far."""
        self.finished = anyio.Event()
        """Set when the stream has ended."""
        self._store = store
        self._window = bytearray()
        self._spill: SpillFile | None = None
        self._held = bytearray()
        self._note: str | None = None if store is not None else "no spill directory"

    def feed(self, data: bytes) -> None:
        """Add bytes to the stream."""
        first_overflow = self.total <= self.max_bytes < self.total + len(data)
        if first_overflow and self._store is not None:
            self._open_spill(self._store)
            self._to_spill(bytes(self._window))
        self.total += len(data)
        if self.total > self.max_bytes:
            self._to_spill(data)
        self._window += data
        keep = self.max_bytes + _CONTEXT_BYTES
        if len(self._window) > 2 * keep:
            del self._window[:-keep]

    def finish(self) -> None:
        """Close the books: no more bytes will come. Safe to call twice."""
        if self.finished.is_set():
            return
        self.finished.set()
        if self._spill is not None:
            self._flush_held(final=True)
        if self._spill is not None:
            try:
                self._spill.close()
            except OSError as error:
                self._drop_spill(f"the disk failed: {error.strerror}")

    def tail(self) -> bytes:
        """The last `max_bytes` as they came, nothing masked."""
        return bytes(self._window[-self.max_bytes :]) if self.max_bytes else b""

    def snapshot(self) -> OutputSnapshot:
        """Describe the stream as far as it has come."""
        start = max(0, self.total - self.max_bytes)
        text, _, undecodable = self._decode(start, whole=True)
        truncated = start > 0
        return OutputSnapshot(
            text=text,
            truncated=truncated,
            spill_path=None if self._spill is None else str(self._spill.path),
            undecodable=undecodable,
            spill_note=self._note if truncated else None,
        )

    def read_from(self, offset: int) -> OutputRead:
        """Return what came after `offset` (bytes of the whole stream).

        If that has partly left memory, everything still in memory is returned and `lossy` says
        so. A multi-byte character whose end has not arrived yet is left for the next read.
        """
        start = max(0, self.total - self.max_bytes)
        lossy = offset < start
        text, end, undecodable = self._decode(
            max(offset, start), whole=self.finished.is_set(), cut=lossy
        )
        return OutputRead(text, end, lossy, undecodable)

    def _decode(self, start: int, *, whole: bool, cut: bool = True) -> tuple[str, int, bool]:
        """Text from `start` on, where it ends, and whether bytes had to be replaced.

        Args:
            start: Offset in the whole stream.
            whole: Decode an incomplete character at the end too.
            cut: `start` may lie inside a character, whose rest is then skipped.
        """
        begin = self.total - len(self._window)
        data = bytes(self._window[start - begin :])
        skipped = _stray_head(data) if cut and start > 0 else 0
        data = data[skipped:]
        held = 0 if whole else _incomplete_tail(data)
        data = data[: len(data) - held] if held else data
        context = bytes(self._window[max(0, start - begin - _CONTEXT_BYTES) : start - begin])
        text = _text(data)
        undecodable = "\ufffd" in text and text.encode() != data
        return redact_after(_text(context), text), self.total - held, undecodable

    def _open_spill(self, store: SpillStore) -> None:
        try:
            self._spill = store.create(self.name)
        except OSError as error:
            self._note = f"the spill file could not be made: {error.strerror}"

    def _to_spill(self, data: bytes) -> None:
        if self._spill is None or self._store is None:
            return
        if self._spill.size + len(self._held) + len(data) > self.max_spill_bytes:
            self._drop_spill(f"the output passed the limit of {self.max_spill_bytes} bytes")
        elif not self._store.fits(len(self._held) + len(data)):
            self._drop_spill("the limit for all kept output together was reached")
        else:
            self._held += data
            self._flush_held(final=False)

    def _flush_held(self, *, final: bool) -> None:
        """Write whole lines, masked; a very long line is written as it comes."""
        cut = len(self._held) if final else self._held.rfind(b"\n") + 1
        if cut == 0 and len(self._held) > _SPILL_HOLD_BYTES:
            cut = len(self._held)
        if cut == 0 or self._spill is None:
            return
        data = bytes(self._held[:cut])
        del self._held[:cut]
        as_text = data.decode("utf-8", "surrogateescape")  # gives every byte back, text or not
        masked = secrets.redact(as_text)
        try:
            self._spill.write(
                data if masked is as_text else masked.encode("utf-8", "surrogateescape")
            )
        except OSError as error:
            self._drop_spill(f"the disk failed: {error.strerror}")

    def _drop_spill(self, note: str) -> None:
        self._note = note
        self._held.clear()
        if self._spill is not None:
            self._spill.discard()
            self._spill = None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _stray_head(data: bytes) -> int:
    """Bytes at the start that continue a character which began earlier."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


def _incomplete_tail(data: bytes) -> int:
    """Bytes at the end that begin a character and may still be completed."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC2 else 1
        return back if back < needed and byte < 0xF5 else 0
    return 0
