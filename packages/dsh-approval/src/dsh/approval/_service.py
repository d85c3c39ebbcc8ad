"""The abstract service behind the key `approval`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from dsh.agent import Agent
from dsh.approval._payloads import ApprovalPolicySet
from dsh.approval._types import ApprovalOutcome, ApprovalPolicy, ApprovalRequest, is_policy
from dsh.approval.errors import ApprovalError
from dsh.core import PluginConfig, Service
from dsh.session import SessionEvent

__all__ = ["Approval", "fold_policy", "set_policy"]


class Approval(Service, ABC, key="approval"):
    """Ask a person before something runs.

    A provider writes two log events per question (`approval/asked`, `approval/decided` with the
    same fresh id) and decides in this order:

    1. the request's signal already fired: `Cancelled`;
    2. the agent's policy is `never`: `Rejected`, and no listener is consulted;
    3. otherwise the `approval/request` waterfall in the agent's scope, whose base answers
       `Unavailable`. A listener that raises or returns something else than an outcome makes
       the answer `Unavailable`; a signal that fires while the question is open makes it
       `Cancelled`, and an answer or an error that arrives later is dropped.

    Grants are never stored: every call asks again.
    """

    class Config(PluginConfig):
        """What every provider honours."""

        policy: ApprovalPolicy = "ask"
        """The policy of sessions that did not set their own."""

    @abstractmethod
    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        """Put one question and wait for its outcome.

        Args:
            request: What is asked, for whom.

        Returns:
            How it ended; anything but `AllowedOnce` means that the action must not happen.

        Raises:
            ApprovalError: Code `APPROVAL_NO_OPEN_TURN` when the agent's session has no open
                turn; nothing has been logged then.
        """

    @abstractmethod
    def policy(self, agent: Agent) -> ApprovalPolicy:
        """Return the policy in force for an agent: its session's, else the configured one.

        Args:
            agent: The agent.
        """


def fold_policy(events: Iterable[SessionEvent]) -> ApprovalPolicy | None:
    """Return the last policy a log sets, or None if it sets none."""
    policy: ApprovalPolicy | None = None
    for event in events:
        data = event.data
        if isinstance(data, ApprovalPolicySet):
            policy = data.policy
    return policy


def set_policy(agent: Agent, policy: ApprovalPolicy) -> None:
    """Set the policy of an agent's session by logging it; works at any time.

    Raises:
        ApprovalError: Code `APPROVAL_BAD_POLICY` when `policy` is not a policy name.
    """
    if not is_policy(policy):
        raise ApprovalError(
            f"{policy!r} is not an approval policy",
            code=ApprovalError.BAD_POLICY,
            hint="use 'ask' or 'never'",
        )
    agent.record(ApprovalPolicySet(policy))
