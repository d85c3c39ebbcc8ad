"""Background tasks, and the book a provider keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from dsh.bash._types import BashTaskId, BashTaskStatus, OwnerToken, SandboxFacts
from dsh.bash.errors import UnknownTaskError
from dsh.core import Context, Effect

__all__ = ["BashRead", "BashTask", "TaskBook", "TaskListener"]

TaskListener: TypeAlias = "Callable[[BashTask], object]"
"""Told about a task that has ended; synchronous."""


class BashTask:
    """A command that runs in the background. Its attributes follow what happens to it.

    Attributes:
        id: Id of the task.
        command: Its shell text.
        status: Whether it runs, has ended by itself, or was killed.
        exit_code: Exit code; None while it runs and when it died of a signal.
        signal: Name of the signal it died of.
        left: Processes it started that still run although the task itself has ended.
        sandbox: Facts of the sandbox once it has ended, from executors that have one.
    """

    __slots__ = (
        "_done",
        "command",
        "exit_code",
        "id",
        "left",
        "owner",
        "sandbox",
        "signal",
        "status",
    )

    def __init__(self, task_id: BashTaskId, command: str, owner: OwnerToken | None) -> None:
        self.id = task_id
        self.command = command
        self.owner = owner
        self.status: BashTaskStatus = "running"
        self.exit_code: int | None = None
        self.signal: str | None = None
        self.left = 0
        self.sandbox: SandboxFacts | None = None
        self._done = anyio.Event()

    @property
    def settled(self) -> bool:
        """Whether the task is over: exit facts are final and its listeners were told."""
        return self._done.is_set()

    async def done(self) -> None:
        """Wait until the task is over. Never raises for anything the command did."""
        await self._done.wait()

    def settle(self) -> None:
        """Wake whoever waits in `done`. For `TaskBook`."""
        self._done.set()

    def __repr__(self) -> str:
        return f"<BashTask {self.id} {self.status}>"


@dataclass(frozen=True, slots=True)
class BashRead:
    """What a background task wrote since the last read."""

    task: BashTask
    """The task."""
    delta: str
    """New standard output, then new standard error under a `[stderr]` line."""
    lossy: bool = False
    """Whether output between the two reads has left memory unread."""
    stdout_spill_path: str | None = None
    """File with the whole standard output, where there is one."""
    stderr_spill_path: str | None = None
    """File with the whole standard error, where there is one."""
    undecodable: bool = False
    """Whether `delta` has U+FFFD in place of bytes that are not UTF-8."""


class TaskBook:
    """Ids, order, owners and completion listeners of an executor's tasks.

    Args:
        report: Told about a listener that raised and where.
        max_finished: Tasks that have ended are forgotten, oldest first, beyond this number.
    """

    def __init__(
        self, report: Callable[[BaseException, str], object], *, max_finished: int = 256
    ) -> None:
        self._report = report
        self._max_finished = max_finished
        self._tasks: dict[str, BashTask] = {}
        self._listeners: dict[object, TaskListener] = {}
        self._opened = 0
        self._silent = False

    def open(self, command: str, owner: OwnerToken | None) -> BashTask:
        """Enter a new running task under the next id."""
        self._opened += 1
        task = BashTask(BashTaskId(f"bash-{self._opened}"), command, owner)
        self._tasks[task.id] = task
        return task

    def get(self, task_id: str) -> BashTask | None:
        """Return a task by id, or None."""
        return self._tasks.get(task_id)

    def require(self, task_id: str) -> BashTask:
        """Return a task by id.

        Raises:
            UnknownTaskError: There is none.
        """
        task = self._tasks.get(task_id)
        if task is None:
            raise UnknownTaskError(task_id)
        return task

    def list(self) -> tuple[BashTask, ...]:
        """Return all tasks, running and ended, oldest first."""
        return tuple(self._tasks.values())

    def owner_of(self, task_id: str) -> OwnerToken | None:
        """Return a task's owner; None for an unknown task and for one without."""
        task = self._tasks.get(task_id)
        return None if task is None else task.owner

    def on_done(self, ctx: Context, fn: TaskListener) -> Effect:
        """Add a completion listener that leaves with `ctx`; a function may be added twice."""

        def install() -> Callable[[], object]:
            key = object()
            self._listeners[key] = fn
            return lambda: self._listeners.pop(key, None)

        return ctx.effect(install, "bash.on_task_done()")

    def settle(
        self,
        task: BashTask,
        status: BashTaskStatus,
        exit_code: int | None,
        signal: str | None,
        sandbox: SandboxFacts | None = None,
    ) -> None:
        """Write down how a task ended and tell the listeners, once.

        A task that was marked killed before stays killed.
        """
        if task.settled:
            return
        task.status = "killed" if task.status == "killed" else status
        task.exit_code, task.signal, task.sandbox = exit_code, signal, sandbox
        task.settle()
        for listener in () if self._silent else list(self._listeners.values()):
            try:
                listener(task)
            except Exception as error:  # noqa: BLE001 - one listener never starves another
                self._report(error, f"a listener to the end of {task.id}")
        self._forget_old()

    def silence(self) -> None:
        """Tell listeners nothing any more: the executor is being disposed."""
        self._silent = True

    def _forget_old(self) -> None:
        ended = [task for task in self._tasks.values() if task.settled and not task.left]
        for task in ended[: max(0, len(ended) - self._max_finished)]:
            del self._tasks[task.id]
