"""Bytes of the chat-completions stream: payloads, usage and the framing of an event.

Plain values in, bytes out. Nothing here knows about sockets or about the types of the model seam,
so a benchmark can build an answer once and send the same bytes again and again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

DONE: Final = b"data: [DONE]\n\n"
"""The terminal event of a complete stream."""

STREAM_ID: Final = "chatcmpl-scripted"
"""The `id` of every payload the builders make."""

DEFAULT_MODEL: Final = "scripted"
"""The `model` of every payload unless the caller names one."""


def dumps(value: object) -> bytes:
    """Encode a value as compact UTF-8 JSON, non-ASCII text kept as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(payload: object) -> bytes:
    """Frame one payload as a server-sent event.

    Args:
        payload: A JSON value, or bytes that are sent as they are after `data: `.
    """
    data = payload if isinstance(payload, bytes) else dumps(payload)
    return b"data: " + data + b"\n\n"


def comment(text: str = "keep-alive") -> bytes:
    """Frame a comment, the form in which the provider keeps a waiting connection open."""
    return f": {text}\n\n".encode()


def chunk(
    delta: Mapping[str, Any] | None,
    *,
    finish_reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
    model: str = DEFAULT_MODEL,
) -> dict[str, Any]:
    """Build one `chat.completion.chunk` payload.

    Args:
        delta: The delta of choice 0; None leaves `choices` empty, as a trailing usage sample does.
        finish_reason: The reason of choice 0, None while the stream goes on.
        usage: The usage object; left out when None.
        model: The `model` field.
    """
    choices: list[dict[str, Any]] = []
    if delta is not None:
        choices.append({"index": 0, "delta": dict(delta), "finish_reason": finish_reason})
    payload: dict[str, Any] = {
        "id": STREAM_ID,
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
        "choices": choices,
    }
    if usage is not None:
        payload["usage"] = dict(usage)
    return payload


def usage(
    prompt_tokens: int = 10,
    completion_tokens: int = 5,
    *,
    cached_tokens: int | None = None,
    reasoning_tokens: int | None = None,
) -> dict[str, Any]:
    """Build a usage object with the provider's field names.

    Args:
        prompt_tokens: All prompt tokens, cached ones included.
        completion_tokens: All produced tokens, reasoning included.
        cached_tokens: Prompt tokens served from the cache; absent when None.
        reasoning_tokens: Reasoning tokens among the produced ones; absent when None.
    """
    result: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if cached_tokens is not None:
        result["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        result["prompt_cache_hit_tokens"] = cached_tokens
        result["prompt_cache_miss_tokens"] = prompt_tokens - cached_tokens
    if reasoning_tokens is not None:
        result["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return result


def pieces(text: str, size: int) -> Sequence[str]:
    """Cut a text into pieces of at most `size` characters; an empty text has none.

    Raises:
        ValueError: If `size` is not positive.
    """
    if size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {size}")
    return [text[start : start + size] for start in range(0, len(text), size)]


def text_deltas(text: str, chunk_size: int = 8) -> Iterator[dict[str, Any]]:
    """Yield the `delta` objects of a text answer."""
    for piece in pieces(text, chunk_size):
        yield {"content": piece}


def reasoning_deltas(text: str, chunk_size: int = 8) -> Iterator[dict[str, Any]]:
    """Yield the `delta` objects of a reasoning block."""
    for piece in pieces(text, chunk_size):
        yield {"reasoning_content": piece}


def tool_call_deltas(
    index: int, call_id: str, name: str, arguments: str, chunk_size: int = 8
) -> Iterator[dict[str, Any]]:
    """Yield the `delta` objects of one tool call: id and name first, then argument fragments."""
    head = {"name": name, "arguments": ""}
    yield {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": head}]}
    for piece in pieces(arguments, chunk_size):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def error_body(message: str, *, type: str, code: str | None = None) -> dict[str, Any]:
    """Build the error object the provider sends, in a body of its own or inside a stream."""
    return {"error": {"message": message, "type": type, "param": None, "code": code}}
