"""Values that must never be shown: registered once, removed from whatever passes `redact`.

The set is process-wide on purpose: a key is a secret in every log, error and prompt of the
process, whoever read it.
"""

from __future__ import annotations

import logging
import re
from typing import Final

__all__ = ["MASK", "SecretsFilter", "add", "contains", "redact"]

MASK: Final = "[secret]"
"""What stands where a secret was."""

_MIN_LENGTH: Final = 6
_values: set[str] = set()
_pattern: re.Pattern[str] | None = None


def add(value: str) -> None:
    """Register a secret; blanks and values under six characters are ignored.

    Masking a very short value would only tear ordinary words apart.

    Args:
        value: The secret; spaces around it are stripped.
    """
    global _pattern
    value = value.strip()
    if len(value) < _MIN_LENGTH or value in _values:
        return
    _values.add(value)
    longest_first = sorted(_values, key=len, reverse=True)
    _pattern = re.compile("|".join(re.escape(item) for item in longest_first))


def contains(text: str) -> bool:
    """Tell whether a registered secret occurs in `text`."""
    return _pattern is not None and _pattern.search(text) is not None


def redact(text: str) -> str:
    """Return `text` with every registered secret replaced by `MASK`."""
    return text if _pattern is None else _pattern.sub(MASK, text)


class SecretsFilter(logging.Filter):
    """A logging filter that masks secrets in the message and in the traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record in place where it shows a secret; never drops a record.

        Args:
            record: The record.

        Returns:
            True: the record is always kept.
        """
        if _pattern is None:
            return True
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - the handler reports what cannot be formatted
            message = ""
        if contains(message):
            record.msg, record.args = redact(message), ()
        text = record.exc_text
        if text is None and record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
        if text and contains(text):
            record.exc_text = redact(text)
            record.exc_info = None
        return True
