"""Writes the body of a request.

History only grows, so each message is encoded once, the bytes are kept on the message itself and a
body is joined from them. Equal requests give equal bytes, and a longer conversation starts with the
bytes of the shorter one, which is what the provider's cache of prefixes needs.
"""

from __future__ import annotations

import json
from typing import Final

from dsh.llm import (
    ContentBlock,
    LlmError,
    LlmRequest,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    alt_text,
)
from dsh.llm_deepseek._config import DeepSeekConfig
from dsh.llm_deepseek._wire import WireMessage, WireTool, WireToolCall

EMPTY_RESULT: Final = "(no output)"
"""What the model reads where a tool has said nothing."""

MEDIA: Final = frozenset({"image", "audio", "video"})
"""Kinds of blocks that carry what the model should see and cannot be sent."""

TITLE_PURPOSE: Final = "session-title"
"""The purpose of requests that never need thinking."""

_LOOK_BACK: Final = 16
"""How many messages one step may add to a history and still go on from the earlier one."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Serializer:
    """Writes request bodies for one configuration."""

    def __init__(self, config: DeepSeekConfig) -> None:
        self._config = config
        extra = _encode(config.extra_body)[1:-1]
        self._extra = _bytes(f",{extra}") if extra else b""
        self._tools: tuple[ToolSchema, ...] = ()
        self._tools_bytes = b""

    def body(self, request: LlmRequest) -> bytes:
        """Return the body of `request` as UTF-8 JSON.

        Raises:
            LlmError: `UNSUPPORTED_REASONING_EFFORT` or `UNSUPPORTED_CONTENT`.
        """
        options = self._thinking(request)
        passback = self._config.reasoning_passback
        fill = passback and self._thinks(request.model, options)
        key = f"dsh.llm_deepseek/{passback:d}{fill:d}"
        # One list and one join: a long conversation is copied once. What is kept of a message
        # begins with a comma, which the first one does without.
        parts = [b'{"model":', _bytes(_encode(request.model)), b',"messages":[']
        start = len(parts)
        if request.system:
            parts.append(_bytes("," + _encode({"role": "system", "content": request.system})))
        parts += _history(request.messages, key, passback, fill)
        if len(parts) > start:
            parts[start] = parts[start][1:]
        parts += (
            b'],"stream":true,"stream_options":{"include_usage":true}',
            _bytes(self._options(request, options)),
            self._tools_part(request.tools),
            self._extra,
            b"}",
        )
        return b"".join(parts)

    def _thinking(self, request: LlmRequest) -> dict[str, object]:
        """Return the fields about thinking; none where nobody has said anything."""
        config = self._config
        effort = request.reasoning_effort
        if request.purpose == TITLE_PURPOSE:
            return {"thinking": {"type": "disabled"}} if config.thinking_parameter else {}
        if effort is None:
            effort = config.reasoning_effort
        if effort is not None and effort not in config.efforts:
            raise LlmError(
                f"{config.provider} does not offer the reasoning effort {effort!r}",
                code=LlmError.UNSUPPORTED_REASONING_EFFORT,
                hint=f"use one of {', '.join(config.efforts)}",
            )
        if not config.thinking_parameter:
            return {} if effort is None else {"reasoning_effort": effort}
        if effort == "off":
            return {"thinking": {"type": "disabled"}}
        if effort is not None:
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        return {} if config.thinking is None else {"thinking": {"type": config.thinking}}

    def _thinks(self, model: str, options: dict[str, object]) -> bool:
        """Tell whether the answer will come from a model that thinks.

        Such a model refuses a turn with tool calls whose reasoning is missing, which happens when
        the turn came from another provider. DeepSeek's models think unless they are told not to.
        """
        if "thinking" in options:
            return options["thinking"] == {"type": "enabled"}
        return "deepseek" in model.lower()

    def _options(self, request: LlmRequest, thinking: dict[str, object]) -> str:
        config = self._config
        fields = dict(thinking)
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        limit = request.max_tokens
        if limit is None:
            limit = config.default_max_tokens(request.model)
        if limit is not None:
            fields[config.max_tokens_parameter] = limit
        if request.stop:
            fields["stop"] = request.stop
        return f",{_encode(fields)[1:-1]}" if fields else ""

    def _tools_part(self, tools: tuple[ToolSchema, ...] | None) -> bytes:
        if not tools:
            return b""
        # The loop hands over the same schemas step after step; they are never modified.
        known = self._tools
        if len(known) != len(tools) or any(a is not b for a, b in zip(known, tools, strict=True)):
            self._tools_bytes = _bytes(f',"tools":{_encode([_tool(tool) for tool in tools])}')
            self._tools = tools
        return self._tools_bytes


def _history(
    messages: tuple[Message, ...], key: str, passback: bool, fill: bool
) -> tuple[bytes, ...]:
    """Return the encoded messages.

    A history mostly is an earlier one with something added. The encoded earlier one lies on the
    memo of its last message, beside the messages in front of that one, so that it goes when they
    go and a long history is not walked for every request.
    """
    mark = f"{key}/history"
    known: tuple[bytes, ...] = ()
    start = 0
    for index in range(len(messages) - 1, max(-1, len(messages) - 1 - _LOOK_BACK), -1):
        before = messages[index].memo.get(mark)
        if before is not None and before[0] == messages[:index]:
            del messages[index].memo[mark]
            known, start = before[1], index + 1
            break
    fresh = [
        message.memo.get(key) or _remember(message, key, passback, fill)
        for message in messages[start:]
    ]
    parts = (*known, *fresh)
    if messages:
        messages[-1].memo[mark] = (messages[:-1], parts)
    return parts


def _remember(message: Message, key: str, passback: bool, fill: bool) -> bytes:
    wire = convert(message, passback=passback, fill=fill)
    data = message.memo[key] = b"".join(_bytes("," + _encode(item)) for item in wire)
    return data


def convert(message: Message, *, passback: bool = True, fill: bool = False) -> list[WireMessage]:
    """Return a message in the form of the wire; a message with tool results becomes several.

    Args:
        message: The message.
        passback: Whether reasoning is sent back.
        fill: Whether a turn with tool calls gets the field of reasoning even without any.

    Raises:
        LlmError: Code `UNSUPPORTED_CONTENT`.
    """
    match message.role:
        case "assistant":
            return [_assistant(message, passback, fill)]
        case "user":
            return _user(message)
        case _:
            return [{"role": message.role, "content": _text(message.content)}]


def _assistant(message: Message, passback: bool, fill: bool) -> WireMessage:
    # Never null: the live service refuses a message without a text.
    wire: WireMessage = {"role": "assistant", "content": _text(message.content)}
    reasoning = "".join(b.text for b in message.content if isinstance(b, ReasoningBlock))
    calls: list[WireToolCall] = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": block.arguments},
        }
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    if passback and (reasoning or (fill and calls)):
        wire["reasoning_content"] = reasoning
    if calls:
        wire["tool_calls"] = calls
    return wire


def _user(message: Message) -> list[WireMessage]:
    results: list[WireMessage] = [
        {
            "role": "tool",
            "content": _text(block.content) or EMPTY_RESULT,
            "tool_call_id": block.tool_call_id,
        }
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    text = _text(message.content)
    if text or not results:
        results.insert(0, {"role": "user", "content": text})
    return results


def _text(content: tuple[ContentBlock, ...]) -> str:
    return "".join([_text_of(block) for block in content])


def _text_of(block: ContentBlock) -> str:
    """Return what of a block stands in the text: a kind others added only if it says so."""
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ReasoningBlock | ToolCallBlock | ToolResultBlock):
        return ""
    if block.type in MEDIA:
        raise LlmError(
            f"the conversation contains a block of kind {block.type!r}, "
            "which this adapter cannot send",
            code=LlmError.UNSUPPORTED_CONTENT,
            hint="describe it in text, or use a provider that takes it",
        )
    return alt_text(block) or ""


def _tool(tool: ToolSchema) -> WireTool:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _bytes(text: str) -> bytes:
    # Half a character cannot be sent; the log refuses it too, so this hardly ever happens.
    return text.encode("utf-8", "replace")
