"""A real answer, broken at every byte of the wire, over a network of memory.

By default every thirteenth place is tried; `DSH_EXHAUSTIVE=1` tries them all.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import httpcore
import pytest
from trio.testing import MockClock

from dsh.llm import (
    BlockAssembler,
    ContentBlock,
    LlmError,
    LlmRequest,
    Message,
    StreamChunk,
    TextBlock,
    TokenUsage,
    error_chain,
)
from dsh.llm.testing import violations
from dsh.llm_deepseek import DeepSeekAdapter

KEY = "sk-broken-wire-0123456789"
STRIDE = 1 if os.environ.get("DSH_EXHAUSTIVE") else 13

STALL, RESET = "stall", "reset"
Act = bytes | str


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    # Trio alone can jump over the stalls; the code below the clock is the same on asyncio.
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Wire(httpcore.AsyncNetworkStream):
    """One connection: the first request is answered with the acts, every later one in order."""

    def __init__(self, acts: Iterable[Act]) -> None:
        self.acts = list(acts)
        self.requests = 0
        self.ended = False
        self.closed = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await anyio.lowlevel.checkpoint()
        if not self.acts:
            self.ended = True
            return b""
        act = self.acts.pop(0)
        if act == STALL:
            await anyio.sleep_forever()
        if act == RESET:
            raise httpcore.ReadError("connection reset by peer")
        assert isinstance(act, bytes)
        if len(act) > max_bytes:
            self.acts.insert(0, act[max_bytes:])
        return act[:max_bytes]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await anyio.lowlevel.checkpoint()
        if buffer.startswith(b"POST "):
            self.requests += 1
            if self.requests > 1 and not self.ended:
                self.acts.append(ANSWERS["chunked"])

    async def aclose(self) -> None:
        self.closed = True

    def get_extra_info(self, info: str) -> Any:
        # As a socket: what can be read before a request was sent unasked, or is the end.
        return bool(self.acts) or self.ended if info == "is_readable" else None


class Network(httpcore.AsyncNetworkBackend):
    """Connects to scripted wires, one after the other."""

    def __init__(self, *wires: Sequence[Act]) -> None:
        self.scripts = list(wires)
        self.wires: list[Wire] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Wire:
        self.wires.append(Wire(self.scripts[len(self.wires)]))
        return self.wires[-1]


def payload(delta: dict[str, Any], **fields: Any) -> bytes:
    value = {"choices": [{"index": 0, "delta": delta, **fields}]}
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def call(**fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, **fields}]}


EVENTS = (
    b": keep-alive\n\n",
    payload({"role": "assistant", "reasoning_content": "h\u00e4"}),
    payload({"content": "caf\u00e9 \U0001f680"}),
    payload({"content": '\\" }'}),
    payload(call(id="c1", function={"name": "run", "arguments": '{"a":'})),
    payload(call(function={"arguments": ' "b"}'})),
    payload({}, finish_reason="tool_calls"),
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}\n\n',
    b"data: [DONE]\n\n",
)
BODY = b"".join(EVENTS)
STATUS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CLOSE = STATUS + b"connection: close\r\n\r\n"
SIZED = STATUS + b"content-length: %d\r\n\r\n" % len(BODY)
CHUNKED = STATUS + b"transfer-encoding: chunked\r\n\r\n"


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


ANSWERS = {
    "close": CLOSE + BODY,
    "sized": SIZED + BODY,
    "chunked": CHUNKED + chunked(*EVENTS),
}
REQUEST = LlmRequest("deepseek-flash", (Message("user", (TextBlock("hi"),)),))

Outcome = tuple[str, tuple[ContentBlock, ...], TokenUsage | None]
"""The code of the failure, or nothing; the content; the usage."""


async def ask(adapter: DeepSeekAdapter) -> Outcome:
    """Make one request; nothing but an `LlmError` may be raised, and no text shows the key."""
    assembler, seen = BlockAssembler(), list[StreamChunk]()
    try:
        async with aclosing(adapter.stream(REQUEST)) as chunks:
            async for chunk in chunks:
                seen.append(chunk)
                assembler.push(chunk)
        assert violations(seen) == []
        code, texts = assembler.finish.code or "", repr(assembler.finish)
    except LlmError as error:
        assert not assembler.finished
        code, texts = error.code or "?", f"{error!r} {error.hint} {error_chain(error)}"
    assert KEY not in texts, texts
    return code, assembler.message().content, assembler.usage


async def twice(*acts: Act) -> tuple[Outcome, Outcome, bool]:
    """Ask two times; also say whether the second request used the connection of the first."""
    whole = ANSWERS["chunked"]
    network = Network(acts, [whole])
    adapter = DeepSeekAdapter({"base_url": "http://memory", "api_key": KEY}, network=network)
    with anyio.fail_after(10_000):
        first = await ask(adapter)
        second = await ask(adapter)
        await adapter.aclose()
    assert all(wire.closed for wire in network.wires)
    return first, second, len(network.wires) == 1


async def whole_of(name: str) -> Outcome:
    return (await twice(ANSWERS[name]))[0]


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_answer_itself_is_whole(name: str) -> None:
    code, content, usage = await whole_of(name)
    assert (code, len(content), usage) == ("", 3, TokenUsage(9, 4))


CUT_CODES = {
    b"": {LlmError.STREAM_CLOSED, LlmError.TRANSPORT},
    RESET: {LlmError.TRANSPORT},
    STALL: {LlmError.TIMEOUT},
    b"\x00\xff}]\r\n\r\nBearer " + KEY.encode() + b"\r\n": None,
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("then", CUT_CODES)
async def test_an_answer_cut_at_any_byte_is_never_told_as_complete(name: str, then: Act) -> None:
    answer, whole, codes = ANSWERS[name], await whole_of(name), CUT_CODES[then]
    enough = answer.index(b"[DONE]\n\n") + len(b"[DONE]\n\n")
    # With something behind it, one line end is enough to end the last event.
    for at in range(0, enough if codes else enough - 1, STRIDE):
        acts = [act for act in (answer[:at], then) if act]
        first, second, reused = await twice(*acts)
        assert first[0], at
        assert codes is None or first[0] in codes, (at, first)
        assert len(first[1]) <= len(whole[1]), at
        assert second == whole, at
        assert codes is None or not reused, at
    for at in range(enough, len(answer)):
        acts = [act for act in (answer[:at], then) if act]
        first, second, reused = await twice(*acts)
        assert (first, second, reused) == (whole, whole, False), at


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_in_two_reads_is_the_same_answer(name: str) -> None:
    answer, whole = ANSWERS[name], await whole_of(name)
    for at in range(1, len(answer), STRIDE):
        first, _, _ = await twice(answer[:at], answer[at:])
        assert first == whole, at


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("byte", [b"\0", b"\n", b'"', b"}", b"\xff", b"\r"])
async def test_an_answer_with_a_wrong_byte_fails_in_order(name: str, byte: bytes) -> None:
    """What a wrong byte in a text changes nobody can see; that a text is gone would be seen."""
    answer, whole = ANSWERS[name], await whole_of(name)
    for at in range(0, len(answer), STRIDE):
        broken = answer[:at] + byte + answer[at + 1 :]
        first, second, _ = await twice(broken)
        assert second == whole, at
        if not first[0]:
            assert first[1], (at, first)


NEXT = STATUS + b"content-length: 60\r\n\r\n" + payload({"content": "forged"})[:46] + BODY[-14:]


@pytest.mark.parametrize(
    "behind", [NEXT, b"\0garbage", b"\r\n", b"HTTP/1.1 200 OK\r\n", BODY, b"0\r\n\r\n"]
)
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", ["sized", "chunked"])
async def test_what_follows_a_complete_answer_is_never_the_next_one(
    name: str, apart: bool, behind: bytes
) -> None:
    whole = await whole_of(name)
    answer = ANSWERS[name]
    acts = [answer, behind] if apart else [answer + behind]
    first, second, reused = await twice(*acts)
    assert (first, second, reused) == (whole, whole, False)


def sized(body: bytes, *, length: int | None = None, head: bytes = STATUS) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


PACKED = gzip.compress(BODY)
GZIP = STATUS + b"content-encoding: gzip\r\n"
HTML = b"<!doctype html><title>Sign in</title>"
ERROR = (
    b'{"error":{"message":"Bearer %s is not known","type":"authentication_error"}}' % KEY.encode()
)

HEADS: list[tuple[str, bytes, str]] = [
    ("100 first", head("100 Continue") + ANSWERS["sized"], ""),
    ("103 twice", head("103 Early Hints", "link: </a>") * 2 + ANSWERS["chunked"], ""),
    ("1xx only", head("100 Continue"), "TRANSPORT"),
    ("101", head("101 Switching Protocols", "upgrade: x") + BODY, "?"),
    ("204", head("204 No Content"), "STREAM_CLOSED"),
    ("204 with a body", head("204 No Content") + BODY, "STREAM_CLOSED"),
    ("205", head("205 Reset Content", "content-length: 0"), "STREAM_CLOSED"),
    ("304", head("304 Not Modified"), "HTTP_304"),
    ("301", head("301 Moved", "location: http://other/", "content-length: 0"), "HTTP_301"),
    ("302 to nowhere", head("302 Found", "content-length: 0"), "HTTP_302"),
    ("307 to itself", head("307 Again", "location: /", "content-length: 0"), "HTTP_307"),
    ("no type", sized(BODY, head=b"HTTP/1.1 200 OK\r\n"), ""),
    (
        "type of a page, no page",
        sized(BODY, head=head("200 OK", "content-type: text/html")[:-2]),
        "",
    ),
    (
        "a page",
        sized(HTML, head=head("200 OK", "content-type: text/html")[:-2]),
        "MALFORMED_RESPONSE",
    ),
    ("a page declared as events", sized(HTML), "STREAM_CLOSED"),
    (
        "an error object",
        sized(ERROR, head=head("200 OK", "content-type: application/json")[:-2]),
        "AUTH",
    ),
    ("an error object declared as events", sized(ERROR), "AUTH"),
    (
        "401 that repeats the key",
        head("401 No", f"content-length: {len(ERROR)}").replace(b"401 No", b"401 " + KEY.encode())
        + ERROR,
        "AUTH",
    ),
    ("too short", sized(BODY, length=len(BODY) - 20), "STREAM_CLOSED"),
    ("too long", sized(BODY, length=len(BODY) + 20), ""),
    ("length zero", sized(BODY, length=0), "STREAM_CLOSED"),
    ("length negative", sized(BODY, length=-1), "TRANSPORT"),
    ("length is no number", STATUS + b"content-length: ten\r\n\r\n" + BODY, "TRANSPORT"),
    ("two lengths", STATUS + b"content-length: 5\r\n" + sized(BODY, head=b""), "TRANSPORT"),
    ("chunk size is no number", CHUNKED + b"zz\r\n" + BODY, "TRANSPORT"),
    ("chunk size negative", CHUNKED + b"-5\r\n" + BODY, "TRANSPORT"),
    ("chunk size too small", CHUNKED + b"5\r\n" + BODY + b"\r\n0\r\n\r\n", "TRANSPORT"),
    ("chunk size too large", CHUNKED + b"fffff\r\n" + BODY[:-14] + b"\r\n0\r\n\r\n", "TRANSPORT"),
    ("chunk size huge", CHUNKED + b"f" * 40 + b"\r\n" + BODY, "TRANSPORT"),
    ("last chunk comes early", CHUNKED + chunked(*EVENTS[:4]), "STREAM_CLOSED"),
    ("gzip", sized(PACKED, head=GZIP), ""),
    ("gzip cut", sized(PACKED[:60], head=GZIP), "STREAM_CLOSED"),
    ("gzip with a wrong byte", sized(PACKED[:30] + b"\0\0" + PACKED[32:], head=GZIP), "?"),
    ("gzip with a wrong sum", sized(PACKED[:-8] + bytes(8), head=GZIP), "MALFORMED_RESPONSE"),
    ("gzip that is none", sized(BODY, head=GZIP), "MALFORMED_RESPONSE"),
    (
        "gzip in two members",
        sized(gzip.compress(BODY[:90]) + gzip.compress(BODY[90:]), head=GZIP),
        "STREAM_CLOSED",
    ),
    ("brotli", sized(BODY, head=STATUS + b"content-encoding: br\r\n"), "MALFORMED_RESPONSE"),
    ("no status line", BODY, "TRANSPORT"),
    ("HTTP/0.9", b"<html>", "TRANSPORT"),
    ("another protocol", b"SSH-2.0-OpenSSH_9.6\r\n", "TRANSPORT"),
    ("a head without end", STATUS + b"x: " + b"y" * 300_000, "TRANSPORT"),
    ("a header without a name", STATUS + b": x\r\n\r\n" + BODY, "TRANSPORT"),
    ("a folded header", STATUS + b"x: y\r\n z\r\n" + sized(BODY, head=b""), ""),
    ("a zero in a header", STATUS + b"x: a\0b\r\n" + sized(BODY, head=b""), "TRANSPORT"),
    ("a line of 10 MB", CLOSE + payload({"content": "x" * 10_000_000}) + BODY, ""),
]


@pytest.mark.parametrize(
    ("answer", "code"), [case[1:] for case in HEADS], ids=[c[0] for c in HEADS]
)
async def test_odd_heads_and_framings(answer: bytes, code: str) -> None:
    first, second, _ = await twice(answer)
    assert second == await whole_of("chunked")
    assert first[0] == code or (code == "?" and first[0])
    if not code:
        assert len(first[1]) == 3
