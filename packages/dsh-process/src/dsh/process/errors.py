"""What can go wrong around a child process.

    ProcessError
    ├── SpawnError                 SPAWN_FAILED, WORKDIR_UNUSABLE, PROGRAM_NOT_FOUND, ... (OSError)
    ├── MonitorLostError           MONITOR_LOST
    ├── SupervisorClosedError      SUPERVISOR_CLOSED
    └── UnsupportedPlatformError   UNSUPPORTED_PLATFORM

A command that fails, is killed or runs out of time is no error: those are facts of its result.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from dsh.core import DshError

__all__ = [
    "MonitorLostError",
    "ProcessError",
    "SpawnError",
    "SupervisorClosedError",
    "UnsupportedPlatformError",
]

_PROGRAM_HINTS: Final = {
    errno.ENOENT: "install it, or check PATH and the spelling",
    errno.EACCES: "make it executable, or name the program that should run it",
    errno.ENOEXEC: "the file or its #! interpreter cannot be executed on this machine",
    errno.E2BIG: "pass long input through stdin or a file instead of the arguments",
    errno.EAGAIN: "too many processes are running; wait for some or raise the limit (ulimit -u)",
    errno.ENOMEM: "the machine is out of memory",
}


class ProcessError(DshError):
    """Base of this wheel's errors."""

    code = "PROCESS_ERROR"


class SpawnError(ProcessError, OSError):
    """A child could not be started; nothing of it runs.

    Attributes:
        errno: The operating system's error number, or None for arguments it never saw.
        filename: The program or directory concerned.
    """

    code = "SPAWN_FAILED"
    SPAWN_FAILED = "SPAWN_FAILED"
    """The operating system refused to start it; `errno` says why."""
    SPAWN_TIMEOUT = "SPAWN_TIMEOUT"
    """The helper did not report in time that it runs."""
    PROGRAM_NOT_FOUND = "PROGRAM_NOT_FOUND"
    """There is no such program."""
    WORKDIR_UNUSABLE = "WORKDIR_UNUSABLE"
    """The working directory does not exist, or may not be entered."""
    INVALID_COMMAND = "INVALID_COMMAND"
    """The arguments are empty, or hold what no program can be given."""
    INVALID_ENVIRONMENT = "INVALID_ENVIRONMENT"
    """An environment variable has a name or a value that cannot be set."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        number: int | None = None,
        filename: str | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.errno = number
        self.filename = filename

    @classmethod
    def from_report(cls, step: str, number: int, what: str) -> SpawnError:
        """Build the error from what the helper reported."""
        reason = os.strerror(number)
        if step == "cwd":
            return cls(
                f"cannot use the working directory {what!r}: {reason}",
                code=cls.WORKDIR_UNUSABLE,
                hint="name an existing directory that this user may enter",
                number=number,
                filename=what,
            )
        missing = step == "exec" and number == errno.ENOENT
        return cls(
            f"cannot start {what!r}: {reason}",
            code=cls.PROGRAM_NOT_FOUND if missing else cls.SPAWN_FAILED,
            hint=_PROGRAM_HINTS.get(number),
            number=number,
            filename=what,
        )


class MonitorLostError(ProcessError):
    """The process that watches over a child was killed, so how the child ended is unknown.

    Everything the child had started has been killed.
    """

    code = "MONITOR_LOST"


class SupervisorClosedError(ProcessError):
    """The supervisor has been closed or was never entered."""

    code = "SUPERVISOR_CLOSED"


class UnsupportedPlatformError(ProcessError):
    """This operating system has no process groups, sessions and descriptor passing as needed."""

    code = "UNSUPPORTED_PLATFORM"
