"""Errors of the invariants service.

InvariantError              INVARIANT
InvariantRegistrationError  ALREADY_REGISTERED, BAD_NAME
"""

from __future__ import annotations

from dsh.core import DshError

__all__ = ["InvariantError", "InvariantRegistrationError"]


class InvariantError(DshError):
    """A rule that must always hold was broken; raised where the offending call was made.

    Args:
        package: Name under which the broken rule was registered.
        message: What was wrong.
    """

    code = "INVARIANT"

    def __init__(self, package: str, message: str) -> None:
        self.package = package
        super().__init__(f'invariant violated by "{package}": {message}')


class InvariantRegistrationError(DshError, ValueError):
    """A set of checks cannot be registered under this name."""

    code = "BAD_NAME"
    ALREADY_REGISTERED = "ALREADY_REGISTERED"
    """A set of checks has the name."""
    BAD_NAME = "BAD_NAME"
    """The name is empty, or holds a space."""
