"""Many small numbers as a short text."""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable
from typing import Final

__all__ = ["squeeze", "stretch", "unzigzag", "zigzag"]

_MAX_INTEGER: Final = 2**60
_UNREADABLE: Final = "its numbers cannot be read"


def zigzag(number: int) -> int:
    """Return a number from 0 on for any integer, small ones for small ones."""
    return 2 * number if number >= 0 else -2 * number - 1


def unzigzag(number: int) -> int:
    """Return the integer that `zigzag` made this number of."""
    return -((number + 1) // 2) if number % 2 else number // 2


def squeeze(numbers: Iterable[int]) -> str:
    """Return numbers from 0 on as text: seven bits a byte, deflated, in base 85."""
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    # repeats longer than a run of one number are chance, and cost more than they save; tables
    # of the usual size would take longer to make than most of these texts
    deflate = zlib.compressobj(9, zlib.DEFLATED, -12, 6, zlib.Z_RLE)
    return b85encode(deflate.compress(out) + deflate.flush()).decode()


def stretch(text: str, most: int) -> list[int]:
    """Return the numbers that `squeeze` made a text of, which are not more than `most`.

    Raises:
        ValueError: It is no such text.
    """
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    limit = 10 * most
    try:
        raw = inflate.decompress(b85decode(text), limit + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(_UNREADABLE) from error
    if len(raw) > limit or not inflate.eof or inflate.unused_data:
        raise ValueError(_UNREADABLE)
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
            raise ValueError(_UNREADABLE)
    if shift:
        raise ValueError(_UNREADABLE)
    return numbers
