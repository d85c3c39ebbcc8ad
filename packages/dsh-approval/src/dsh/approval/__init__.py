"""The approval seam: asking a person before something runs."""

from dsh.approval._payloads import ApprovalAsked, ApprovalDecided, ApprovalPolicySet
from dsh.approval._service import Approval, fold_policy, set_policy
from dsh.approval._types import (
    AllowedOnce,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
    Cancelled,
    OutcomeKind,
    Rejected,
    Unavailable,
    is_outcome,
    is_policy,
)
from dsh.approval.errors import ApprovalError
from dsh.approval.events import ApprovalAsk

__all__ = [
    "AllowedOnce",
    "Approval",
    "ApprovalAsk",
    "ApprovalAsked",
    "ApprovalDecided",
    "ApprovalError",
    "ApprovalOutcome",
    "ApprovalPolicy",
    "ApprovalPolicySet",
    "ApprovalRequest",
    "Cancelled",
    "OutcomeKind",
    "Rejected",
    "Unavailable",
    "fold_policy",
    "is_outcome",
    "is_policy",
    "set_policy",
]
