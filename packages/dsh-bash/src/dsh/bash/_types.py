"""What is asked of a bash executor and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NewType, TypeAlias

from dsh.llm import CancelSignal

__all__ = [
    "BashRequest",
    "BashResult",
    "BashSpec",
    "BashTaskId",
    "BashTaskStatus",
    "CollectedOutput",
    "OwnerToken",
    "SandboxFacts",
    "SandboxMode",
]

BashTaskId = NewType("BashTaskId", str)
"""Id of a background task, `bash-1` and up; unique within one executor, easily guessed."""

OwnerToken = NewType("OwnerToken", str)
"""Who may read and kill a task. The executor stores it and never looks into it."""

BashTaskStatus: TypeAlias = Literal["running", "completed", "killed"]
"""`killed` also covers a task that could not be started."""

SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
"""How a sandboxing executor confines a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BashRequest:
    """A command as a caller wants it run; `BashExecutor.resolve` fills in the rest."""

    command: str
    """Shell text, given to `bash -c` as it is."""
    workdir: str | None = None
    """Directory to run in; a relative one starts at the configured directory."""
    timeout_ms: float | None = None
    """Milliseconds until the command is killed; capped by the configuration."""
    signal: CancelSignal | None = None
    """Kills the command when it fires."""
    stdin: bytes | None = None
    """What the command reads; `/dev/null` when absent."""
    env: Mapping[str, str] | None = None
    """Variables that beat everything the executor would set or leave out."""
    owner: OwnerToken | None = None
    """Who may read and kill the task; everybody when absent. The empty string is an owner."""
    sandbox_mode: SandboxMode | None = None
    """How to confine this command; the executor's own mode when absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BashSpec:
    """A request with nothing left to default.

    `owner` and `sandbox_mode` may be None but must be given: forgetting one would silently widen
    a right.
    """

    command: str
    """Shell text."""
    workdir: str
    """Absolute directory to run in."""
    timeout_ms: float
    """Milliseconds until the command is killed. Background tasks have no timeout and ignore it."""
    owner: OwnerToken | None
    """Who may read and kill the task."""
    sandbox_mode: SandboxMode | None
    """How it is confined; None where the executor does not confine."""
    signal: CancelSignal | None = None
    """Kills the command when it fires."""
    stdin: bytes | None = None
    """What the command reads; `/dev/null` when absent."""
    env: Mapping[str, str] | None = None
    """Variables that beat everything else."""


@dataclass(frozen=True, slots=True)
class CollectedOutput:
    """One stream of a command as far as memory holds it."""

    text: str
    """The end of the stream; everything, if it was short enough. Secrets are masked."""
    truncated: bool = False
    """Whether `text` lacks the beginning."""
    spill_path: str | None = None
    """File that holds the whole stream, where there is one."""
    undecodable: bool = False
    """Whether `text` has U+FFFD in place of bytes that are not UTF-8."""
    spill_note: str | None = None
    """Why a truncated stream has no file, for logs and people."""


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """What a sandboxing executor knows about one finished command."""

    mode: SandboxMode
    """How it was confined."""
    denied: bool
    """Whether the sandbox seems to have refused it something."""
    enforcement: Literal["full", "partial"] | None = None
    """How completely the mode could be enforced; None when nothing was."""
    runner_failed: bool = False
    """Whether the sandbox itself failed, so that the command never ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BashResult:
    """How a foreground command ended. The facts are independent of each other."""

    exit_code: int | None
    """Exit code; None when it died of a signal."""
    signal: str | None
    """Name of the signal it died of, e.g. `SIGTERM`; None when it exited."""
    timed_out: bool
    """Whether the timeout ended it; a command that traps the signal may still exit with a code."""
    aborted: bool
    """Whether the request's signal ended it; never together with `timed_out`."""
    timeout_ms: float
    """The timeout that was in force, in milliseconds."""
    stdout: CollectedOutput
    """Its standard output."""
    stderr: CollectedOutput
    """Its standard error."""
    left: int = 0
    """Processes it started that still run. They are killed when the executor is disposed."""
    sandbox: SandboxFacts | None = None
    """Facts of the sandbox, from executors that have one."""
