"""Texts of strangers on one line, and times and sizes as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from dsh.llm import ContentBlock, TextBlock, alt_text

_UNSAFE: Final = re.compile(
    # C0 but tab and newline, DEL and C1; overrides of the reading direction; lone surrogates
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_UNITS: Final = ((86400 * 365, "y"), (86400 * 7, "w"), (86400, "d"), (3600, "h"), (60, "m"))


def safe(text: str) -> str:
    """Return a text with everything that could drive a terminal written out in hexadecimal."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match.group()):02x}", text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 160) -> str:
    """Return a text on one line, safe to show and at most `limit` characters long."""
    head = " ".join(text[: limit * 8].split())
    if len(head) > limit or len(text) > limit * 8:
        head = head[: limit - 1] + "…"
    return safe(head)


def plain(content: Iterable[ContentBlock]) -> str:
    """Return what content blocks say, as text."""
    texts = [block.text if isinstance(block, TextBlock) else alt_text(block) for block in content]
    return "\n".join(text for text in texts if text)


def age(time_ms: int, now_ms: int) -> str:
    """Return how long ago a time was, in one unit: `4m`, `3h`, `12d`."""
    seconds = max(0, now_ms - time_ms) // 1000
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def size(count: int | None) -> str:
    """Return a number of bytes as people write it; nothing for an unknown one."""
    if count is None:
        return ""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"


def moment(time_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
