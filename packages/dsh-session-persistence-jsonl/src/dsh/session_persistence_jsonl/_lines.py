"""One line of a log: a JSON object that ends with the checksum of what stands before it.

    {"type":"step/start","seq":2,"time":3,"data":{"turn":1,"step":1},"crc":"eaaea0ee"}

The checksum is that of the bytes before `,"crc"`, so one flipped bit anywhere is noticed.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

__all__ = ["SEAL_BYTES", "is_sealed", "seal", "unsealed"]

SEAL_BYTES: Final = 19
"""Length of the end of a line: `,"crc":"eaaea0ee"}` and the line feed."""


def seal(text: bytes) -> bytes:
    """Return a JSON object as a line of a log."""
    body = text[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def is_sealed(line: bytes) -> bool:
    """Say whether a line, with its end, is as it was written."""
    return line[-SEAL_BYTES:] == b',"crc":"%08x"}\n' % crc32(line[:-SEAL_BYTES])


def unsealed(line: bytes) -> bytes:
    """Return the JSON object of a sealed line."""
    return line[:-SEAL_BYTES] + b"}"
