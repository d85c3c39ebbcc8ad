"""Repairs text that a server cut in the middle of a character.

Servers that count in UTF-16 cut some characters into two halves and send each in a delta of its
own. A half is valid JSON (the escape D83D alone, say) but no text: it can neither be stored nor
sent back.
"""

from __future__ import annotations

from typing import Final

REPLACEMENT: Final = "\ufffd"
"""Stands where a half found no partner."""


class SurrogateJoiner:
    """Joins the halves of characters across the deltas of each block."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[object, str] = {}

    @property
    def waiting(self) -> bool:
        """Whether a first half waits for its second."""
        return bool(self._waiting)

    def join(self, key: object, text: str) -> str:
        """Return `text` without halves; a first half at its end waits for the next call.

        Args:
            key: Which block the text belongs to.
            text: The next piece of that block.
        """
        text = self._waiting.pop(key, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._waiting[key] = text[-1]
            text = text[:-1]
        return whole(text)

    def flush(self, key: object) -> str:
        """Return what stands for a first half that never got its second."""
        return REPLACEMENT if self._waiting.pop(key, "") else ""


def whole(text: str) -> str:
    """Return `text` with pairs of halves joined and single ones replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
