"""The bash seam."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import Annotated

from pydantic import Field

from dsh.bash._tasks import BashRead, BashTask, TaskListener
from dsh.bash._types import BashRequest, BashResult, BashSpec, OwnerToken, SandboxMode
from dsh.bash.errors import InvalidTimeoutError
from dsh.core import Context, Effect, PluginConfig, Service, settings

__all__ = ["BashExecutor"]

Milliseconds = Annotated[int, Field(gt=0)]


class BashExecutor(Service, ABC, key="bash"):
    """Runs shell commands, in the foreground and in the background.

    Every command gets a fresh shell: working directory, variables and functions do not survive
    it. A provider runs `bash -c` without start-up files, without a terminal, with `/dev/null` as
    standard input unless bytes are given, and kills whatever a command started when the command
    is killed and when the provider is disposed.
    """

    class Config(PluginConfig):
        """What every provider honours."""

        cwd: str | None = None
        """Directory for commands that name none; the process's own when absent."""
        timeout_ms: Milliseconds = 120_000
        """Timeout of a foreground command that names none, in milliseconds."""
        max_timeout_ms: Milliseconds = 600_000
        """Longest timeout a command can ask for, in milliseconds."""

    config = settings(Config)

    @property
    def sandbox_mode(self) -> SandboxMode | None:
        """How commands are confined when they say nothing; None where they are not."""
        return None

    def resolve(self, request: BashRequest) -> BashSpec:
        """Fill in what a request leaves open. Pure; `run` and `start_task` default nothing.

        Args:
            request: What the caller wants.

        Returns:
            The command in full; its working directory is absolute.

        Raises:
            InvalidTimeoutError: `timeout_ms` is not a positive, finite number.
        """
        config = self.config
        timeout = config.timeout_ms if request.timeout_ms is None else request.timeout_ms
        if isinstance(timeout, bool) or not (math.isfinite(timeout) and timeout > 0):
            raise InvalidTimeoutError(request.timeout_ms)
        workdir = os.path.join(config.cwd or "", request.workdir or "")
        return BashSpec(
            command=request.command,
            workdir=os.path.abspath(workdir),
            timeout_ms=min(timeout, config.max_timeout_ms),
            owner=request.owner,
            sandbox_mode=self.sandbox_mode
            if request.sandbox_mode is None
            else request.sandbox_mode,
            signal=request.signal,
            stdin=request.stdin,
            env=request.env,
        )

    @abstractmethod
    async def run(self, spec: BashSpec) -> BashResult:
        """Run a command in the foreground and wait for its end.

        A non-zero exit, a death by signal, the timeout and an abort are facts of the result. When
        the shell has exited but something it started holds its output open, the result comes a
        moment later and counts what is left.

        Args:
            spec: What to run, from `resolve`.

        Returns:
            How it ended and what it wrote.

        Raises:
            BashSpawnError: It could not be started.
            BashAbortedError: Its signal had fired already.
            BashDisposedError: The executor was disposed meanwhile; the command was killed.
            BashLostError: How it ended is unknown.
        """

    @abstractmethod
    def start_task(self, spec: BashSpec) -> BashTask:
        """Start a command in the background; does not wait for it.

        There is no timeout; `spec.signal` still kills it. A command that cannot be started ends as
        a killed task whose output says why.

        Args:
            spec: What to run, from `resolve`.

        Returns:
            Its handle.

        Raises:
            BashDisposedError: The executor is disposed.
        """

    @abstractmethod
    def get(self, task_id: str) -> BashTask | None:
        """Return a background task, or None.

        Args:
            task_id: Its id.
        """

    @abstractmethod
    def list(self) -> tuple[BashTask, ...]:
        """Return the background tasks, running and ended, oldest first."""

    @abstractmethod
    def owner_of(self, task_id: str) -> OwnerToken | None:
        """Return the owner token a task was started with.

        Args:
            task_id: Its id; an unknown one has no owner.
        """

    @abstractmethod
    def read_output(self, task_id: str) -> BashRead:
        """Return what a task wrote since the last read; nothing is delivered twice.

        Args:
            task_id: Its id.

        Raises:
            UnknownTaskError: There is no such task.
        """

    @abstractmethod
    def kill(self, task_id: str) -> bool:
        """Kill a task with everything it started. Does not wait.

        Args:
            task_id: Its id.

        Returns:
            Whether this call killed something; False when nothing of the task was running.

        Raises:
            UnknownTaskError: There is no such task.
        """

    @abstractmethod
    def on_task_done(self, ctx: Context, fn: TaskListener) -> Effect:
        """Have `fn(task)` called once for each task that ends.

        A listener that raises is reported; the others are still called. Nothing is called for tasks
        that end because the executor is disposed.

        Args:
            ctx: Owner of the registration.
            fn: Synchronous listener.

        Returns:
            The registration; disposing it ends the calls.
        """
