"""Text that is safe to log and to show to the model."""

from __future__ import annotations

from dsh.core import JsonValue, secrets

__all__ = ["readable", "readable_json"]


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


def readable_json(value: JsonValue) -> JsonValue:
    """Return a copy of a JSON value of bounded depth with `readable` texts; keys stay."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {key: readable_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [readable_json(item) for item in value]
    return value
