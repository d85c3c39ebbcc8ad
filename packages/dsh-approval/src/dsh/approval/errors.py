"""Errors of the approval seam."""

from __future__ import annotations

from typing import ClassVar

from dsh.core import DshError

__all__ = ["ApprovalError"]


class ApprovalError(DshError):
    """A question could not even be put. An unanswered question is an outcome, not an error."""

    NO_OPEN_TURN: ClassVar[str] = "APPROVAL_NO_OPEN_TURN"
    """The agent's session has no open turn, so the question could not be logged."""
    BAD_POLICY: ClassVar[str] = "APPROVAL_BAD_POLICY"
    """The value is not a policy name."""
