"""Telling what went wrong: one message, the way out, and the exit code."""

from __future__ import annotations

import os
import sys
from typing import Any, cast

from dsh.cli._exit_codes import CLOSED_PIPE, ERROR, USAGE
from dsh.cli._out import ClosedPipe, mute_stdout, stderr, stdout
from dsh.cli.errors import CliError
from dsh.core import ConfigError, DshError, MissingServiceError
from dsh.core import json as djson
from dsh.loader import (
    BootError,
    ConfigFileError,
    ConfigKeyError,
    InterpolationError,
    PinError,
    PluginNameError,
    SeamError,
)

_CONFIGURATION = (
    ConfigError,
    ConfigFileError,
    ConfigKeyError,
    InterpolationError,
    PinError,
    PluginNameError,
    SeamError,
)


def tell(error: BaseException, *, as_json: bool = False) -> int:
    """Say what went wrong and return the exit code.

    Args:
        error: What was raised.
        as_json: Say it as a `run/error` line on stdout too.
    """
    error = unwrap(error)
    if isinstance(error, ClosedPipe):
        mute_stdout()
        return error.exit_code
    if isinstance(error, BrokenPipeError):  # of a command that writes by itself
        mute_stdout()
        return CLOSED_PIPE
    message, code, hint = describe(error)
    exit_code = exit_code_of(error)
    say(message, hint)
    show_stack(error)
    if as_json:
        _tell_json(message, code, hint, exit_code)
    return exit_code


def say(message: str, hint: str | None = None) -> None:
    """Write a message of the command's own to stderr."""
    err = stderr()
    err.line(f"dsh: {message}")
    if hint:
        err.line(f"     {hint}")


def describe(error: BaseException) -> tuple[str, str, str | None]:
    """Return message, stable code and hint of an error."""
    if isinstance(error, DshError):
        return error.message, error.code, error.hint
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}", "OS_ERROR", None
    if isinstance(error, MemoryError):
        return "out of memory", "OUT_OF_MEMORY", None
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "this is a mistake in dsh or in a plugin; DSH_DEBUG=1 shows where"
    return f"unexpected error: {text}", "INTERNAL", hint


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that stands for an error."""
    own: object = getattr(error, "exit_code", None)
    if isinstance(error, DshError) and type(own) is int:
        return own  # ours, and those of commands that other wheels add
    if isinstance(error, BootError):
        causes = [item.error for item in error.problems if item.error is not None]
        return USAGE if all(isinstance(cause, _CONFIGURATION) for cause in causes) else ERROR
    if isinstance(error, MissingServiceError):
        return USAGE
    return USAGE if isinstance(error, _CONFIGURATION) else ERROR


def unwrap(error: BaseException) -> BaseException:
    """Return the first member of a group, however deep it sits."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def error_object(message: str, code: str, hint: str | None, exit_code: int) -> dict[str, Any]:
    """Return the `run/error` line of `--json`, for what went wrong before a turn."""
    value: dict[str, Any] = {"type": "run/error", "code": code, "message": _clean(message)}
    if hint:
        value["hint"] = _clean(hint)
    value["exitCode"] = exit_code
    return value


def _tell_json(message: str, code: str, hint: str | None, exit_code: int) -> None:
    try:
        stdout().line(djson.dumps(error_object(message, code, hint, exit_code)).decode())
    except CliError:
        mute_stdout()  # it has been said on stderr


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def show_stack(error: BaseException) -> None:
    """Write the traceback to stderr, if `DSH_DEBUG` asks for it."""
    if not os.environ.get("DSH_DEBUG"):
        return
    # a switch for developers
    import traceback

    from dsh.core import secrets

    text = "".join(traceback.format_exception(error))
    if isinstance(error, BootError):
        text += error.stack
    sys.stderr.write(secrets.redact(text))
