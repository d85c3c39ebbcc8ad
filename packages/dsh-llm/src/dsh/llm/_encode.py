"""From values to their wire form: plain functions, since a stream has thousands of chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from dsh.core import JsonObject, JsonValue
from dsh.core.vocabulary import adapter_of
from dsh.llm._adapter import ModelInfo
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
from dsh.llm._content import (
    ContentBlock,
    Message,
    ReasoningBlock,
    ReplayState,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from dsh.llm._request import LlmCallConfig, LlmRequest, ToolSchema

Encoder: TypeAlias = Callable[[Any], JsonObject]


def encode(value: object) -> JsonObject:
    """Return the wire form of a value of this package; absent fields are left out.

    Raises:
        TypeError: It is no such value.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        if isinstance(value, ContentBlock):
            return _declared(value)
        raise TypeError(f"{type(value).__qualname__} has no wire form in dsh.llm")
    return encoder(value)


def _text(block: TextBlock | ReasoningBlock) -> JsonObject:
    return {"type": block.type, "text": block.text}


def _tool_call(block: ToolCallBlock) -> JsonObject:
    return {
        "type": "tool-call",
        "id": block.id,
        "name": block.name,
        "arguments": block.arguments,
    }


def _tool_result(block: ToolResultBlock) -> JsonObject:
    wire: JsonObject = {
        "type": "tool-result",
        "toolCallId": block.tool_call_id,
        "content": _all(block.content),
    }
    if block.is_error:
        wire["isError"] = True
    return wire


def _unknown(block: UnknownBlock) -> JsonObject:
    return {"type": block.type, **block.data}


def _declared(block: ContentBlock) -> JsonObject:
    wire = adapter_of(type(block)).dump_python(block, mode="json", by_alias=True, exclude_none=True)
    return cast("JsonObject", wire)


def _replay(replay: ReplayState) -> JsonObject:
    return {"provider": replay.provider, "model": replay.model, "state": replay.state}


def _message(message: Message) -> JsonObject:
    wire: JsonObject = {"role": message.role, "content": _all(message.content)}
    if message.replay is not None:
        wire["replay"] = _replay(message.replay)
    return wire


def _usage(usage: TokenUsage) -> JsonObject:
    wire: JsonObject = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
    _put(wire, "cacheReadTokens", usage.cache_read_tokens)
    _put(wire, "cacheWriteTokens", usage.cache_write_tokens)
    _put(wire, "reasoningTokens", usage.reasoning_tokens)
    return wire


def _failure(failure: LlmFailure) -> JsonObject:
    wire: JsonObject = {}
    _put(wire, "status", failure.status)
    _put(wire, "retryAfterMs", failure.retry_after_ms)
    _put(wire, "requestId", failure.request_id)
    return wire


def _reason(reason: FinishReason) -> JsonObject:
    wire: JsonObject = {"kind": reason.kind}
    _put(wire, "message", reason.message)
    _put(wire, "code", reason.code)
    if reason.failure is not None:
        wire["failure"] = _failure(reason.failure)
    return wire


def _block_start(chunk: BlockStart) -> JsonObject:
    return {"type": "block-start", "index": chunk.index, "blockType": chunk.block_type}


def _delta(chunk: TextDelta | ReasoningDelta) -> JsonObject:
    return {"type": chunk.type, "index": chunk.index, "text": chunk.text}


def _tool_call_delta(chunk: ToolCallDelta) -> JsonObject:
    wire: JsonObject = {"type": "tool-call-delta", "index": chunk.index, "id": chunk.id}
    if chunk.name is not None:
        wire["name"] = chunk.name
    wire["argumentsDelta"] = chunk.arguments_delta
    return wire


def _block_end(chunk: BlockEnd) -> JsonObject:
    return {"type": "block-end", "index": chunk.index, "block": encode(chunk.block)}


def _usage_chunk(chunk: UsageChunk) -> JsonObject:
    return {"type": "usage", "usage": _usage(chunk.usage)}


def _finish(chunk: Finish) -> JsonObject:
    wire: JsonObject = {"type": "finish", "reason": _reason(chunk.reason)}
    if chunk.replay is not None:
        wire["replay"] = _replay(chunk.replay)
    return wire


def _tool_schema(tool: ToolSchema) -> JsonObject:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


def _config(config: LlmCallConfig | LlmRequest) -> JsonObject:
    wire: JsonObject = {"model": config.model}
    _put(wire, "temperature", config.temperature)
    _put(wire, "maxTokens", config.max_tokens)
    if config.stop is not None:
        wire["stop"] = list(config.stop)
    _put(wire, "reasoningEffort", config.reasoning_effort)
    return wire


def _request(request: LlmRequest) -> JsonObject:
    wire = _config(request)
    _put(wire, "system", request.system)
    if request.tools is not None:
        wire["tools"] = _all(request.tools)
    wire["messages"] = _all(request.messages)
    _put(wire, "sessionId", request.session_id)
    _put(wire, "purpose", request.purpose)
    if request.loop:
        wire["loop"] = True
    return wire


def _model_info(info: ModelInfo) -> JsonObject:
    wire: JsonObject = {"id": info.id}
    _put(wire, "name", info.name)
    _put(wire, "contextWindow", info.context_window)
    _put(wire, "maxOutputTokens", info.max_output_tokens)
    wire["reasoningEfforts"] = list(info.reasoning_efforts)
    wire["inputModalities"] = list(info.input_modalities)
    if info.provider:
        wire["provider"] = info.provider
    return wire


def _put(wire: JsonObject, key: str, value: JsonValue) -> None:
    if value is not None:
        wire[key] = value


def _all(values: tuple[object, ...]) -> list[JsonValue]:
    return cast("list[JsonValue]", [encode(value) for value in values])


_ENCODERS: dict[type, Encoder] = {
    TextBlock: _text,
    ReasoningBlock: _text,
    ToolCallBlock: _tool_call,
    ToolResultBlock: _tool_result,
    UnknownBlock: _unknown,
    ReplayState: _replay,
    Message: _message,
    TokenUsage: _usage,
    LlmFailure: _failure,
    FinishReason: _reason,
    BlockStart: _block_start,
    TextDelta: _delta,
    ReasoningDelta: _delta,
    ToolCallDelta: _tool_call_delta,
    BlockEnd: _block_end,
    UsageChunk: _usage_chunk,
    Finish: _finish,
    ToolSchema: _tool_schema,
    LlmCallConfig: _config,
    LlmRequest: _request,
    ModelInfo: _model_info,
}
