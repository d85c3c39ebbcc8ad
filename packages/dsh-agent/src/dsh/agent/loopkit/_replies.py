"""What becomes of a reply before it is logged: calls that a provider takes back."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from dsh.llm import ContentBlock, Message, ToolCallBlock
from dsh.session import AssistantMessage, Session

CUT_OFF: Final = frozenset({"max-tokens", "refusal"})
"""Finishes after which a tool call may be incomplete, so that none of the reply runs."""

_NAME_LENGTH: Final = 64
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{_NAME_LENGTH}}}")
"""Names of tools as chat-completions servers accept them."""


class CallIds:
    """Gives every call of a session an id no other call of it has, and a name.

    Models leave ids out, use them twice, and write names like `functions.bash`. A request that
    repeats such a call is refused, and with it every later one, so it is mended before the reply
    is logged; the chunks keep what the model wrote.

    Args:
        session: The log; it is read once, at the first reply.
    """

    __slots__ = ("_session", "_used")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._used: set[str] | None = None

    def mend(self, message: Message, turn: int, step: int) -> Message:
        """Return the reply with calls that can be answered; call it once for each reply.

        Args:
            message: The reply as policies left it.
            turn: The open turn.
            step: The open step.

        Returns:
            The reply to log. A new id has the form `call_<turn>_<step>_<index>`; an empty name
            becomes `unknown_tool`.
        """
        used = self._ids()
        blocks: list[ContentBlock] = []
        for index, block in enumerate(message.content):
            if isinstance(block, ToolCallBlock):
                call_id = block.id
                if not call_id or call_id in used:
                    call_id = _fresh(f"call_{turn}_{step}_{index}", used)
                used.add(call_id)
                name = _callable_name(block.name)
                if (call_id, name) != (block.id, block.name):
                    block = ToolCallBlock(call_id, name, block.arguments)
            blocks.append(block)
        content = tuple(blocks)
        return message if content == message.content else replace(message, content=content)

    def _ids(self) -> set[str]:
        if self._used is None:
            self._used = {
                block.id
                for event in self._session.events
                if isinstance(event.data, AssistantMessage)
                for block in event.data.content
                if isinstance(block, ToolCallBlock)
            }
        return self._used


def without_calls(message: Message) -> Message:
    """Return a reply without its tool calls.

    Args:
        message: The reply.

    Returns:
        The same message where it calls nothing.
    """
    kept = tuple(block for block in message.content if not isinstance(block, ToolCallBlock))
    return message if len(kept) == len(message.content) else replace(message, content=kept)


def _callable_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]", "_", name.strip())[:_NAME_LENGTH] or "unknown_tool"


def _fresh(wanted: str, used: set[str]) -> str:
    call_id, number = wanted, 1
    while call_id in used:
        number += 1
        call_id = f"{wanted}_{number}"
    return call_id
