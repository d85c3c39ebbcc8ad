"""How a command says that it cannot go on.

CliError              CLI
└── UsageError        USAGE
"""

from __future__ import annotations

from dsh.cli._exit_codes import ERROR, USAGE
from dsh.core import DshError

__all__ = ["CliError", "UsageError"]


class CliError(DshError):
    """A message for the person, and the exit code that goes with it."""

    code = "CLI"
    exit_code = ERROR
    """What the command ends with."""


class UsageError(CliError):
    """The command line asks for something that does not exist or makes no sense."""

    code = "USAGE"
    exit_code = USAGE
