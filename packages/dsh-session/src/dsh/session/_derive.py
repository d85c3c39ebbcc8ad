"""How an event becomes a message of the model's history."""

from __future__ import annotations

import json

from dsh.llm import ContentBlock, Message, TextBlock, ToolResultBlock
from dsh.session._event import SessionEvent
from dsh.session._event_types import (
    AssistantMessage,
    ContextMessage,
    SteeringMessage,
    ToolResult,
    UserMessage,
)
from dsh.session._message_sources import MessageSource
from dsh.session._session_data import SessionData

__all__ = ["derive_event_message", "message_of"]


def derive_event_message(event: SessionEvent) -> Message | None:
    """Return the message an event puts into the history, or None if it puts none.

    Prompts and answers go in as they are, an empty answer not at all; a tool result becomes a
    user message with one result block; context and steering become user messages whose content
    stands between an opening and a closing text block.
    """
    return message_of(event.data)


def message_of(data: SessionData) -> Message | None:
    """Do what `derive_event_message` does, from the payload alone."""
    match data:
        case UserMessage():
            return Message("user", data.content)
        case AssistantMessage():
            return Message("assistant", data.content, data.replay) if data.content else None
        case ToolResult():
            block = ToolResultBlock(data.call_id, data.content, data.is_error)
            return Message("user", (block,))
        case ContextMessage():
            return Message("user", _envelope("context", data.source, data.content))
        case SteeringMessage():
            return Message("user", _envelope("steering", data.source, data.content))
        case _:
            return None


def _envelope(
    tag: str, source: MessageSource, content: tuple[ContentBlock, ...]
) -> tuple[ContentBlock, ...]:
    # only the kind is shown: a plugin's name means nothing to the model
    kind = json.dumps(source.kind, ensure_ascii=False)
    return (TextBlock(f"<{tag} source={kind}>"), *content, TextBlock(f"</{tag}>"))
