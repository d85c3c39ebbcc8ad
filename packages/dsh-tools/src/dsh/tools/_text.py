"""Text that is safe to log and to show to the model."""

from __future__ import annotations

from dsh.core import JsonValue, secrets

__all__ = ["masked", "readable"]


def readable(text: str) -> str:
    """Return `text` without registered secrets and with lone surrogates replaced.

    The log refuses lone surrogates, and a tool that reads undecodable bytes must not cost the
    turn its result.
    """
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return secrets.redact(text)


def masked(value: JsonValue) -> JsonValue:
    """Return a JSON value of bounded depth without registered secrets in its texts; keys stay.

    What holds none is returned as it is.
    """
    if isinstance(value, str):
        return secrets.redact(value)
    if isinstance(value, dict):
        changed = {key: masked(item) for key, item in value.items()}
        return changed if any(changed[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        items = [masked(item) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    return value
