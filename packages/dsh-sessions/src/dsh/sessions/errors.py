"""Errors of those who look for a stored session.

SessionChoiceError     SESSION_CHOICE
├── UnknownSession     SESSION_NOT_FOUND
├── AmbiguousSession   SESSION_AMBIGUOUS
└── UnknownTurn        TURN_NOT_FOUND
"""

from __future__ import annotations

from typing import Final

from dsh.core import DshError
from dsh.session.errors import ForkError

__all__ = ["AmbiguousSession", "SessionChoiceError", "UnknownSession", "UnknownTurn"]


class SessionChoiceError(DshError):
    """What a person named is no session, or nothing that can be done with one."""

    code = "SESSION_CHOICE"
    exit_code: Final = 2
    """What a command returns for it: nothing was done."""


class UnknownSession(SessionChoiceError, LookupError):
    """No stored session has an id that begins with what was given."""

    code = ForkError.SESSION_NOT_FOUND


class AmbiguousSession(SessionChoiceError, LookupError):
    """Several stored sessions have an id that begins with what was given."""

    code = "SESSION_AMBIGUOUS"


class UnknownTurn(SessionChoiceError, LookupError):
    """The session has no such turn."""

    code = "TURN_NOT_FOUND"
