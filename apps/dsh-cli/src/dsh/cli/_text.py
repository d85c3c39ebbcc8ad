"""Text that may come from a model, a command or a stranger's file, made safe to show."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(
    # C0 but tab and newline, DEL and C1; overrides of the reading direction; lone surrogates
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def neutralise(text: str) -> str:
    """Return `text` with everything that could drive a terminal written out in hexadecimal."""
    if not _UNSAFE.search(text):
        return text
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 160) -> str:
    """Return `text` on one line, safe to show and at most `limit` characters long."""
    # only the start can be shown, so a huge text is not scanned to its end
    head = " ".join(text[: limit * 8].split())
    if len(head) > limit:
        head = head[: limit - 1] + "…"
    elif len(text) > limit * 8:
        head += "…"
    return neutralise(head)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
