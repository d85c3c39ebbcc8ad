"""Builders of the answers that tests need most."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmFailure,
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
from dsh.llm_replay._entries import Hang, Held, Throw
from dsh.llm_replay.server import Gate

Chunks = tuple[StreamChunk, ...]


def text(content: str, *, size: int = 1, usage: TokenUsage | None = None) -> Chunks:
    """Build a text answer: one delta per `size` characters, usage 10/len, finish `stop`.

    Args:
        content: The text; an empty one is a block without deltas.
        size: Characters per delta.
        usage: Token counts; 10 in and one per character out if None.
    """
    return answer(text=content, size=size, usage=usage)


def reasoning(thought: str, content: str = "", *, size: int = 1) -> Chunks:
    """Build an answer that reasons first; without `content` it has no text block at all."""
    return answer(reasoning=thought, text=content or None, size=size)


def max_tokens(content: str, *, size: int = 1) -> Chunks:
    """Build a text answer cut by the output limit, finish `max-tokens`."""
    return answer(text=content, finish="max-tokens", size=size)


def tool_call(
    call_id: str,
    name: str,
    arguments: str | Mapping[str, Any] = "{}",
    text: str | None = None,
) -> Chunks:
    """Build an answer with one tool call, usage 10/5, finish `tool-calls`.

    The arguments come in two deltas, the name only with the first.

    Args:
        call_id: The id of the call.
        name: The tool.
        arguments: The argument text as the model writes it, or a mapping encoded as JSON.
        text: A text block in front of the call.
    """
    return tool_calls([(call_id, name, arguments)], text=text)


def tool_calls(
    calls: Iterable[tuple[str, str, str | Mapping[str, Any]]],
    text: str | None = None,
    *,
    finish: str = "tool-calls",
) -> Chunks:
    """Build an answer with several tool calls `(id, name, arguments)`.

    Args:
        calls: The calls in order.
        text: A text block in front of them.
        finish: The kind of finish.
    """
    return answer(text=text, calls=tuple(calls), finish=finish, usage=TokenUsage(10, 5))


def answer(
    *,
    text: str | None = None,
    reasoning: str | None = None,
    calls: Sequence[tuple[str, str, str | Mapping[str, Any]]] = (),
    finish: str | FinishReason | None = None,
    usage: TokenUsage | None = None,
    size: int = 1,
) -> Chunks:
    """Build a complete answer: reasoning, then text, then tool calls, usage and finish.

    Args:
        text: The text block, None for none.
        reasoning: The reasoning block, None for none.
        calls: Tool calls `(id, name, arguments)`.
        finish: Kind of finish or the whole reason; `tool-calls` if there are calls, else `stop`.
        usage: Token counts; 10 in and one per character of text and reasoning out if None.
        size: Characters per delta of text and reasoning.
    """
    chunks: list[StreamChunk] = []
    index = 0
    if reasoning is not None:
        chunks += [
            BlockStart(index, "reasoning"),
            *(ReasoningDelta(index, piece) for piece in _pieces(reasoning, size)),
            BlockEnd(index, ReasoningBlock(reasoning)),
        ]
        index += 1
    if text is not None:
        chunks += [
            BlockStart(index, "text"),
            *(TextDelta(index, piece) for piece in _pieces(text, size)),
            BlockEnd(index, TextBlock(text)),
        ]
        index += 1
    for call_id, name, arguments in calls:
        chunks += _call(index, call_id, name, arguments)
        index += 1
    if finish is None:
        finish = "tool-calls" if calls else "stop"
    reason = FinishReason(finish) if isinstance(finish, str) else finish
    spent = TokenUsage(10, len(text or "") + len(reasoning or ""))
    return (*chunks, UsageChunk(usage or spent), Finish(reason))


def error(
    message: str = "The provider failed.",
    code: str = "SERVER",
    *,
    chunks: Iterable[StreamChunk] = (),
    failure: LlmFailure | None = None,
) -> Chunks:
    """Build an answer that ends with a finish of kind `error`.

    Args:
        message: What happened.
        code: A stable code, one of those of `LlmError`.
        chunks: What comes before, for instance `opening("Hel")`.
        failure: More facts.
    """
    return (*chunks, Finish(FinishReason("error", message, code, failure)))


def throw(
    message: str = "The provider failed.",
    code: str = "SERVER",
    *,
    chunks: Iterable[StreamChunk] = (),
    failure: LlmFailure | None = None,
) -> Throw:
    """Build an answer that breaks off with a raised `LlmError` instead of a finish."""
    return Throw(message, code, tuple(chunks), failure)


def hang(content: str = "w", *, ready_file: Path | None = None) -> Hang:
    """Build an answer that opens a text block, sends `content` as one delta and falls silent.

    An empty `content` sends nothing at all before the silence.
    """
    return Hang(opening(content), ready_file)


def hold(gate: Gate, chunks: Iterable[StreamChunk], *, after: int = 2) -> Held:
    """Build an answer that stops at a gate once `after` chunks were consumed."""
    return Held(tuple(chunks), gate, after)


def opening(content: str) -> Chunks:
    """Build the start of a text answer that is never finished."""
    return (BlockStart(0, "text"), TextDelta(0, content)) if content else ()


def _call(index: int, call_id: str, name: str, arguments: str | Mapping[str, Any]) -> Chunks:
    written = arguments if isinstance(arguments, str) else _json(arguments)
    middle = len(written) // 2
    return (
        BlockStart(index, "tool-call"),
        ToolCallDelta(index, call_id, written[:middle], name),
        ToolCallDelta(index, call_id, written[middle:]),
        BlockEnd(index, ToolCallBlock(call_id, name, written)),
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pieces(content: str, size: int) -> list[str]:
    return [content[start : start + size] for start in range(0, len(content), size)]
