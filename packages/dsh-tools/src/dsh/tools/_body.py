"""Runs the body of a tool, synchronous or not."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from threading import Thread
from typing import Any, cast

from anyio import Event, create_task_group, from_thread, get_cancelled_exc_class, to_thread
from anyio.lowlevel import current_token

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
    the thread is abandoned: nothing waits for it, neither the end of the loop nor that of the
    process, and what it returns is dropped. As many calls run at once as anyio's default thread
    limiter allows, abandoned ones not counted.

    A body that waits does so in a task of its own, because only there can its own end, cancelled
    by something it waited for, be told from a cancellation of the call.

    Raises:
        ToolOutputError: The body tried to end the process, or ended cancelled although the call
            was not.
    """
    try:
        if inline or is_async(function):
            value = _called(function, args, kwargs)
        else:
            value = await _in_thread(function, args, kwargs)
        return await _in_task(value) if inspect.isawaitable(value) else value
    except SystemExit as error:
        raise ToolOutputError(f"the tool tried to exit the process (code {error.code})") from error


def _called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        outcome = _Outcome(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - raised again below
        outcome = _Outcome(error=error)
    return _result_of(outcome)


async def _in_task(value: Awaitable[Any]) -> Any:
    outcome: _Outcome | None = None
    ended = Event()

    async def work() -> None:
        nonlocal outcome
        try:
            outcome = _Outcome(await value)
        except get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's task
            outcome = _Outcome(error=error)
        finally:
            ended.set()

    try:
        async with create_task_group() as tasks:
            tasks.start_soon(work)
            await ended.wait()
    except get_cancelled_exc_class():
        # a body that was cancelled may have ended its work all the same
        if outcome is None:
            raise
    return _result_of(outcome)


def _result_of(outcome: _Outcome | None) -> Any:
    """Return what a body came to, or raise it.

    Args:
        outcome: None if it was cancelled, which the caller was not.
    """
    if outcome is None:
        raise ToolOutputError("the tool was cancelled by something it waited for")
    error = outcome.error
    if isinstance(error, StopIteration):
        raise RuntimeError("the tool raised StopIteration") from error
    if error is not None and _is_stray(error):
        raise ToolOutputError(
            f"the tool raised a {type(error).__name__}, and nobody had asked it to end"
        ) from error
    if error is not None:
        raise error
    return outcome.value


def _is_stray(error: BaseException) -> bool:
    """Whether an exception says that a task is to end, which is not for a tool to say."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(_is_stray(inner) for inner in group.exceptions)
    return isinstance(error, (get_cancelled_exc_class(), GeneratorExit))


async def _in_thread(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run `function` in a daemon thread of its own.

    anyio's worker threads are joined when the loop or the interpreter ends, so one body that
    blocks for ever would keep the process alive; a daemon thread keeps nothing alive.
    """
    token = current_token()
    context = _context_of_thread()
    ended = Event()
    outcome = _Outcome()

    def work() -> None:
        nonlocal outcome
        # SystemExit and StopIteration must not travel through an event loop's future
        try:
            outcome = _Outcome(context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's task
            outcome = _Outcome(error=error)
        with suppress(RuntimeError):  # the loop has ended: nobody is left to be told
            from_thread.run_sync(ended.set, token=token)

    # abandoned calls give their place back, or a few stuck ones would block all others
    async with to_thread.current_default_thread_limiter():
        Thread(target=work, name="dsh tool", daemon=True).start()
        await ended.wait()
    return _result_of(outcome)


def _context_of_thread() -> Context:
    """Return a copy of the caller's context variables, without the mark that a loop runs."""
    context = copy_context()
    for variable in context:
        # sniffio's mark, when sniffio is there: the body may well run a loop of its own
        if variable.name == "current_async_library_cvar":
            context.run(variable.set, None)
    return context
