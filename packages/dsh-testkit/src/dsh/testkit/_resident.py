"""Fixtures that hold an async context manager open."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar, cast

import anyio
from anyio.abc import TaskStatus

__all__ = ["resident"]

T = TypeVar("T")


class _Host(Generic[T]):
    """A task that enters a context manager, stays in it and leaves it again."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self.stop = anyio.Event()
        self.entered = False
        self.value: T | None = None
        self.error: BaseException | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with self._manager as value:
                self.value, self.entered = value, True
                task_status.started()
                await self.stop.wait()
        except (anyio.get_cancelled_exc_class(), KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - `pytest.fail` raises one; handed over
            self.error = error
            if not self.entered:
                task_status.started()


@asynccontextmanager
async def resident(manager: AbstractAsyncContextManager[T]) -> AsyncGenerator[T, None]:
    """Hold a context manager open in a task of its own.

    anyio runs the set-up of async fixtures, the test and the tear-down in one task, so a fixture
    may well yield inside a task group. But when something in that group then fails, the group
    cancels this very task: the failure is lost on asyncio, and on trio the run hangs. In a task of
    its own the manager cannot cancel anybody else, and what broke is raised at the end.

    Args:
        manager: Entered and left by one task, as task groups and apps demand.

    Yields:
        What entering gave.

    Raises:
        BaseException: What entering, staying or leaving raised.
    """
    host = _Host(manager)
    async with anyio.create_task_group() as tasks:
        await tasks.start(host.run)
        if host.entered:
            yield cast("T", host.value)
        host.stop.set()
    if host.error is not None:
        raise host.error
