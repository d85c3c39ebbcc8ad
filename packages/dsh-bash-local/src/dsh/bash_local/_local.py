"""Bash on this machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from pydantic import Field

from dsh.bash import (
    BashAbortedError,
    BashDisposedError,
    BashError,
    BashExecutor,
    BashLostError,
    BashRead,
    BashResult,
    BashSpawnError,
    BashSpec,
    BashTask,
    BashTaskStatus,
    CollectedOutput,
    OwnerToken,
    SandboxFacts,
    TaskBook,
    TaskListener,
)
from dsh.bash_local._jobs import Job, JobGroup
from dsh.core import Context, Effect, settings
from dsh.process import (
    Child,
    Ending,
    MonitorLostError,
    OutputCollector,
    ProcessError,
    SpawnError,
    Supervisor,
    SupervisorClosedError,
    child_environment,
    finish,
)

__all__ = ["Launch", "LocalBash"]

_LONGEST_ARGUMENT: Final = 100_000
"""Bytes of a command that still travels as an argument; Linux refuses one of 128 KiB."""
_SCRIPT_FD: Final = 9
_FLAGS: Final = ("--noprofile", "--norc", "-c", "--")

Count = Annotated[int, Field(gt=0)]


@dataclass(frozen=True, slots=True)
class Launch:
    """What is executed for one command; a confining executor wraps it."""

    argv: tuple[str, ...]
    """Program and arguments."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables beside the scrubbed ones; the request's own still win."""
    fds: Mapping[int, int] = field(default_factory=dict[int, int])
    """Descriptors to hand over: number in the child to the descriptor here. They stay open here."""
    facts: object = None
    """Whatever `classify` wants to find again."""


