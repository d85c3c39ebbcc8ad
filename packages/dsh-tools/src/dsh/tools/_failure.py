"""From whatever was raised to an error result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from dsh.core import DshError
from dsh.llm import TextBlock
from dsh.session import ErrorInfo
from dsh.tools._results import ToolExecutionResult
from dsh.tools._text import readable

__all__ = ["PolicyFailed", "error_result", "failure", "is_harness_error", "message_of"]

_UNPRINTABLE: Final = "an error that cannot be described"
_MAX_LEAVES: Final = 5


def failure(call_id: str, error: BaseException) -> ToolExecutionResult:
    """Return the error result for an exception; never raises, however hostile the exception.

    An exception group counts as its leaves: an error inside a task group reads like the error
    itself. Only harness errors leave a machine-readable name and code.
    """
    leaves = list(_leaves(error))
    info = _info(leaves[0]) if len(leaves) == 1 else None
    return error_result(call_id, _text(leaves), info)


def is_harness_error(error: BaseException) -> bool:
    """Whether an exception says by its code what it is; a group of one counts as that one."""
    leaves = list(_leaves(error))
    return len(leaves) == 1 and isinstance(leaves[0], DshError)


class PolicyFailed(Exception):
    """A policy broke down; raised from what it raised, and says whose it was."""

    def __init__(self, plugin: str, error: Exception) -> None:
        super().__init__(f"a policy of {plugin!r} failed: {_text(list(_leaves(error)))}")


def error_result(call_id: str, message: str, error: ErrorInfo | None = None) -> ToolExecutionResult:
    """Return an error result with one text, `Error: <message>`."""
    return ToolExecutionResult(
        call_id, (TextBlock(f"Error: {readable(message)}"),), is_error=True, error=error
    )


def _text(leaves: list[BaseException]) -> str:
    texts = [message_of(leaf) for leaf in leaves[:_MAX_LEAVES]]
    if len(leaves) > _MAX_LEAVES:
        texts.append(f"and {len(leaves) - _MAX_LEAVES} more")
    return "; ".join(texts)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    stack = [error]
    while stack:
        top = stack.pop()
        if isinstance(top, BaseExceptionGroup):
            stack.extend(reversed(cast("BaseExceptionGroup[BaseException]", top).exceptions))
        else:
            yield top


def message_of(error: BaseException) -> str:
    """Return what an exception says; never raises, and never empty."""
    try:
        # exact str, so that no method of a subclass runs later on
        plain = str.__str__(str(error))
        return plain if plain.strip() else type(error).__name__
    except Exception:  # noqa: BLE001 - a hostile __str__ must not hide that the tool failed
        return _UNPRINTABLE


def _info(error: BaseException) -> ErrorInfo | None:
    if not isinstance(error, DshError):
        return None
    try:
        code: object = error.code
    except Exception:  # noqa: BLE001 - as above
        return None
    if type(code) is not str:
        return None
    return ErrorInfo(readable(type(error).__name__), readable(code))
