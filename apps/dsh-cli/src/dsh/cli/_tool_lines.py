"""Tool calls and their outcomes, one short line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dsh.agent import Agent
from dsh.cli._text import one_line
from dsh.core import JsonObject
from dsh.core import json as djson
from dsh.llm import ContentBlock, TextBlock, alt_text
from dsh.session import ToolCall, ToolResult
from dsh.tools import (
    NO_OUTPUT,
    GenericCard,
    GenericResult,
    TerminalCard,
    TerminalResult,
    ToolOutcome,
    ToolRegistry,
)


class ToolLines:
    """Tells the calls of an agent as they come.

    Args:
        tools: Knows how calls look; without it every call looks like one of an unknown tool.
        agent: The agent.
    """

    def __init__(self, tools: ToolRegistry | None = None, agent: Agent | None = None) -> None:
        self._tools = tools
        self._agent = agent
        self._calls: dict[str, ToolCall] = {}

    def call(self, call: ToolCall) -> str:
        """Return what a call does, on one line."""
        self._calls[call.call_id] = call
        view = (
            GenericCard(call.name)
            if self._tools is None
            else self._tools.call_view(call.name, call.arguments, self._agent)
        )
        if isinstance(view, TerminalCard):
            return one_line(f"$ {view.title}")
        if view.title != call.name:
            return one_line(f"> {view.title}")
        arguments = view.raw_input if isinstance(view, GenericCard) else None
        told = _told(arguments) if isinstance(arguments, dict) else call.arguments
        return one_line(f"> {call.name} {told}")

    def result(self, result: ToolResult) -> str:
        """Return how a call ended, on one line."""
        call = self._calls.pop(result.call_id, None)
        meta = None if result.meta is None else dict(result.meta)
        outcome = ToolOutcome(result.content, result.is_error, meta)
        view = (
            GenericResult()
            if call is None or self._tools is None
            else self._tools.result_view(call.name, call.arguments, outcome, self._agent)
        )
        if isinstance(view, TerminalResult):
            return "  " + _terminal(view, result)
        if view.title:
            return "  " + one_line(view.title)
        text = _text(result.content)
        if result.is_error:
            code = f" [{result.error.code}]" if result.error is not None else ""
            return "  " + one_line(f"failed{code}: {_first_line(text)}")
        return "  " + _summary("ok", text)


def _terminal(view: TerminalResult, result: ToolResult) -> str:
    if view.timed_out_ms is not None:
        head = f"timed out after {view.timed_out_ms:.12g} ms"
    elif view.signal is not None:
        head = f"killed by {view.signal}"
    elif view.exit_code is not None:
        head = f"exit {view.exit_code}"
    else:
        head = "failed" if result.is_error else "ok"
    output = view.output if view.output is not None else _text(result.content)
    return _summary(head, output, last=True)


def _summary(head: str, text: str, *, last: bool = False) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or lines == [NO_OUTPUT]:
        return head
    count = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    return one_line(f"{head}, {count}: {lines[-1 if last else 0].strip()}")


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "no message")


def _text(content: Iterable[ContentBlock]) -> str:
    texts = [block.text if isinstance(block, TextBlock) else alt_text(block) for block in content]
    return "\n".join(text for text in texts if text is not None)


def _told(arguments: JsonObject) -> str:
    return " ".join(f"{key}={_short(value)}" for key, value in arguments.items())


def _short(value: Any) -> str:
    return value if isinstance(value, str) else djson.dumps(value).decode()
