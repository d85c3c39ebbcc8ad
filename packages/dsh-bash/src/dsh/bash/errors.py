"""Errors of the bash seam, with their stable codes.

    BashError
    ├── BashSpawnError        BASH_SPAWN_FAILED, or what the provider knows better  (OSError)
    ├── BashAbortedError      BASH_ABORTED
    ├── BashDisposedError     BASH_DISPOSED
    ├── BashLostError         BASH_LOST
    ├── InvalidTimeoutError   BASH_INVALID_TIMEOUT                                   (ValueError)
    └── UnknownTaskError      UNKNOWN_BASH_TASK                                      (LookupError)

A command that exits non-zero, is killed or runs out of time is no error: see `BashResult`.
"""

from __future__ import annotations

from dsh.core import DshError

__all__ = [
    "BashAbortedError",
    "BashDisposedError",
    "BashError",
    "BashLostError",
    "BashSpawnError",
    "InvalidTimeoutError",
    "UnknownTaskError",
]


class BashError(DshError):
    """Base of what a bash executor raises."""

    code = "BASH_ERROR"


class BashSpawnError(BashError, OSError):
    """The command could not be started: no such directory, no shell, no more processes.

    Attributes:
        errno: The operating system's error number, where there is one.
    """

    code = "BASH_SPAWN_FAILED"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        number: int | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.errno = number


class BashAbortedError(BashError):
    """The signal of the request had fired before the command could be started."""

    code = "BASH_ABORTED"

    def __init__(self) -> None:
        super().__init__("the command was aborted before it was started")


class BashDisposedError(BashError):
    """The executor was unloaded before the command was over; the command was killed."""

    code = "BASH_DISPOSED"

    def __init__(self) -> None:
        super().__init__("the bash service was unloaded, and the command with it")


class BashLostError(BashError):
    """The provider lost sight of the command; how it ended, and what it did, is unknown."""

    code = "BASH_LOST"


class InvalidTimeoutError(BashError, ValueError):
    """The timeout of a request is not a positive, finite number."""

    code = "BASH_INVALID_TIMEOUT"

    def __init__(self, value: object) -> None:
        super().__init__(
            f"request.timeout_ms is {value!r}, not a positive, finite number",
            hint="give milliseconds, or leave it out for the default",
        )


class UnknownTaskError(BashError, LookupError):
    """There is no background task with this id, or it ended so long ago that it is forgotten."""

    code = "UNKNOWN_BASH_TASK"

    def __init__(self, task_id: str) -> None:
        super().__init__(f'unknown bash task "{task_id}"')
        self.task_id = task_id
