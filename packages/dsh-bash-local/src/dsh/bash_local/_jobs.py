"""The background commands of a local executor: tasks, output, and a common end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

from dsh.bash import BashRead, BashSpec, BashTask, TaskBook
from dsh.process import Child, OutputCollector, OutputRead

__all__ = ["Job", "JobGroup"]

_END_MARGIN_S = 10.0


class Job:
    """One background command: its task, its process, what was read of it."""

    def __init__(
        self, task: BashTask, spec: BashSpec, out: OutputCollector, err: OutputCollector
    ) -> None:
        self.task = task
        self.spec = spec
        self.out = out
        self.err = err
        self.child: Child | None = None
        self.stopping = False
        """Whether it was killed, perhaps before it had a process."""
        self._out_offset = 0
        self._err_offset = 0

    def kill(self, cause: str) -> bool:
        """Kill what runs; True if there was something."""
        if self.child is None:
            first = not self.stopping and not self.task.settled
        else:
            first = self.child.kill(cause)
        self.stopping = True
        if first and not self.task.settled:
            self.task.status = "killed"
        return first

    def fail(self, reason: str) -> None:
        """Write down in the output why there is no process."""
        self.err.feed(f"spawn failed: {reason}\n".encode("utf-8", "replace"))
        self.out.finish()
        self.err.finish()

    def read(self) -> BashRead:
        """Take what came since the last read."""
        out = self.out.read_from(self._out_offset)
        err = self.err.read_from(self._err_offset)
        self._out_offset, self._err_offset = out.next_offset, err.next_offset
        return BashRead(
            task=self.task,
            delta=_joined(out, err),
            lossy=out.lossy or err.lossy,
            stdout_spill_path=self.out.snapshot().spill_path,
            stderr_spill_path=self.err.snapshot().spill_path,
            undecodable=out.undecodable or err.undecodable,
        )


def _joined(out: OutputRead, err: OutputRead) -> str:
    if not err.text:
        return out.text
    gap = "\n" if out.text and not out.text.endswith("\n") else ""
    return f"{out.text}{gap}[stderr]\n{err.text}"


class JobGroup:
    """Runs the jobs of one executor; leaving it kills all of them at once and waits.

    Args:
        book: The executor's tasks.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, book: TaskBook, grace_s: float) -> None:
        self._book = book
        self._grace_s = grace_s
        self._jobs: dict[str, Job] = {}
        self._running: dict[Job, anyio.CancelScope] = {}
        self._idle: anyio.Event | None = None
        self._tasks: anyio.abc.TaskGroup | None = None

    @property
    def open(self) -> bool:
        """Whether jobs can be started."""
        return self._tasks is not None

    def find(self, task: BashTask) -> Job:
        """Return the job of a task of the book."""
        return self._jobs[task.id]

    def start(self, job: Job, drive: Callable[[Job], Awaitable[None]]) -> None:
        """Have `drive(job)` run to its end in a task of its own; it must not raise."""
        assert self._tasks is not None
        known = {task.id for task in self._book.list()}
        self._jobs = {key: value for key, value in self._jobs.items() if key in known}
        self._jobs[job.task.id] = job
        # A plugin's own disposal ends it, not the cancellation of whoever mounted the plugin.
        self._running[job] = anyio.CancelScope(shield=True)
        self._tasks.start_soon(self._run, job, drive)

    async def _run(self, job: Job, drive: Callable[[Job], Awaitable[None]]) -> None:
        try:
            with self._running[job]:
                await drive(job)
        finally:
            del self._running[job]
            if self._idle is not None and not self._running:
                self._idle.set()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks, self._tasks = self._tasks, None
        self._book.silence()
        for job in self._jobs.values():
            job.kill("disposed")
        if self._running:
            self._idle = anyio.Event()
            with anyio.move_on_after(self._grace_s + _END_MARGIN_S, shield=True):
                await self._idle.wait()
            for scope in self._running.values():
                scope.cancel()
        if tasks is not None:
            await tasks.__aexit__(None, None, None)
