"""The model of the benchmarks: a local server that answers from memory.

It speaks the chat-completions wire and does as little as it can, so that what is measured is the
client. The URL says what it answers, and the request how far the conversation has come (it counts
the tool results in it), so that nothing is remembered between requests:

    /text             a short answer
    /tool/N           N calls of the tool `noop`, one a request, then a short answer
    /bash/N           N calls of the tool `bash` with the command `true`, then a short answer
    /deltas/N         one answer of N text deltas

A third part, `/tool/N/MS`, lets every answer wait for MS milliseconds, as a model does that thinks.

Run as a program it prints its URL on a line of its own and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Iterator
from typing import Any, cast

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
TOOL_RESULT = b'"tool_call_id"'
"""What every tool result in a request has once; quotes inside of texts are escaped."""

ARGUMENTS = {"command": "true", "description": "Do nothing"}
"""What the calls of `bash` run, and how they explain it."""

WORDS = ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "sleeps")


def delta_text(number: int) -> str:
    """Return the text of one delta, as short as those of real models."""
    return f" {WORDS[number % len(WORDS)]}"


@functools.lru_cache(maxsize=4096)
def answer(kind: str, limit: int, results: int) -> bytes:
    """Return a whole HTTP response.

    Args:
        kind: The first part of the path.
        limit: Its second part.
        results: How many tool results the request had.
    """
    if kind == "deltas":
        return _response(_deltas(limit))
    if kind in ("tool", "bash") and results < limit:
        return _response(_call(kind, results))
    return _response(_deltas(12))


def _response(payloads: Iterator[dict[str, Any]]) -> bytes:
    events = [json.dumps(payload, separators=(",", ":")).encode() for payload in payloads]
    # A chunk of the transfer encoding for each event, which is how providers send them.
    frames = [_frame(b"data: " + event + b"\n\n") for event in (*events, b"[DONE]")]
    return HEAD + b"".join(frames) + b"0\r\n\r\n"


def _frame(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-00000000-0000-0000-0000-000000000000",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "bench",
        "system_fingerprint": "fp_0",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }


def _end(finish: str, tokens: int) -> Iterator[dict[str, Any]]:
    yield _chunk({}, finish)
    usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
    yield {**_chunk({}), "choices": [], "usage": usage}


def _deltas(count: int) -> Iterator[dict[str, Any]]:
    yield _chunk({"role": "assistant", "content": ""})
    for number in range(count):
        yield _chunk({"content": delta_text(number)})
    yield from _end("stop", count)


def _call(kind: str, number: int) -> Iterator[dict[str, Any]]:
    name, arguments = ("bash", ARGUMENTS) if kind == "bash" else ("noop", {"n": number})
    yield _chunk({"role": "assistant", "content": ""})
    for word in ("I", " call", " the", " tool", "."):
        yield _chunk({"content": word})
    function = {"name": name, "arguments": ""}
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
    yield _chunk({"tool_calls": [call]})
    text = json.dumps(arguments)
    for start in range(0, len(text), 6):
        piece = {"index": 0, "function": {"arguments": text[start : start + 6]}}
        yield _chunk({"tool_calls": [piece]})
    yield from _end("tool_calls", 20)


class Connection(asyncio.Protocol):
    """One connection of a client; requests come one after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return
        request = b"".join(self._parts)
        head, found, body = request.partition(b"\r\n\r\n")
        if not found:
            return
        self._wanted = len(head) + 4 + _content_length(head)
        if len(request) < self._wanted:
            self._parts = [request]
            return
        self._parts, self._size, self._wanted = [], 0, 0
        kind, limit, delay_ms = _route(head)
        results = body.count(TOOL_RESULT) if kind in ("tool", "bash") else 0
        response = answer(kind, limit, results)
        if delay_ms:
            asyncio.get_running_loop().call_later(delay_ms / 1000, self._write, response)
        else:
            self._write(response)

    def _write(self, response: bytes) -> None:
        assert self._transport is not None
        self._transport.write(response)


def _content_length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0] or 0)


def _route(head: bytes) -> tuple[str, int, int]:
    """Return the kind of answer, its size and the wait before it in milliseconds."""
    parts = head.split(b" ", 2)[1].decode().strip("/").split("/")
    numbers = [int(part) for part in parts[1:] if part.isdigit()]
    limit, delay_ms, *_ = (*numbers, 0, 0)
    return parts[0], limit, delay_ms


async def serve() -> None:
    """Serve on a free port until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
