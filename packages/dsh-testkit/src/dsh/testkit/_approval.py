"""An approval service whose answers a test writes down."""

from __future__ import annotations

import inspect
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import ClassVar, TypeAlias

import anyio

from dsh.agent import Agent
from dsh.agent.loopkit import Pulse
from dsh.approval import (
    Approval,
    ApprovalAsk,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalError,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
    Cancelled,
    Rejected,
    Unavailable,
    fold_policy,
    is_outcome,
)
from dsh.core import settings

__all__ = ["AnswerFunction", "MemoryApproval", "ScriptedAnswer", "never_answered"]

AnswerFunction: TypeAlias = (
    "Callable[[ApprovalRequest], ApprovalOutcome | Awaitable[ApprovalOutcome]]"
)
"""Answers a question by looking at it; sync or async."""

ScriptedAnswer: TypeAlias = "ApprovalOutcome | AnswerFunction"
"""One entry of the script."""


async def never_answered(request: ApprovalRequest) -> ApprovalOutcome:
    """Leave a question open until its signal withdraws it."""
    await anyio.sleep_forever()
    return Unavailable()


class MemoryApproval(Approval):
    """Decides and logs as the interface demands, and answers from a script.

    The script stands where a person would: below every `approval/request` listener, and not asked
    under the policy `never`. Each question that gets that far consumes one answer; afterwards, and
    without a script, `otherwise` answers.
    """

    name: ClassVar[str] = "memory-approval"

    class Config(Approval.Config):
        """Configuration."""

    config = settings(Config)

    async def start(self) -> None:
        """Begin with no answers and no questions."""
        self.requests: list[ApprovalRequest] = []
        """Every question that was put, oldest first, also those nobody was asked about."""
        self.outcomes: list[ApprovalOutcome] = []
        """How the questions ended, in the order in which they did."""
        self.otherwise: ScriptedAnswer = Unavailable()
        """Answers where the script has nothing left."""
        self._answers: deque[ScriptedAnswer] = deque()
        self._asked = Pulse()

    def answer(self, *answers: ScriptedAnswer) -> None:
        """Add answers to the end of the script.

        Args:
            answers: Outcomes, or functions of the request. What such a function raises, and what
                is no outcome, makes the answer `Unavailable`.
        """
        self._answers.extend(answers)

    @property
    def remaining(self) -> int:
        """Answers that no question has consumed."""
        return len(self._answers)

    async def asked(self, number: int = 1) -> ApprovalRequest:
        """Wait until a number of questions has been put.

        Args:
            number: Which question to wait for, counted from 1.

        Returns:
            That question.
        """
        while len(self.requests) < number:
            await self._asked.wait()
        return self.requests[number - 1]

    def policy(self, agent: Agent) -> ApprovalPolicy:
        """See `Approval.policy`."""
        return fold_policy(agent.session.events) or self.config.policy

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        """See `Approval.request`."""
        agent = request.agent
        if agent.session.turn_open is None:
            raise ApprovalError(
                f"agent {agent.id!r} asks for approval of {request.tool_name!r} while no turn is "
                "open, so the question cannot be logged",
                code=ApprovalError.NO_OPEN_TURN,
                hint="ask from inside a turn",
            )
        question = uuid.uuid4().hex
        agent.record(ApprovalAsked(question, request.tool_name, request.call_id, request.reason))
        self.requests.append(request)
        self._asked.fire()
        # Whatever interrupts the decision, the question that was logged gets its end.
        outcome: ApprovalOutcome = Cancelled()
        try:
            outcome = await self._decide(request)
        finally:
            feedback = outcome.feedback if isinstance(outcome, Rejected) else None
            agent.record(ApprovalDecided(question, outcome.kind, feedback))
            self.outcomes.append(outcome)
        return outcome

    async def _decide(self, request: ApprovalRequest) -> ApprovalOutcome:
        signal = request.signal
        if signal is not None and signal.aborted:
            return Cancelled()
        if self.policy(request.agent) == "never":
            return Rejected()
        outcome: ApprovalOutcome = Unavailable()
        with nullcontext() if signal is None else signal.cancel_scope():
            try:
                outcome = await self.ctx.waterfall(ApprovalAsk(request), self._scripted)
            except Exception as error:  # noqa: BLE001 - a broken answerer is nobody
                if signal is None or not signal.aborted:
                    self.ctx.report(error, "answer to an approval request")
                outcome = Unavailable()
        if signal is not None and signal.aborted:
            return Cancelled()
        # A listener or an answer may return anything, whatever its annotation promises.
        return outcome if is_outcome(outcome) else Unavailable()

    async def _scripted(self, event: ApprovalAsk) -> ApprovalOutcome:
        answer = self._answers.popleft() if self._answers else self.otherwise
        if not callable(answer):
            return answer
        given = answer(event.request)
        return await given if inspect.isawaitable(given) else given
