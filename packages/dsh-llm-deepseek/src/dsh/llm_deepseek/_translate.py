"""Turns the payloads of the wire into the chunks of the stream protocol."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from pydantic_core import from_json

from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmError,
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
from dsh.llm_deepseek._provider_errors import ProviderError, code_of_word, facts_of, shown
from dsh.llm_deepseek._surrogates import SurrogateJoiner, whole
from dsh.llm_deepseek._usage import read_usage

EXCERPT_CHARS: Final = 120
"""How much of a malformed payload an error shows."""

_FINISHES: Final = {
    "stop": FinishReason("stop"),
    "tool_calls": FinishReason("tool-calls"),
    "length": FinishReason("max-tokens"),
}
_NOTHING: Final[dict[str, Any]] = {}


class _Text:
    """An open text or reasoning block."""

    __slots__ = ("index", "kind", "parts")

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index
        self.parts: list[str] = []

    def close(self) -> BlockEnd:
        """Return the end of the block."""
        text = "".join(self.parts)
        block = TextBlock(text) if self.kind == TextBlock.type else ReasoningBlock(text)
        return BlockEnd(self.index, block)


class _Call:
    """An open tool call."""

    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name: str | None = None
        self.arguments: list[str] = []

    def close(self) -> BlockEnd:
        """Return the end of the block."""
        block = ToolCallBlock(self.id, self.name or "", "".join(self.arguments))
        return BlockEnd(self.index, block)


class Translator:
    """Follows one answer. Every block stays open until the end, since a provider may resume it."""

    __slots__ = (
        "_blocks",
        "_calls",
        "_careful",
        "_finish",
        "_halves",
        "_last_call",
        "_provider",
        "_reasoning",
        "_refused",
        "_request_id",
        "_text",
        "_usage",
        "failure",
    )

    def __init__(self, provider: str = "deepseek", request_id: str | None = None) -> None:
        """Start an answer.

        Args:
            provider: Who answers, for messages.
            request_id: The provider's name for the request, repeated in failures.
        """
        self.failure: FinishReason | None = None
        """Set once the answer has failed: nothing behind that point is translated."""
        self._provider = provider
        self._request_id = request_id
        self._blocks: list[_Text | _Call] = []
        self._text: _Text | None = None
        self._reasoning: _Text | None = None
        self._calls: dict[object, _Call] = {}
        self._last_call: _Call | None = None
        self._usage: TokenUsage | None = None
        self._finish = "stop"
        self._refused = False
        self._halves = SurrogateJoiner()
        # True while texts may hold halves of characters, which is hardly ever.
        self._careful = False

    def push(self, payloads: list[bytes]) -> list[StreamChunk]:
        """Translate the payloads of one read; `failure` then says whether the answer failed."""
        out: list[StreamChunk] = []
        for raw in payloads:
            try:
                payload = from_json(raw, cache_strings="keys")
            except ValueError:
                payload = _lenient(raw)
                self._careful = True
            if type(payload) is dict:
                self._payload(cast("dict[str, Any]", payload), raw, out)
            else:
                self._malformed(raw)
            if self.failure is not None:
                break
            if self._careful:
                self._careful = self._halves.waiting
        return out

    def end(self) -> list[StreamChunk]:
        """Return what closes the answer: ends and usage, or usage alone after a failure; finish."""
        out: list[StreamChunk] = []
        if self.failure is None:
            if self._halves.waiting:
                self._flush_halves(out)
            out.extend(block.close() for block in self._blocks)
        if self._usage is not None:
            out.append(UsageChunk(self._usage))
        out.append(Finish(self.failure or self._reason()))
        return out

    def _payload(self, payload: dict[str, Any], raw: bytes, out: list[StreamChunk]) -> None:
        if (error := payload.get("error")) or payload.get("object") == "error":
            self._provider_error(ProviderError.read(error or payload))
            return
        try:
            if usage := payload.get("usage"):
                self._usage = read_usage(usage) or self._usage
            for choice in payload.get("choices") or ():
                if choice.get("index"):
                    continue
                if delta := choice.get("delta"):
                    self._delta(delta, out)
                if finish := choice.get("finish_reason"):
                    self._finish = str(finish)
        except (AttributeError, TypeError):
            # A list where an object belongs, a number where a text belongs, and the like.
            self._malformed(raw)

    def _delta(self, delta: dict[str, Any], out: list[StreamChunk]) -> None:
        get = delta.get
        if text := get("reasoning_content"):
            self._reasoning_delta(text, out)
        elif type(text := get("reasoning")) is str and text:
            # The name newer servers give the same field.
            self._reasoning_delta(text, out)
        if text := get("content"):
            self._text_delta(text, out)
        if calls := get("tool_calls"):
            for call in calls:
                self._tool_call(call, out)
        if text := get("refusal"):
            self._refused = True
            self._text_delta(text, out)

    def _text_delta(self, text: str, out: list[StreamChunk]) -> None:
        if self._careful:
            text = self._halves.join(TextBlock.type, text)
            if not text:
                return
        block = self._text
        if block is None:
            block = self._text = self._open(TextBlock.type, out)
        block.parts.append(_checked(text))
        out.append(TextDelta(block.index, text))

    def _reasoning_delta(self, text: str, out: list[StreamChunk]) -> None:
        if self._careful:
            text = self._halves.join(ReasoningBlock.type, text)
            if not text:
                return
        block = self._reasoning
        if block is None:
            block = self._reasoning = self._open(ReasoningBlock.type, out)
        block.parts.append(_checked(text))
        out.append(ReasoningDelta(block.index, text))

    def _open(self, kind: str, out: list[StreamChunk]) -> _Text:
        block = _Text(kind, len(self._blocks))
        self._blocks.append(block)
        out.append(BlockStart(block.index, kind))
        return block

    def _tool_call(self, fragment: dict[str, Any], out: list[StreamChunk]) -> None:
        function = cast("dict[str, Any]", fragment.get("function") or _NOTHING)
        call_id, name = fragment.get("id") or "", function.get("name") or ""
        arguments = function.get("arguments")
        if type(arguments) is not str:
            arguments = "" if arguments is None else _encode(arguments)
        if self._careful:
            call_id, name = whole(call_id), whole(name)
        call = self._call(fragment.get("index"), _checked(call_id), _checked(name), out)
        if self._careful:
            arguments = self._halves.join(call.index, arguments)
        if call_id and not call.id:
            call.id = call_id
        if name:
            call.name = name
        call.arguments.append(arguments)
        out.append(ToolCallDelta(call.index, call.id, arguments, call.name))

    def _call(self, index: object, call_id: str, name: str, out: list[StreamChunk]) -> _Call:
        """Return the call a fragment belongs to.

        Some servers leave the index out, others number every call 0; a new id together with a
        name then tells that another call begins.
        """
        call = self._last_call if index is None else self._calls.get(index)
        begins = call is None or (call_id and name and call.name and call.id not in ("", call_id))
        if call is None or begins:
            call = _Call(len(self._blocks))
            self._blocks.append(call)
            out.append(BlockStart(call.index, ToolCallBlock.type))
            if index is not None:
                self._calls[index] = call
        self._last_call = call
        return call

    def _flush_halves(self, out: list[StreamChunk]) -> None:
        self._careful = False
        if text := self._halves.flush(ReasoningBlock.type):
            self._reasoning_delta(text, out)
        if text := self._halves.flush(TextBlock.type):
            self._text_delta(text, out)
        for call in self._blocks:
            if isinstance(call, _Call) and (text := self._halves.flush(call.index)):
                call.arguments.append(text)
                out.append(ToolCallDelta(call.index, call.id, text, call.name))

    def _reason(self) -> FinishReason:
        reason = _FINISHES.get(self._finish)
        if reason is None:
            return self._failed(
                code_of_word(self._finish),
                f"{self._provider} ended the answer with {shown(self._finish, 64)!r}",
            )
        if reason.kind != "max-tokens" and not self._blocks:
            return self._failed(
                LlmError.EMPTY_RESPONSE, f"{self._provider} ended the answer without any content"
            )
        return FinishReason("refusal") if self._refused and reason.kind == "stop" else reason

    def _provider_error(self, error: ProviderError) -> None:
        said = error.message or error.kind or "no reason given"
        message = f"{self._provider} reported an error inside the stream: {said}"
        self.failure = self._failed(error.code(), message, error.status)

    def _malformed(self, raw: bytes) -> None:
        # Redacted before it is cut, so that no cut leaves a part of a key.
        excerpt = shown(raw.decode("utf-8", "replace"), EXCERPT_CHARS)
        message = f"{self._provider} sent a payload that is no chat-completion chunk: {excerpt}"
        self.failure = self._failed(LlmError.MALFORMED_RESPONSE, message)

    def _failed(self, code: str, message: str, status: int | None = None) -> FinishReason:
        return FinishReason("error", message, code, facts_of(self._request_id, status))


def _lenient(raw: bytes) -> object:
    """Parse what the strict parser refuses: halves of characters, bare control characters."""
    try:
        return json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None


def _checked(text: Any) -> str:
    if type(text) is not str:
        raise TypeError(f"{type(text).__name__} where a text belongs")
    return text


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
