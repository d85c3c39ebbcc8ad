"""Chunks as the bytes of the chat-completions stream, and scripts as behaviours of the server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from dsh.llm import (
    BlockEnd,
    Finish,
    FinishReason,
    ReasoningBlock,
    ReasoningDelta,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm_replay import server
from dsh.llm_replay._entries import Answer, Hang, Held, Throw
from dsh.llm_replay.server import Behaviour

_FINISH: Final = {"stop": "stop", "tool-calls": "tool_calls", "max-tokens": "length"}


def encode_chunks(
    chunks: Iterable[StreamChunk], *, model: str = "scripted", done: bool = True
) -> bytes:
    """Return the body of the event stream that stands for an answer.

    Args:
        chunks: The answer. Block borders have no wire form and vanish; a block that ends without
            deltas is sent whole.
        model: The `model` field of the payloads.
        done: Whether `[DONE]` closes the stream.
    """
    body = b"".join(server.event(payload) for payload in payloads(chunks, model=model))
    return body + server.DONE if done else body


def payloads(chunks: Iterable[StreamChunk], *, model: str = "scripted") -> Iterator[dict[str, Any]]:
    """Yield the payloads of the event stream that stands for an answer.

    Usage rides on the payload of the finish. A finish of kind `error` or `aborted` is an error
    object, other kinds the wire does not know are sent with underscores.
    """
    writer = _Writer()
    usage: dict[str, Any] | None = None
    yield server.chunk({"role": "assistant", "content": ""}, model=model)
    for chunk in chunks:
        match chunk:
            case UsageChunk(usage=counts):
                usage = wire_usage(counts)
            case Finish(reason=reason) if reason.failed:
                yield _error_object(reason)
            case Finish(reason=reason):
                kind = _FINISH.get(reason.kind, reason.kind.replace("-", "_"))
                yield server.chunk({}, finish_reason=kind, usage=usage, model=model)
            case _:
                for delta in writer.deltas(chunk):
                    yield server.chunk(delta, model=model)


def wire_usage(counts: TokenUsage) -> dict[str, Any]:
    """Return token counts with the provider's field names; cached tokens count as prompt."""
    cached = counts.cache_read_tokens
    prompt = counts.input_tokens + (cached or 0) + (counts.cache_write_tokens or 0)
    return server.usage(
        prompt,
        counts.output_tokens,
        cached_tokens=cached,
        reasoning_tokens=counts.reasoning_tokens,
    )


def behaviour_of(answer: Answer, *, model: str = "scripted") -> Behaviour:
    """Return the behaviour of the wire server that makes an adapter see an answer.

    A failure with an HTTP status and nothing before it is that status; another failure is an
    error object in the stream or, for `Throw` without a status, a lost connection.
    """
    match answer:
        case Held(chunks=chunks, gate=gate, after=after):
            sent = len(list(payloads(chunks[:after], model=model)))
            return _stream(chunks, model).hold(gate, after=sent).named("scripted")
        case Hang(chunks=chunks):
            opened = _stream(chunks, model, done=False)
            return replace(opened, steps=(*opened.steps, server.Stall()))
        case Throw(chunks=(), failure=failure) if failure is not None and failure.status:
            return _http_error(answer.message, answer.code, failure.status, failure.retry_after_ms)
        case Throw(chunks=chunks):
            opened = _stream(chunks, model, done=False)
            return replace(opened, end="reset", steps=(*opened.steps, server.Wait(0.01)))
        case [Finish(reason=reason)] if reason.failed and reason.failure is not None:
            facts = reason.failure
            if facts.status is not None:
                message = reason.message or ""
                return _http_error(message, reason.code, facts.status, facts.retry_after_ms)
            return _stream(answer, model)
        case _:
            return _stream(answer, model)


def wire_script(answers: Iterable[Answer], *, model: str = "scripted") -> list[Behaviour]:
    """Return the behaviours that serve a script, for instance a recording, over the wire."""
    return [behaviour_of(answer, model=model) for answer in answers]


class _Writer:
    """Turns chunks into deltas and remembers which blocks had some."""

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        self._named: set[int] = set()
        self._begun: set[int] = set()

    def deltas(self, chunk: StreamChunk) -> Iterator[dict[str, Any]]:
        match chunk:
            case TextDelta(index=index, text=text):
                self._begun.add(index)
                yield {"content": text}
            case ReasoningDelta(index=index, text=text):
                self._begun.add(index)
                yield {"reasoning_content": text}
            case ToolCallDelta():
                yield self._call(chunk.index, chunk.id, chunk.name, chunk.arguments_delta)
            case BlockEnd(index=index, block=block) if index not in self._begun:
                yield from self._whole(index, block)
            case _:
                return

    def _whole(self, index: int, block: object) -> Iterator[dict[str, Any]]:
        match block:
            case TextBlock(text=text) if text:
                yield {"content": text}
            case ReasoningBlock(text=text) if text:
                yield {"reasoning_content": text}
            case ToolCallBlock(id=call_id, name=name, arguments=arguments):
                yield self._call(index, call_id, name, arguments)
            case _:
                return

    def _call(self, index: int, call_id: str, name: str | None, arguments: str) -> dict[str, Any]:
        function: dict[str, Any] = {"arguments": arguments}
        call: dict[str, Any] = {"index": self._calls.setdefault(index, len(self._calls))}
        if index not in self._begun:
            call["type"] = "function"
            if call_id:
                call["id"] = call_id
        if name is not None and index not in self._named:
            self._named.add(index)
            function["name"] = name
        self._begun.add(index)
        return {"tool_calls": [{**call, "function": function}]}


def _stream(chunks: Iterable[StreamChunk], model: str, *, done: bool = True) -> Behaviour:
    return server.events(payloads(chunks, model=model), done=done, name="scripted")


def _error_object(reason: FinishReason) -> dict[str, Any]:
    kind = "server_error" if reason.kind == "error" else "aborted"
    message = reason.message or "The answer was broken off."
    return server.error_body(message, type=kind, code=reason.code)


def _http_error(
    message: str, code: str | None, status: int, retry_after_ms: float | None
) -> Behaviour:
    headers = (
        {} if retry_after_ms is None else {"retry-after": str(math.ceil(retry_after_ms / 1000))}
    )
    return server.http_error(status, message, code=code, headers=headers)
