"""Timers as effects: they end with their owner, and a failing callback is contained."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._effects import Effect


async def _call(ctx: Context, fn: Callable[[], object], where: str) -> None:
    try:
        result = fn()
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001 - contained: a timer outlives one bad call
        ctx.report(error, where)


def timeout(ctx: Context, seconds: float, fn: Callable[[], object]) -> Effect:
    """Call `fn` once after `seconds`."""
    _check(seconds)

    async def run() -> None:
        await anyio.sleep(seconds)
        await _call(ctx, fn, "timeout")

    return ctx.spawn(run, label=f"timeout {seconds:g}s")


def interval(ctx: Context, seconds: float, fn: Callable[[], object]) -> Effect:
    """Call `fn` every `seconds`; the next period begins when a call has ended."""
    _check(seconds)

    async def run() -> None:
        while True:
            await anyio.sleep(seconds)
            await _call(ctx, fn, "interval")

    return ctx.spawn(run, label=f"interval {seconds:g}s")


def debounce(ctx: Context, seconds: float, fn: Callable[[], object]) -> Callable[[], None]:
    """Return a trigger; `fn` runs `seconds` after the last trigger. Inert after disposal."""
    _check(seconds)
    wait: list[anyio.CancelScope] = []

    async def run() -> None:
        with wait[0]:
            await anyio.sleep_forever()
        wait.clear()
        await _call(ctx, fn, "debounce")

    def trigger() -> None:
        due = anyio.current_time() + seconds
        if wait:
            wait[0].deadline = due
        elif ctx.owner.accepting:
            wait.append(anyio.CancelScope(deadline=due))
            ctx.spawn(run, label=f"debounce {seconds:g}s")

    return trigger


def throttle(ctx: Context, seconds: float, fn: Callable[[], object]) -> Callable[[], None]:
    """Return a trigger; `fn` runs at once, then at most once per `seconds`, trailing included."""
    _check(seconds)
    again: list[bool] = [False]
    running: list[Effect] = []

    async def run() -> None:
        again[0] = True
        while again[0]:
            again[0] = False
            await _call(ctx, fn, "throttle")
            await anyio.sleep(seconds)
        running.clear()

    def trigger() -> None:
        again[0] = True
        if not running and ctx.owner.accepting:
            running.append(ctx.spawn(run, label=f"throttle {seconds:g}s"))

    return trigger


def _check(seconds: float) -> None:
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a timer needs a finite number of seconds >= 0, not {seconds!r}")
