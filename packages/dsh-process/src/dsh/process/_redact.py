"""Masking registered secrets in output, also where reads or windows cut through them."""

from __future__ import annotations

from dsh.core import secrets

__all__ = ["redact_after"]


def redact_after(context: str, text: str) -> str:
    """Redact `text`, the continuation of `context`, including a secret that began in `context`.

    Args:
        context: What came directly before; it is only looked at.
        text: What will be shown.
    """
    if not context or not secrets.contains(context + text):
        return secrets.redact(text)
    # Whole secrets of the context are masked first, so the first match below ends inside `text`.
    before = secrets.redact(context)
    if not secrets.contains(before + text):
        return secrets.redact(text)
    low, high = 0, len(text)
    while low < high:  # the shortest head of `text` that completes a secret
        middle = (low + high) // 2
        if secrets.contains(before + text[:middle]):
            high = middle
        else:
            low = middle + 1
    if secrets.contains(text[:low]):
        return secrets.redact(text)
    return secrets.MASK + secrets.redact(text[low:])
