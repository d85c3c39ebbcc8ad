"""How calls and results look. Pure, and total over whatever an old log holds."""

from __future__ import annotations

from dsh.core import JsonObject
from dsh.llm import TextBlock
from dsh.tools import (
    CallView,
    GenericCard,
    ResultView,
    TerminalCard,
    TerminalResult,
    ToolOutcome,
)

__all__ = ["present_call", "present_kill", "present_output", "present_result"]


def present_call(arguments: JsonObject) -> CallView | None:
    """Show a command as a terminal."""
    command, workdir = arguments.get("command"), arguments.get("workdir")
    description = arguments.get("description")
    if not isinstance(command, str):
        return None
    return TerminalCard(
        title=command,
        description=description if isinstance(description, str) else None,
        cwd=workdir if isinstance(workdir, str) else None,
    )


def present_result(arguments: JsonObject, outcome: ToolOutcome) -> ResultView | None:
    """Show what a command printed and how it ended, from the facts in `meta`."""
    meta = outcome.meta
    if outcome.is_error or meta is None or "exitCode" not in meta:
        return None
    text = "".join(block.text for block in outcome.content if isinstance(block, TextBlock))
    markers = meta.get("markers")
    if isinstance(markers, list):
        # a policy may have put something else in the place of output and markers
        text = text.removesuffix("\n".join(map(str, markers)))
    code, signal = meta.get("exitCode"), meta.get("signal")
    limit = meta.get("timeoutMs") if meta.get("timedOut") is True else None
    return TerminalResult(
        output=text,
        exit_code=code if isinstance(code, int) else None,
        signal=signal if isinstance(signal, str) else None,
        timed_out_ms=limit if isinstance(limit, int | float) else None,
    )


def present_output(arguments: JsonObject) -> CallView | None:
    """Show a look at a background command."""
    return GenericCard(f"Output of {arguments.get('task_id')}", kind="read")


def present_kill(arguments: JsonObject) -> CallView | None:
    """Show the end of a background command."""
    return GenericCard(f"Stop {arguments.get('task_id')}", kind="execute")
