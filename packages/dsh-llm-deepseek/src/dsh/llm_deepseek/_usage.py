"""Reads the token counters of an answer."""

from __future__ import annotations

from typing import Any, cast

from dsh.llm import TokenUsage


def read_usage(usage: dict[str, Any]) -> TokenUsage | None:
    """Return the counters, None if there are none.

    The wire counts cached tokens twice, the result does not.
    """
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None and completion is None:
        return None
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens")
    return TokenUsage(
        max(0, (prompt or 0) - (cached or 0)),
        completion or 0,
        cache_read_tokens=cached,
        reasoning_tokens=_count(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _count(counters: object, name: str) -> int | None:
    if not isinstance(counters, dict):
        return None
    value = cast("dict[str, Any]", counters).get(name)
    return value if type(value) is int and value >= 0 else None
