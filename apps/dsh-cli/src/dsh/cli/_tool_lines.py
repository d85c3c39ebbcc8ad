"""Tool calls and their outcomes, one short line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dsh.cli._text import one_line
from dsh.core import DshError, JsonObject
from dsh.core import json as djson
from dsh.llm import ContentBlock, TextBlock, alt_text
from dsh.session import ToolCall, ToolResult
from dsh.tools import TerminalCard, TerminalResult, Tool, ToolOutcome

_NOTHING: Final = "(no output)"
"""What the bash tool shows the model in place of nothing."""


def call_line(call: ToolCall, tool: Tool | None) -> str:
    """Return what a call does, on one line."""
    arguments = arguments_of(call)
    if tool is None or arguments is None:
        return one_line(f"> {call.name} {call.arguments}")
    view = tool.call_view(arguments)
    if isinstance(view, TerminalCard):
        return one_line(f"$ {view.title}")
    if view.title != call.name:
        return one_line(f"> {view.title}")
    return one_line(f"> {call.name} {_told(arguments)}")


def result_line(call: ToolCall | None, result: ToolResult, tool: Tool | None) -> str:
    """Return how a call ended, on one line."""
    arguments = None if call is None else arguments_of(call)
    if tool is not None and arguments is not None:
        outcome = ToolOutcome(result.content, result.is_error, _meta(result))
        view = tool.result_view(arguments, outcome)
        if isinstance(view, TerminalResult):
            return "  " + _terminal(view, result)
        if view.title:
            return "  " + one_line(view.title)
    text = _text(result.content)
    if result.is_error:
        code = f" [{result.error.code}]" if result.error is not None else ""
        return "  " + one_line(f"failed{code}: {_first_line(text)}")
    return "  " + _summary("ok", text)


def arguments_of(call: ToolCall) -> JsonObject | None:
    """Return the arguments of a call, or `None` if they are no JSON object."""
    if not call.arguments.strip():
        return {}
    try:
        value = djson.loads(call.arguments)
    except DshError:
        return None
    return value if isinstance(value, dict) else None


def _terminal(view: TerminalResult, result: ToolResult) -> str:
    meta = result.meta or {}
    if meta.get("timedOut") is True:
        limit = meta.get("timeoutMs")
        head = f"timed out after {limit:.12g} ms" if isinstance(limit, int | float) else "timed out"
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
    if not lines or lines == [_NOTHING]:
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


def _meta(result: ToolResult) -> JsonObject | None:
    return None if result.meta is None else dict(result.meta)
