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

    text: bytes
    """The lines, decompressed."""
    frames: tuple[tuple[int, int], ...] = ()
    """Of a compressed log: where each frame starts, in the file and in the text."""
    torn: bool = False
    """Whether the last frame was never written completely; what could be got of it is there."""
    broken: str | None = None
    """Why the file cannot be decompressed any further."""
    length: int = 0
    """Bytes of the file."""


def plain_content(data: bytes) -> Content:
    """Return the content of a log that is not compressed."""
    return Content(data, length=len(data))


def zstd_content(data: bytes, path: Path) -> Content:
    """Decompress a log as far as it goes.

    Raises:
        FormatUnsupported: Decompression is not installed.
    """
    zstd = _load_zstd(path)
    texts: list[bytes] = []
    frames: list[tuple[int, int]] = []
    at = size = 0
    torn, broken = False, None
    while at < len(data) and not torn and broken is None:
        frames.append((at, size))
        length = _marked_length(data[at : at + _MARK_BYTES])
        if length is None:
            # cut off, or the file had grown and the machine stopped before it was filled
            torn = len(data) - at < _MARK_BYTES or not any(data[at : at + _MARK_BYTES])
            broken = None if torn else "the mark in front of it is damaged"
            break
        frame = data[at + _MARK_BYTES : at + _MARK_BYTES + length]
        torn = len(frame) < length or not any(frame)
        if not torn and crc32(frame) != _marked_sum(data[at : at + _MARK_BYTES]):
            broken = "its checksum does not fit"
        text = _decompressed(zstd, frame)
        texts.append(text)
        size += len(text)
        at += _MARK_BYTES + length
        if not torn and broken is None and not text.endswith(b"\n"):
            broken = "it ends inside a line"
    return Content(b"".join(texts), tuple(frames), torn, broken, len(data))


_SKIPPED: Final = b"\x50\x2a\x4d\x18\x0c\0\0\0"
"""How a frame of twelve bytes begins that decompression skips."""

_MARK_BYTES: Final = len(_SKIPPED) + 12
"""Size of the mark in front of each frame: its length, its checksum, and one of those two.

A frame that lacks its end would otherwise look like one whose length was damaged.
"""


def _mark(frame: bytes) -> bytes:
    facts = pack("<II", len(frame), crc32(frame))
    return _SKIPPED + facts + pack("<I", crc32(facts))


def _marked_length(mark: bytes) -> int | None:
    """Return the length that a mark tells; None if it is no sound mark."""
    if len(mark) < _MARK_BYTES or not mark.startswith(_SKIPPED):
        return None
    length, _, own = unpack("<III", mark[len(_SKIPPED) :])
    return int(length) if own == crc32(mark[len(_SKIPPED) : -4]) else None


def _marked_sum(mark: bytes) -> int:
    _, told, _ = unpack("<III", mark[len(_SKIPPED) :])
    return int(told)


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
