"""What approvals leave in the session's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsh.session import SessionData

__all__ = ["ApprovalAsked", "ApprovalDecided", "ApprovalPolicySet"]


@dataclass(frozen=True, slots=True)
class ApprovalAsked(SessionData, type="approval/asked"):
    """A question was put. Logged inside the turn, before anybody is asked."""

    id: str
    """Fresh per question; pairs it with its `approval/decided`."""
    tool_name: str
    """Name of the tool the question is about."""
    call_id: str | None = None
    """Id of the tool call, where there is one."""
    reason: str | None = None
    """Why it was asked."""


@dataclass(frozen=True, slots=True)
class ApprovalDecided(SessionData, type="approval/decided"):
    """A question ended. Exactly one per `approval/asked`."""

    id: str
    """The id of the question."""
    outcome: Literal["allowed-once", "rejected", "cancelled", "unavailable"]
    """How it ended."""
    feedback: str | None = None
    """What the person added to a rejection."""


@dataclass(frozen=True, slots=True)
class ApprovalPolicySet(SessionData, type="approval/policy"):
    """The session's policy was set; the last one in the log counts."""

    policy: Literal["ask", "never"]
    """The policy from here on."""
