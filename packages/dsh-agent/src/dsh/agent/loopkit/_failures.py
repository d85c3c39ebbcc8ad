"""From whatever was raised to what the log says about it."""

from __future__ import annotations

from typing import Final, cast

import anyio

from dsh.core import DshError
from dsh.llm import LlmFailure
from dsh.session import Failed, mend_text

UNKNOWN: Final = "UNKNOWN"
"""Code of what was raised and is no ordinary exception."""


def is_fatal(error: BaseException) -> bool:
    """Whether an exception ends the task: it goes on once the records are closed.

    Args:
        error: What was raised.

    Returns:
        True for cancellation and for the interpreter's own exits, also inside of a group.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(is_fatal(inner) for inner in group.exceptions)
    return isinstance(
        error,
        (anyio.get_cancelled_exc_class(), KeyboardInterrupt, SystemExit, GeneratorExit),
    )


def leaf_of(error: BaseException) -> Exception:
    """Return the exception to report: the first leaf of a group, with the group as its cause.

    What is no `Exception` is wrapped, with code `UNKNOWN`.

    Args:
        error: What was raised.

    Returns:
        What `agent/error` carries.
    """
    leaf = error
    while isinstance(leaf, BaseExceptionGroup):
        leaf = cast("BaseExceptionGroup[BaseException]", leaf).exceptions[0]
    if not isinstance(leaf, Exception):
        wrapped = DshError(text_of_error(leaf), code=UNKNOWN)
        wrapped.__cause__ = error
        return wrapped
    if leaf is not error and leaf.__cause__ is None:
        leaf.__cause__ = error
    return leaf


def failed(error: Exception, step: int) -> Failed:
    """Return the turn-end reason for a failure in a step.

    Args:
        error: What was raised; see `leaf_of`.
        step: The step it belongs to; 0 before the first one was announced.

    Returns:
        The reason, with the error's code and the provider's facts where it has them.
    """
    code = getattr(error, "code", None)
    failure = getattr(error, "failure", None)
    return Failed(
        step=step,
        message=text_of_error(error),
        code=code if isinstance(code, str) else None,
        failure=failure if isinstance(failure, LlmFailure) else None,
    )


def text_of_error(error: BaseException) -> str:
    """Return the message of an exception, also of one that cannot be turned into text.

    Args:
        error: What was raised.

    Returns:
        Text that the log accepts; never empty.
    """
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception with a broken __str__ must not break the turn
        return f"{name} (its message cannot be read)"
    return mend_text(text) or name