class LocalBash(BashExecutor):
    """Runs commands as supervised child processes of this program.

    A confining provider derives from it and overrides `launch` (what is executed) and `classify`
    (what the end of it means).
    """

    name: ClassVar[str] = "bash-local"

    class Config(BashExecutor.Config):
        """Limits of local commands."""

        drain_ms: Count = 200
        """How long a result waits for the rest of the output once the shell has exited."""
        max_output_bytes: Count = 64_000
        """Bytes of each stream kept in memory and shown; the end of a longer one."""
        grace_ms: Count = 3000
        """Time between SIGTERM and SIGKILL when a command is killed."""
        max_spill_bytes: Count = 64 << 20
        """Longest stream kept in a file."""
        shell: str = "bash"
        """The shell, looked up along `PATH` or given as a path."""

    config = settings(Config)

    async def start(self) -> None:
        """Open the supervisor; its helper process starts with the first command."""
        self._book = TaskBook(self.ctx.report)
        self._supervisor = await self.ctx.enter(Supervisor(), "bash supervisor")
        group = JobGroup(self._book, self.config.grace_ms / 1000)
        self._jobs = await self.ctx.enter(group, "background commands")

    # ── for confining providers ──────────────────────────────────────────────────────────────

    async def launch(self, spec: BashSpec) -> Launch:
        """Return what to execute for `spec`.

        Override it to wrap the argument list of `super().launch(spec)`; nothing is quoted, so
        nothing needs quoting.

        Raises:
            BashError: The command must not run.
        """
        return Launch((self.config.shell, *_FLAGS, spec.command))

    def classify(
        self,
        spec: BashSpec,
        launch: Launch,
        exit_code: int | None,
        signal: str | None,
        stderr: str,
    ) -> SandboxFacts | None:
        """Say what the sandbox did to a command that has ended.

        Args:
            spec: What was asked for.
            launch: What `launch` returned for it.
            exit_code: Its exit code, unless it died of a signal.
            signal: The signal it died of.
            stderr: The end of its standard error.

        Returns:
            The facts, or None where there is no sandbox.
        """
        return None

    # ── foreground ───────────────────────────────────────────────────────────────────────────

    async def run(self, spec: BashSpec) -> BashResult:
        """Run a command in the foreground; see `BashExecutor.run`."""
        if spec.signal is not None and spec.signal.aborted:
            raise BashAbortedError
        out, err = self._collector("stdout"), self._collector("stderr")
        launch = await self.launch(spec)
        child = await self._spawn(spec, launch, out, err)
        try:
            ending = await finish(
                child,
                timeout_ms=spec.timeout_ms,
                cancel=spec.signal,
                drain_ms=self.config.drain_ms,
            )
        except MonitorLostError as error:
            raise BashLostError(str(error)) from error
        if child.ended_by == "disposed":
            raise BashDisposedError
        shown = _collected(err)
        return BashResult(
            exit_code=ending.exit_code,
            signal=ending.signal,
            timed_out=ending.timed_out,
            aborted=ending.cancelled,
            timeout_ms=spec.timeout_ms,
            stdout=_collected(out),
            stderr=shown,
            left=ending.left,
            sandbox=self.classify(spec, launch, ending.exit_code, ending.signal, shown.text),
        )

    async def _spawn(
        self, spec: BashSpec, launch: Launch, out: OutputCollector, err: OutputCollector
    ) -> Child:
        env = child_environment({**launch.env, **(spec.env or {})})
        try:
            with _short_enough(launch, spec.command) as ready:
                return await self._supervisor.spawn(
                    ready.argv,
                    cwd=spec.workdir,
                    env=env,
                    stdin=spec.stdin,
                    stdout=out,
                    stderr=err,
                    fds=ready.fds,
                    grace_ms=self.config.grace_ms,
                )
        except SupervisorClosedError as error:
            raise BashDisposedError from error
        except SpawnError as error:
            raise BashSpawnError(
                error.message, code=error.code, hint=error.hint, number=error.errno
            ) from error
        except ProcessError as error:
            raise BashLostError(str(error)) from error

    def _collector(self, name: str) -> OutputCollector:
        config = self.config
        return self._supervisor.collector(
            name, max_bytes=config.max_output_bytes, max_spill_bytes=config.max_spill_bytes
        )

    # ── background ───────────────────────────────────────────────────────────────────────────

    def start_task(self, spec: BashSpec) -> BashTask:
        """Start a command in the background; see `BashExecutor.start_task`."""
        if not self._jobs.open:
            raise BashDisposedError
        task = self._book.open(spec.command, spec.owner)
        job = Job(task, spec, self._collector("stdout"), self._collector("stderr"))
        self._jobs.start(job, self._drive)
        return task

    async def _drive(self, job: Job) -> None:
        """See a background command through; whatever goes wrong ends up in its task."""
        spec, task = job.spec, job.task
        try:
            if spec.signal is not None and spec.signal.aborted:
                raise BashAbortedError
            launch = await self.launch(spec)
            if job.stopping:
                raise BashAbortedError
            job.child = await self._spawn(spec, launch, job.out, job.err)
            if job.stopping:
                job.child.kill("killed")
            ending = await finish(job.child, cancel=spec.signal, drain_ms=self.config.drain_ms)
        except (BashError, MonitorLostError) as error:
            if job.child is None:
                job.fail(str(error))
            self._book.settle(task, "killed", None, None)
            return
        except Exception as error:  # noqa: BLE001 - a provider's `launch` may raise anything
            self.ctx.report(error, f"background command {task.id}")
            job.fail(str(error))
            self._book.settle(task, "killed", None, None)
            return
        await self._settle(job, launch, ending)

    async def _settle(self, job: Job, launch: Launch, ending: Ending) -> None:
        stderr = job.err.snapshot().text
        facts = self.classify(job.spec, launch, ending.exit_code, ending.signal, stderr)
        job.task.left = ending.left
        status: BashTaskStatus = "killed" if ending.cancelled else "completed"
        self._book.settle(job.task, status, ending.exit_code, ending.signal, facts)
        if job.child is not None:
            await job.child.wait_gone()
        job.task.left = 0

    def get(self, task_id: str) -> BashTask | None:
        """Return a background task, or None."""
        return self._book.get(task_id)

    def list(self) -> tuple[BashTask, ...]:
        """Return the background tasks, running and ended, oldest first."""
        return self._book.list()

    def owner_of(self, task_id: str) -> OwnerToken | None:
        """Return the owner token a task was started with."""
        return self._book.owner_of(task_id)

    def read_output(self, task_id: str) -> BashRead:
        """Return what a task wrote since the last read."""
        return self._jobs.find(self._book.require(task_id)).read()

    def kill(self, task_id: str) -> bool:
        """Kill a task, or what an ended one left running."""
        return self._jobs.find(self._book.require(task_id)).kill("killed")

    def on_task_done(self, ctx: Context, fn: TaskListener) -> Effect:
        """Have `fn(task)` called once for each task that ends."""
        return self._book.on_done(ctx, fn)


def _collected(collector: OutputCollector) -> CollectedOutput:
    shown = collector.snapshot()
    return CollectedOutput(
        text=shown.text,
        truncated=shown.truncated,
        spill_path=shown.spill_path,
        undecodable=shown.undecodable,
        spill_note=shown.spill_note,
    )


@contextlib.contextmanager
def _short_enough(launch: Launch, command: str) -> Generator[Launch]:
    """Pass a command too long for an argument through a descriptor instead.

    The shell reads it with a builtin and closes the descriptor before the command begins.
    """
    if len(command) * 4 <= _LONGEST_ARGUMENT or command not in launch.argv:
        yield launch
        return
    if len(command.encode("utf-8", "surrogateescape")) <= _LONGEST_ARGUMENT:
        yield launch
        return
    number = max((_SCRIPT_FD, *(fd + 1 for fd in launch.fds)))
    loader = f'eval "$(</dev/fd/{number})" {number}<&-'
    with tempfile.TemporaryFile() as script:
        script.write(os.fsencode(command))
        script.seek(0)
        argv = tuple(loader if argument == command else argument for argument in launch.argv)
        yield Launch(argv, launch.env, {**launch.fds, number: script.fileno()}, launch.facts)
