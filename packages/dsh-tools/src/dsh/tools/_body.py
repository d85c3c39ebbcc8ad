"""Runs the body of a tool, synchronous or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyio import to_thread

from dsh.tools.errors import ToolOutputError

__all__ = ["call_body", "is_async"]


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any = None
    error: BaseException | None = None


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling `function` gives something to await."""
    if inspect.iscoroutinefunction(function):
        return True
    # an object with an async `__call__`
    return inspect.iscoroutinefunction(type(function).__call__)


async def call_body(function: Callable[..., Any], inline: bool, *args: Any, **kwargs: Any) -> Any:
    """Call `function` and return what it returns or, if that can be awaited, what it comes to.

    A synchronous function runs in a worker thread unless `inline`. When the call is cancelled
    the thread is abandoned: nothing waits for it, and what it returns is dropped.

    Raises:
        ToolOutputError: The body tried to end the process.
    """
    try:
        if inline or is_async(function):
            value = function(*args, **kwargs)
        else:
            value = await _in_thread(function, args, kwargs)
        return await value if inspect.isawaitable(value) else value
    except SystemExit as error:
        raise ToolOutputError(f"the tool tried to exit the process (code {error.code})") from error


async def _in_thread(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    def work() -> _Outcome:
        # SystemExit and StopIteration must not travel through an event loop's future
        try:
            return _Outcome(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's task
            return _Outcome(error=error)

    outcome = await to_thread.run_sync(work, abandon_on_cancel=True)
    if isinstance(outcome.error, StopIteration):
        raise RuntimeError("the tool raised StopIteration") from outcome.error
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
