"""The bash seam: running shell commands in the foreground and the background."""

from dsh.bash._executor import BashExecutor
from dsh.bash._tasks import BashRead, BashTask, TaskBook, TaskListener
from dsh.bash._types import (
    BashRequest,
    BashResult,
    BashSpec,
    BashTaskId,
    BashTaskStatus,
    CollectedOutput,
    OwnerToken,
    SandboxFacts,
    SandboxMode,
)
from dsh.bash.errors import (
    BashAbortedError,
    BashDisposedError,
    BashError,
    BashLostError,
    BashSpawnError,
    InvalidTimeoutError,
    UnknownTaskError,
)

__all__ = [
    "BashAbortedError",
    "BashDisposedError",
    "BashError",
    "BashExecutor",
    "BashLostError",
    "BashRead",
    "BashRequest",
    "BashResult",
    "BashSpawnError",
    "BashSpec",
    "BashTask",
    "BashTaskId",
    "BashTaskStatus",
    "CollectedOutput",
    "InvalidTimeoutError",
    "OwnerToken",
    "SandboxFacts",
    "SandboxMode",
    "TaskBook",
    "TaskListener",
    "UnknownTaskError",
]
