"""The event through which answerers are asked."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.approval._types import ApprovalOutcome, ApprovalRequest
from dsh.core import Waterfall

__all__ = ["ApprovalAsk"]


@dataclass(frozen=True, slots=True)
class ApprovalAsk(
    Waterfall[ApprovalOutcome], name="approval/request", scope="request.agent", realm="approval"
):
    """Put a question to the answerers in the agent's scope.

    A listener that can answer returns the outcome; one that cannot (not its agent, no window
    open) returns `await next()`. The base answers `Unavailable`, so a question nobody takes is
    a refusal. Listeners run only under the policy `ask`.
    """

    request: ApprovalRequest
    """The question."""
