"""How results read. What a program needs of them is in `meta`; nothing parses these texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsh.bash import BashRead, BashResult, BashTask, CollectedOutput, SandboxFacts
from dsh.core import JsonObject, secrets
from dsh.tools import NO_OUTPUT

__all__ = [
    "Rendered",
    "completion_notice",
    "render_read",
    "render_result",
    "status_line",
    "task_meta",
]

_NOTICE_COMMAND_CHARS = 120


@dataclass(frozen=True, slots=True)
class Rendered:
    """A result as text and as facts."""

    text: str
    """What the model reads."""
    meta: JsonObject
    """The facts, for presenters and logs."""


def render_result(result: BashResult) -> Rendered:
    """Render a foreground command."""
    markers = _markers(result)
    meta: JsonObject = {
        "exitCode": result.exit_code,
        "signal": result.signal,
        "timedOut": result.timed_out,
        "timeoutMs": result.timeout_ms,
        "left": result.left,
        "truncated": result.stdout.truncated or result.stderr.truncated,
        "markers": [*markers],
    }
    for name, stream in (("stdout", result.stdout), ("stderr", result.stderr)):
        if stream.spill_path is not None:
            meta[f"{name}SpillPath"] = stream.spill_path
    if result.sandbox is not None:
        meta["sandbox"] = _sandbox_meta(result.sandbox)
    return Rendered(_joined(_body(result), markers), meta)


def _joined(body: str, markers: Sequence[str]) -> str:
    """Put the markers on lines of their own under the body."""
    gap = "\n" if markers and not body.endswith("\n") else ""
    return body + gap + "\n".join(markers)


def _body(result: BashResult) -> str:
    out, err = _stream(result.stdout), _stream(result.stderr)
    if not err:
        return out or NO_OUTPUT
    gap = "\n" if out and not out.endswith("\n") else ""
    return f"{out}{gap}[stderr]\n{err}"


def _stream(stream: CollectedOutput) -> str:
    if not stream.truncated:
        return stream.text
    where = stream.spill_path or "(unavailable)"
    gap = "" if stream.text.endswith("\n") else "\n"
    return f"{stream.text}{gap}[output truncated; full output: {where}]"


def _markers(result: BashResult) -> list[str]:
    """The lines after the output; the one about the exit is always the last."""
    markers: list[str] = []
    if result.stdout.undecodable or result.stderr.undecodable:
        markers.append("[bytes that are not UTF-8 are shown as \ufffd]")
    if result.left:
        markers.append(_left(result.left))
    if result.sandbox is not None and result.sandbox.denied:
        markers.append(_denied(result.sandbox))
    if result.timed_out:
        markers.append(f"[timed out after {result.timeout_ms:.12g}ms]")
    if result.signal is not None:
        markers.append(f"[killed by signal: {result.signal}]")
    elif result.exit_code:
        markers.append(f"[exit code: {result.exit_code}]")
    return markers


def _left(count: int) -> str:
    what = "1 process" if count == 1 else f"{count} processes"
    return f"[{what} started by this command still running in the background]"


def _denied(facts: SandboxFacts) -> str:
    return f"[sandbox: file access denied under {facts.mode} mode]"


def _sandbox_meta(facts: SandboxFacts) -> JsonObject:
    return {"mode": facts.mode, "denied": facts.denied, "enforcement": facts.enforcement}


def render_read(read: BashRead) -> Rendered:
    """Render what a background command printed since the last read."""
    task = read.task
    paths = [path for path in (read.stdout_spill_path, read.stderr_spill_path) if path]
    body = read.delta or "(no new output)"
    markers: list[str] = []
    if read.undecodable:
        markers.append("[bytes that are not UTF-8 are shown as \ufffd]")
    if read.lossy:
        where = ", ".join(paths) or "(unavailable)"
        markers.append(f"[some output was dropped from memory; full output: {where}]")
    if task.left:
        markers.append(_left(task.left))
    markers.append(status_line(task))
    if task.sandbox is not None and task.sandbox.runner_failed:
        markers.append("[sandbox: the command did not run, the sandbox itself failed]")
    elif task.sandbox is not None and task.sandbox.denied:
        markers.append(_denied(task.sandbox))
    return Rendered(_joined(body, markers), {**task_meta(task), "lossy": read.lossy})


def task_meta(task: BashTask) -> JsonObject:
    """Facts of a background command."""
    return {
        "taskId": task.id,
        "status": task.status,
        "exitCode": task.exit_code,
        "signal": task.signal,
        "left": task.left,
    }


def status_line(task: BashTask) -> str:
    """Say in one bracket how a background command is doing."""
    if task.status == "running":
        return "[status: running]"
    if task.signal is not None:
        return f"[status: killed by {task.signal}]"
    if task.status == "killed":
        return "[status: killed]"
    return f"[status: completed, exit code: {task.exit_code or 0}]"


def completion_notice(task: BashTask) -> str:
    """Tell an agent in one line that its background command has ended."""
    command = " ".join(secrets.redact(task.command).split())
    if len(command) > _NOTICE_COMMAND_CHARS:
        command = command[: _NOTICE_COMMAND_CHARS - 3] + "..."
    return (
        f"Background command {task.id} has ended: {status_line(task)} Its output can be read with"
        f" bash_output. The command was: {command}"
    )
