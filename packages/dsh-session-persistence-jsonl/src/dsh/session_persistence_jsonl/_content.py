"""The bytes of a log, plain or compressed, and where they may be cut."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from struct import pack, unpack
from typing import TYPE_CHECKING, Any, Final, cast
from zlib import crc32

from dsh.session_persistence import FormatUnsupported

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Content", "compress", "plain_content", "zstd_content"]


@dataclass(frozen=True, slots=True)
class Content:
    """What a log file holds."""

    raw: bytes
    """The bytes of the file."""
    text: bytes
    """The lines, decompressed."""
    frames: tuple[tuple[int, int], ...] = ((0, 0),)
    """Where each frame starts, in the file and in the text; a log that is not compressed is one."""
    torn: bool = False
    """Whether the last frame was never written completely; what could be got of it is there."""
    broken: str | None = None
    """Why the file cannot be decompressed any further."""

    def frame_at(self, place: int) -> tuple[int, int]:
        """Return where the last frame starts that begins at a place of the text or before it."""
        return max(frame for frame in self.frames if frame[1] <= place)


def plain_content(data: bytes) -> Content:
    """Return the content of a log that is not compressed."""
    return Content(data, data)


def zstd_content(data: bytes, path: Path) -> Content:
    """Decompress a log as far as it goes.

    Raises:
        FormatUnsupported: Decompression is not installed.
    """
    zstd = _load_zstd(path)
    written = _written(data)
    texts: list[bytes] = []
    frames: list[tuple[int, int]] = []
    at = size = 0
    torn, broken = False, None
    while at < len(data) and not torn and broken is None:
        frames.append((at, size))
        start = at + _MARK_BYTES
        mark = _read_mark(data[at:start])
        if mark is None:
            torn = start > written
            broken = None if torn else "the mark in front of it is damaged"
            break
        length, checksum = mark
        end = start + length
        frame = data[start:end]
        whole = len(frame) == length and crc32(frame) == checksum
        torn = not whole and end > written
        text = _decompressed(zstd, data[start:written] if torn else frame)
        if not torn:
            if not whole:
                broken = "its checksum does not fit"
            elif not text.endswith(b"\n"):
                broken = "it ends inside a line"
        texts.append(text)
        size += len(text)
        at = end
    return Content(data, b"".join(texts), tuple(frames), torn, broken)


def _written(data: bytes) -> int:
    """Return how many bytes were written for sure: a file may grow before it is filled.

    What a machine that stops then leaves is zeros up to the end of the file. A few of them may be
    the end of a frame.
    """
    filled = len(data.rstrip(b"\0"))
    return filled if len(data) - filled >= _ZEROS else len(data)


_ZEROS: Final = 4
"""So many zeros are no end of a frame, but for one in four billion: its checksum stands there."""

_SKIPPED: Final = b"\x50\x2a\x4d\x18\x0c\0\0\0"
"""How a frame of twelve bytes begins that decompression skips."""

_MARK_BYTES: Final = len(_SKIPPED) + 12
"""Size of the mark in front of each frame: its length, its checksum, and one of those two.

A frame that lacks its end would otherwise look like one whose length was damaged.
"""


def _mark(frame: bytes) -> bytes:
    facts = pack("<II", len(frame), crc32(frame))
    return _SKIPPED + facts + pack("<I", crc32(facts))


def _read_mark(mark: bytes) -> tuple[int, int] | None:
    """Return the length and the checksum that a mark tells; None if it is no sound mark."""
    if len(mark) < _MARK_BYTES or not mark.startswith(_SKIPPED):
        return None
    length, checksum, own = unpack("<III", mark[len(_SKIPPED) :])
    return (length, checksum) if own == crc32(mark[len(_SKIPPED) : -4]) else None


def _decompressed(zstd: Any, frame: bytes) -> bytes:
    """Return what can be got of a frame, all of it if it is whole."""
    with suppress(zstd.ZstdError):
        return cast("bytes", zstd.ZstdDecompressor().decompress(frame))
    return b""


def compress(text: bytes, path: Path) -> bytes:
    """Return a text as one frame with its mark in front.

    Raises:
        FormatUnsupported: Compression is not installed.
    """
    zstd = _load_zstd(path)
    # the mark tells damage here; this one tells it to `zstd --test`, and ends the frame
    options = {zstd.CompressionParameter.checksum_flag: True}
    frame = cast("bytes", zstd.compress(text, options=options))
    return _mark(frame) + frame


def _load_zstd(path: Path) -> Any:
    """Return the module that compresses: part of Python from 3.14 on, a backport before.

    Raises:
        FormatUnsupported: There is none.
    """
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    raise FormatUnsupported(
        "logs cannot be compressed and decompressed here",
        hint="pip install 'dsh-session-persistence-jsonl[zstd]'",
        location=str(path),
    )
