"""Says whether a chunk is what its class promises, before anybody logs or assembles it.

Adapters are written by others, and what they fill in often comes from a wire: a `None` where a text
belongs, a number where an id belongs. Such a chunk would be accepted into a log that nobody can
read again. Where blocks stand in the stream is not looked at here, see `StreamGrammar`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dsh.llm._chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmFailure,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm._content import ContentBlock, ReasoningBlock, ReplayState, TextBlock, ToolCallBlock


def is_sound(chunk: object) -> bool:
    """Say whether this is a chunk of the protocol with the types of value it declares."""
    check = _CHECKS.get(type(chunk))
    return check is not None and check(chunk)


def _start(chunk: Any) -> bool:
    return type(chunk.index) is int and isinstance(chunk.block_type, str)


def _delta(chunk: Any) -> bool:
    return type(chunk.index) is int and isinstance(chunk.text, str)


def _call_delta(chunk: Any) -> bool:
    return (
        type(chunk.index) is int
        and isinstance(chunk.arguments_delta, str)
        and isinstance(chunk.id, str)
        and _optional(chunk.name, str)
    )


def _end(chunk: Any) -> bool:
    block = chunk.block
    if type(chunk.index) is not int:
        return False
    if _is(block, ToolCallBlock):
        return all(isinstance(text, str) for text in (block.id, block.name, block.arguments))
    if _is(block, TextBlock) or _is(block, ReasoningBlock):
        return isinstance(block.text, str)
    return isinstance(block, ContentBlock)


def _usage(chunk: Any) -> bool:
    usage = chunk.usage
    return (
        _is(usage, TokenUsage)
        and type(usage.input_tokens) is int
        and type(usage.output_tokens) is int
        and _optional(usage.cache_read_tokens, int)
        and _optional(usage.cache_write_tokens, int)
        and _optional(usage.reasoning_tokens, int)
    )


def _finish(chunk: Any) -> bool:
    reason = chunk.reason
    return (
        _is(reason, FinishReason)
        and isinstance(reason.kind, str)
        and _optional(reason.message, str)
        and _optional(reason.code, str)
        and _optional(reason.failure, LlmFailure)
        and _replay(chunk.replay)
    )


def _replay(replay: Any) -> bool:
    return replay is None or (_is(replay, ReplayState) and isinstance(replay.state, Mapping))


def _is(value: object, kind: type) -> bool:
    return type(value) is kind


def _optional(value: object, kind: type) -> bool:
    return value is None or (isinstance(value, kind) and type(value) is not bool)


# Whatever a class declares is what is checked here, so nothing is taken from its annotations.
_CHECKS: Final[dict[type, Callable[[Any], bool]]] = {
    TextDelta: _delta,
    ReasoningDelta: _delta,
    ToolCallDelta: _call_delta,
    BlockStart: _start,
    BlockEnd: _end,
    UsageChunk: _usage,
    Finish: _finish,
}
