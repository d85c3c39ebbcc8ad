"""Effects of functions: how a body is run, and what becomes of a set-up that takes its time.

A body returns a cleanup, an effect or nothing, or yields several. An asynchronous one goes on in a
host task: the effect exists at once, and is disposed of only when that task has come to its end.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, TypeAlias, cast

from dsh.core._effects import Cleanup, Effect
from dsh.core._tasks import Host
from dsh.core._waits import Work

if TYPE_CHECKING:
    from dsh.core._mount import Mount

Step: TypeAlias = "Cleanup | Effect | None"
EffectBody: TypeAlias = Callable[
    [],
    "Step | Awaitable[Step] | Generator[Step, None, object] | AsyncGenerator[Step, None]",
]


class BodyEffect(Effect):
    """An effect whose cleanups a function gives, possibly over time."""

    __slots__ = ("_awaited", "_setup")

    def __init__(self, mount: Mount, label: str) -> None:
        super().__init__(mount, label)
        self._setup: Host | None = None
        self._awaited = 0

    @property
    def is_sync(self) -> bool:
        """Whether the set-up is over and every cleanup is known to be synchronous."""
        return (self._setup is None or self._setup.done.settled) and super().is_sync

    async def _ready(self) -> Effect:
        if self._setup is not None:
            self._awaited += 1
            try:
                with self.mount.app.waits.waiting(self, for_end=False):
                    await self._setup.done.wait()
            finally:
                self._awaited -= 1
        return self

    def run(self, body: EffectBody) -> None:
        """Run `body` and collect what it gives; asynchronous bodies go on in a host task."""
        try:
            self._take(body())
        except Exception:
            self._roll_back()
            raise

    def _take(self, result: object) -> None:
        if isinstance(result, Effect):
            # an effect is awaitable itself; taken over, not awaited
            self._add(result)
        elif inspect.isgenerator(result):
            self._iterate(cast("Generator[object, None, object]", result))
        elif inspect.isawaitable(result):
            self._host(self._await_body(cast("Awaitable[object]", result)))
        elif inspect.isasyncgen(result):
            self._host(self._iterate_body(cast("AsyncGenerator[object, None]", result)))
        else:
            self._add(result)

    def _iterate(self, steps: Generator[object, None, object]) -> None:
        try:
            while True:
                self._add(next(steps))
        except StopIteration as stop:
            self._add(stop.value)
        finally:
            steps.close()

    async def _await_body(self, result: Awaitable[object]) -> None:
        self._add(await result)

    async def _iterate_body(self, steps: AsyncGenerator[object, None]) -> None:
        try:
            async for step in steps:
                self._add(step)
                # the step under way is always finished; once the end is asked for, none begins
                if self._disposing or not self.mount.accepting:
                    break
        finally:
            await steps.aclose()

    def _host(self, setup: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await setup
            except Exception as error:
                await self._fail_setup(error)
                raise
            finally:
                if self.disposed:
                    # given up meanwhile: what came too late is undone at once
                    await self._run_cleanups_reporting()

        self._setup = Host(run)
        self.mount.app._start_host(self._setup.run, self.label, self)

    async def _fail_setup(self, error: Exception) -> None:
        # who awaits the effect gets the error raised
        if not self._awaited:
            self.mount.report(error, f"set-up of {self.label}")
        if not self._disposing:
            self._disposing = True
            await self._run_cleanups_reporting()

    def _roll_back(self) -> None:
        """Undo what a failing body had collected, waiting in a host task where needed."""
        if not self.is_sync:
            self.request_dispose()
            return
        try:
            self.dispose_nowait()
        except Exception as error:  # noqa: BLE001 - reported, the body's error went first
            self.mount.report(error, f"rolling back {self.label}")

    async def _end_setup(self, caller: Work | None, errors: list[Exception]) -> None:
        # a failing set-up undoes itself, and cannot wait for itself
        if self._setup is not None and caller is not self:
            await self._run_bounded(self._setup.done.settle, errors)
            self._setup.cancel()
