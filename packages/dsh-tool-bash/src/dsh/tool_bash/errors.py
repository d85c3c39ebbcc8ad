"""Errors of the bash tools; in a call they become error results."""

from __future__ import annotations

from typing import ClassVar

from dsh.core import DshError
from dsh.tools import ToolArgsError

__all__ = ["BashToolError"]


class BashToolError(DshError):
    """A call of a bash tool cannot be carried out; the code says why."""

    INVALID_ARGS: ClassVar[str] = ToolArgsError.INVALID_ARGS
    """An argument has the right type and no usable value."""
    ABORTED: ClassVar[str] = "COMMAND_ABORTED"
    """The command was stopped because the call was cancelled."""
    FOREIGN_TASK: ClassVar[str] = "FOREIGN_BASH_TASK"
    """The task belongs to another session."""
