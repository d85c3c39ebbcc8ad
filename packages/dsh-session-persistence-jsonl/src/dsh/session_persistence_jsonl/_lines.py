"""One line of a log: a JSON object that ends with the checksum of what stands before it.

    {"type":"step/start","seq":2,"time":3,"data":{"turn":1,"step":1},"crc":"2918ca46"}

The checksum is that of the bytes before `,"crc"`, so one flipped bit anywhere is noticed. That of
an event starts from the checksum of the session's id, so that a line of another log fits nowhere.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

__all__ = ["SEAL_BYTES", "is_sealed", "seal", "seed_of", "unsealed"]

SEAL_BYTES: Final = 19
"""Length of the end of a line: `,"crc":"eaaea0ee"}` and the line feed."""


def seed_of(session_id: str) -> int:
    """Return what the checksums of a session's events start from."""
    return crc32(session_id.encode("utf-8", "surrogatepass"))


def seal(text: bytes, seed: int = 0) -> bytes:
    """Return a JSON object as a line of a log; the header, which says whose it is, has no seed."""
    body = text[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body, seed))


def is_sealed(line: bytes, seed: int = 0) -> bool:
    """Say whether a line, with its end, is as it was written."""
    return line[-SEAL_BYTES:] == b',"crc":"%08x"}\n' % crc32(line[:-SEAL_BYTES], seed)


def unsealed(line: bytes) -> bytes:
    """Return the JSON object of a sealed line."""
    return line[:-SEAL_BYTES] + b"}"
