"""What it costs to tell ten listeners about an event, against calling ten functions in a loop.

Run as a program it reports nanoseconds for one dispatch: `loop` (a list of functions, each call in
a try block), `emit` (an event for everybody), `scoped` (an event of one agent among others) and
`waterfall` (ten asynchronous listeners around a default, which has no floor).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from benchmarks.meter import report
from dsh.core import App, Emit, Next, Waterfall

LISTENERS = 10
DISPATCHES = 20_000
ROUNDS = 7


class Key:
    """The key of a scope, as an agent is one."""


@dataclass(frozen=True, slots=True)
class Told(Emit, name="benchmark/told"):
    """An event for everybody."""

    number: int


@dataclass(frozen=True, slots=True)
class ToldOne(Emit, name="benchmark/told-one", scope="key"):
    """An event of one scope."""

    key: Key


@dataclass(frozen=True, slots=True)
class Asked(Waterfall[int], name="benchmark/asked"):
    """A question that passes all listeners."""

    number: int


def listener(event: object) -> None:
    """Listen and do nothing."""


async def passes_on(event: Asked, next: Next[int]) -> int:
    """Leave the answer to the others."""
    return await next()


async def default(event: Asked) -> int:
    """Answer."""
    return event.number


def loop(functions: list[Callable[[object], None]], event: object) -> None:
    """Call functions; one that fails does not keep the others from being called."""
    for function in functions:
        try:
            function(event)
        except Exception as error:  # noqa: BLE001 - as a dispatch does
            print(error)


def nanoseconds(call: Callable[[], object]) -> float:
    """Return what one call costs."""
    start = time.process_time_ns()
    for _ in range(DISPATCHES):
        call()
    return (time.process_time_ns() - start) / DISPATCHES


async def main() -> None:
    """Measure in turns and report the medians."""
    functions = [_own(listener) for _ in range(LISTENERS)]
    async with App() as app:
        keys = [Key() for _ in range(20)]
        scopes = [app.ctx.scope(key) for key in keys]
        for _ in range(LISTENERS):
            app.ctx.on(Told, _own(listener))
            app.ctx.on(Asked, passes_on)
        for scope in scopes:
            for _ in range(LISTENERS // 2):
                scope.ctx.on(ToldOne, _own(listener))
        for _ in range(LISTENERS - LISTENERS // 2):
            app.ctx.on(ToldOne, _own(listener))
        emit, told, told_one = app.ctx.emit, Told(1), ToldOne(keys[0])
        calls: dict[str, Callable[[], object]] = {
            "loop": lambda: loop(functions, told),
            "emit": lambda: emit(told),
            "scoped": lambda: emit(told_one),
        }
        samples: dict[str, list[float]] = {name: [] for name in (*calls, "waterfall")}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                samples[name].append(nanoseconds(call))
            samples["waterfall"].append(await _waterfalls(app))
    report(**{name: statistics.median(found[1:]) for name, found in samples.items()})


async def _waterfalls(app: App) -> float:
    asked = Asked(1)
    start = time.process_time_ns()
    for _ in range(DISPATCHES // 10):
        await app.ctx.waterfall(asked, default)
    return (time.process_time_ns() - start) / (DISPATCHES // 10)


def _own(function: Callable[[object], None]) -> Callable[[object], None]:
    """Return a function of its own for each listener, as real ones are."""

    def own(event: object) -> None:
        return None

    own.__name__ = function.__name__
    return own


if __name__ == "__main__":
    anyio.run(main)
