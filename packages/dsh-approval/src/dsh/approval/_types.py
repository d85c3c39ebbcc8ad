"""What is asked, what can be answered, and the policy that may answer for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from dsh.agent import Agent
from dsh.llm import CancelSignal

__all__ = [
    "AllowedOnce",
    "ApprovalOutcome",
    "ApprovalPolicy",
    "ApprovalRequest",
    "Cancelled",
    "OutcomeKind",
    "Rejected",
    "Unavailable",
    "is_outcome",
    "is_policy",
]

ApprovalPolicy: TypeAlias = Literal["ask", "never"]
"""`ask`: put the question to whoever answers; `never`: reject without asking anybody."""

OutcomeKind: TypeAlias = Literal["allowed-once", "rejected", "cancelled", "unavailable"]
"""An outcome as the log spells it."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One question: may this agent use this tool now?

    The tool's arguments are not part of it. Whoever shows the question reads them from the
    session's `tool/call` event with the same call id, so that what is shown is what is logged.
    """

    agent: Agent
    """The agent that wants to act; the question goes to the answerers in its scope."""
    tool_name: str
    """Name of the tool."""
    call_id: str | None = None
    """Id of the tool call; None when the question is not about one call."""
    reason: str | None = None
    """Why it is asked, for the person. Untrusted text: escape it before showing it."""
    signal: CancelSignal | None = None
    """Withdraws the question when it fires; a late answer is dropped."""


@dataclass(frozen=True, slots=True)
class AllowedOnce:
    """Yes, this time. Nothing is remembered."""

    kind: ClassVar[OutcomeKind] = "allowed-once"


@dataclass(frozen=True, slots=True)
class Rejected:
    """No."""

    kind: ClassVar[OutcomeKind] = "rejected"
    feedback: str | None = None
    """What the person wants the model to know; None when nothing was said."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The question was withdrawn before anybody answered."""

    kind: ClassVar[OutcomeKind] = "cancelled"


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nobody was there to answer, or the answer was unusable."""

    kind: ClassVar[OutcomeKind] = "unavailable"


ApprovalOutcome: TypeAlias = AllowedOnce | Rejected | Cancelled | Unavailable
"""The four ways a question can end. Only `AllowedOnce` lets the action happen."""


def is_outcome(value: object) -> bool:
    """Tell whether `value` is one of the four outcomes, with fields of the right types."""
    if type(value) is Rejected:
        feedback: object = value.feedback
        return feedback is None or type(feedback) is str
    return type(value) in (AllowedOnce, Cancelled, Unavailable)


def is_policy(value: object) -> bool:
    """Tell whether `value` is a policy name."""
    return type(value) is str and value in ("ask", "never")
