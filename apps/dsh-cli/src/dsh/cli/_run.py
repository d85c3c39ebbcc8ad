"""`dsh run`: one task, its answer, an exit code."""

from __future__ import annotations

import argparse
import gc
import os
import stat
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, cast

from dsh.cli._exit_codes import BLOCKED, CLOSED_PIPE, ERROR, LIMIT, OK
from dsh.cli._out import mute_stdout, stderr, stdout
from dsh.cli._resume import find_session_to_resume, wants_to_resume
from dsh.cli._settings import read_settings, working_folder
from dsh.cli._starting import Starting
from dsh.cli.errors import CliError, UsageError
from dsh.core import JsonObject, NotJsonError
from dsh.core import json as djson

if TYPE_CHECKING:
    from dsh.cli._view import Report, View

_MAX_TASK_BYTES: Final = 16 * 1024 * 1024
_MAX_SCHEMA_BYTES: Final = 1024 * 1024


def command(args: argparse.Namespace) -> int:
    """Run a task and return the exit code."""
    text = _task_text(args.task)
    folder = working_folder(args.cwd)
    schema = None if args.output_schema is None else _schema(args.output_schema)
    target = None if args.output_last_message is None else _target(args.output_last_message)
    deployment = read_settings(args, folder)
    err = stderr()
    past = None
    if wants_to_resume(args):
        here = folder
        past, deployment, folder = find_session_to_resume(args, deployment, folder)
        if folder != here:
            err.line(f"dsh: going on in {folder}, where the session works")
        for note in past.notes:
            err.line(f"dsh: {note}")
    for note in deployment.notes:
        err.line(f"dsh: {note}")

    # everything above fails in a moment; from here on the heavy modules are needed, and until the
    # agent is there what is allocated is no garbage
    gc.disable()
    with Starting():
        import anyio

        from dsh.cli._logs import Logs
        from dsh.cli._signals import Signals
        from dsh.cli._task import Task, perform
        from dsh.cli._view import JsonView, TextView

    out = stdout()
    view = (
        JsonView(out, err)
        if args.json
        else TextView(out, err, quiet=args.quiet, final_only=schema is not None)
    )
    task = Task(
        text=text,
        deployment=deployment,
        folder=folder,
        model=args.model or (None if past is None else past.model),
        effort=args.effort or (None if past is None or args.model else past.effort),
        max_steps=args.max_steps,
        max_tokens=args.max_tokens,
        max_turn_tokens=args.max_turn_tokens,
        timeout_s=args.timeout if args.timeout is not None else deployment.limits.timeout_s,
        schema=schema,
        past=past,
        ephemeral=args.ephemeral,
    )
    try:
        # what a plugin prints is no part of the answer
        with redirect_stdout(sys.stderr), Signals() as signals, Logs(err) as logs:
            report = anyio.run(perform, task, view, signals, logs)
            logs.show_trouble(told=report.message)
            return _finish(view, report, target)
    finally:
        gc.enable()


def _finish(view: View, report: Report, target: Path | None) -> int:
    exit_code = report.exit_code
    if target is not None and report.text and exit_code in {OK, LIMIT, BLOCKED}:
        try:
            _write_message(target, report.text)
        except OSError as error:
            view.err.line(f"dsh: {target}: cannot be written: {error.strerror}")
            exit_code = exit_code or ERROR
    if exit_code != report.exit_code:
        report = replace(report, exit_code=exit_code)
    if exit_code == CLOSED_PIPE:
        mute_stdout()
        return exit_code
    try:
        view.end(report)
    except CliError as error:
        mute_stdout()
        if error.exit_code != CLOSED_PIPE:
            view.err.line(f"dsh: {error.message}")
        return exit_code or error.exit_code
    return exit_code


def _task_text(words: list[str]) -> str:
    """Return the task from the command line, from standard input, or from both.

    Standard input is read if there are no words or the last of them is `-`.

    Raises:
        UsageError: There is none, or it is empty.
    """
    if len(words) > 1 and words[0] == "-":
        raise UsageError(
            "`-` comes after the task, or stands alone",
            hint='for example: git diff | dsh run "review this:" -',
        )
    appends = len(words) > 1 and words[-1] == "-"
    given = words[:-1] if appends or words == ["-"] else words
    text = _checked(" ".join(given))
    if given and not text.strip():
        raise UsageError("the task is empty")
    if given and not appends:
        return text
    more = _standard_input(words)
    return f"{text}\n\n{more}" if given else more


def _standard_input(words: list[str]) -> str:
    stdin = cast("TextIO | None", sys.stdin)
    if stdin is None or (not words and stdin.isatty()):
        raise UsageError("no task given", hint='for example: dsh run "make the failing test pass"')
    try:
        data = stdin.buffer.read(_MAX_TASK_BYTES + 1)
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from error
    if len(data) > _MAX_TASK_BYTES:
        raise UsageError(f"the task on standard input is larger than {_MAX_TASK_BYTES} bytes")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("standard input holds no task", hint='for example: dsh run "task"')
    return text


def _checked(text: str) -> str:
    # bytes that are not UTF-8 arrive as lone surrogates, which no request can carry
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _schema(name: str) -> JsonObject:
    path = Path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--output-schema {name}: {error.strerror}") from error
    if len(data) > _MAX_SCHEMA_BYTES:
        raise UsageError(f"--output-schema {name}: larger than {_MAX_SCHEMA_BYTES} bytes")
    try:
        value = djson.check(djson.loads(data), where=name)
    except (NotJsonError, UnicodeDecodeError) as error:
        raise UsageError(f"--output-schema {name}: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"--output-schema {name}: a JSON Schema is an object")
    return value


def _target(name: str) -> Path:
    path = Path(os.path.abspath(name))
    if path.is_dir():
        raise UsageError(f"--output-last-message {name}: is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"--output-last-message {name}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--output-last-message {name}: may not be written")
    return path


def _write_message(path: Path, text: str) -> None:
    """Write the answer: in one step where the target is a plain file, else straight into it."""
    data = text.encode("utf-8", "replace")
    if not data.endswith(b"\n"):
        data += b"\n"
    real = Path(os.path.realpath(path))
    if real.exists() and not stat.S_ISREG(real.stat().st_mode):
        with real.open("wb") as file:
            file.write(data)
        return
    temporary = real.with_name(f".{real.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        if real.exists():
            temporary.chmod(stat.S_IMODE(real.stat().st_mode))
        temporary.replace(real)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
