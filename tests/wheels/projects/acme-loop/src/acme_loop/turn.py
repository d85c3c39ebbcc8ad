"""One turn: prompts in, steps until nobody wants more, one end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_loop.step import RequestFailed, Step
from dsh.agent import BlockPrompt, Continue
from dsh.agent.events import AgentRequestError
from dsh.agent.loopkit import failed, is_fatal, leaf_of
from dsh.llm import CancelSignal
from dsh.session import (
    APPEND,
    Aborted,
    Completed,
    ContextMessage,
    Disposed,
    Failed,
    MaxTurnRequests,
    MessageTrigger,
    PromptBlocked,
    Rejected,
    SessionData,
    SteeringMessage,
    StepEnd,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)

if TYPE_CHECKING:
    from acme_loop.agent import Said
    from acme_loop.driver import Driver


class Turn:
    """Runs one batch of prompts."""

    def __init__(self, driver: Driver, batch: list[Said]) -> None:
        self.driver = driver
        self.agent = driver.agent
        self.session = driver.agent.session
        self.signal = CancelSignal()
        self.number = self.session.last_turn + 1
        self.step = 0
        self.output_tokens = 0
        self.verdict: TurnEndReason = Completed()
        """How it ends, unless it fails or somebody stops it."""
        self._batch = batch
        self._start = self.session.seq
        self._failure: Failed | None = None
        self._terminal = False

    async def run(self) -> bool:
        """Run it from start to checkpoint; return whether it was stopped for good."""
        agent, receipts = self.agent, [said.receipt for said in self._batch]
        veto: Exception | None = None
        try:
            self.session.append(TurnStart(self.number, MessageTrigger(self._batch[0].source)))
        except Exception as error:
            if self.session.turn_open != self.number:
                agent.book.drop(receipts, f"the log refused the turn: {error}")
                agent.report(error, self.number, 0)
                return False
            # it is in the log although telling about it was vetoed: it fails, and is closed
            veto = error
        agent.signal, agent.unflushed = self.signal, True
        agent.book.admit(receipts, self.number, self._start)
        try:
            if veto is not None:
                raise veto
            if await self._admit():
                await self._steps()
        except BaseException as error:
            self.fail(error)
            if is_fatal(error):
                raise
        finally:
            agent.signal = None
            if self.session.step_open is not None:
                self.close(StepEnd(self.number, self.session.step_open))
            self.close(TurnEnd(self.number, self._failure or self.stopped or self.verdict))
        await self.driver.flush(self.number, self.step)
        agent.book.settle()
        return self._terminal

    def fail(self, error: BaseException) -> None:
        """End the turn with a failure, unless somebody has stopped it or it failed before."""
        if self._failure is None and self.stopped is None:
            self._failure = failed(leaf_of(error), self.step)
            self.agent.report(error, self.number, self.step)

    def close(self, data: SessionData) -> None:
        """Log what closes something; what a validator has against it is a failure, no veto."""
        self.session.append(data)
        objection = self.session.take_objection()
        if objection is not None:
            self.fail(objection)

    @property
    def stopped(self) -> Aborted | Disposed | None:
        """Why somebody wants this turn to end, if somebody does."""
        if self.agent.stopped is None and self.signal.aborted:
            # not a cancel: whoever was given the signal has fired it
            return Aborted(self.signal.reason or "cancelled")
        return self.agent.stopped

    # --- prompts --------------------------------------------------------------------------

    async def _admit(self) -> bool:
        """Log what is let in; say whether anything was."""
        admitted = False
        for said in self._batch:
            decision = await self.driver.policies.prompt(said.content, said.source)
            if isinstance(decision, BlockPrompt):
                self.verdict = Rejected(decision.reason)
                self.agent.book.block(said.receipt, decision.reason)
                self.session.append(PromptBlocked(said.content, said.source, decision.reason))
                continue
            admitted = True
            content = said.content if decision.content is None else decision.content
            self.session.append(UserMessage(content, said.source), APPEND)
            context = decision.additional_context
            if context is not None:
                self.agent.notes.inject(ContextMessage(context.content, context.source))
        if admitted:
            self.verdict = Completed()
        return admitted

    def take_steering(self) -> bool:
        """Log what was said to the running turn; say whether anything was."""
        waiting = self.agent.take(self.agent.steering)
        for said in waiting:
            self.agent.book.admit([said.receipt], self.number, self._start)
            self.session.append(SteeringMessage(self.number, said.content, said.source), APPEND)
        return bool(waiting)

    # --- steps ----------------------------------------------------------------------------

    async def _steps(self) -> None:
        more = True
        while more and not self.stopped:
            self.step += 1
            self.take_steering()
            step = Step(self)
            try:
                wants = await step.run()
            except RequestFailed as failure:
                self.close(StepEnd(self.number, self.step))
                more = self._failure is None and await self._again(failure)
                continue
            if self.session.step_open is None:
                return
            # what was said to a step that was stopped is a prompt of the next turn
            wants = (not self.stopped and self.take_steering()) or wants
            self.close(StepEnd(self.number, self.step))
            more = self._failure is None and await self._wants_more(wants)

    async def _wants_more(self, wants: bool) -> bool:
        agent, policies = self.agent, self.driver.policies
        decision = await policies.goes_on(self.number, wants)
        if isinstance(decision, Continue) and decision.reason is not None:
            agent.steer_inside(decision.reason)
        stop = await policies.stops_for_good(self.number)
        if stop:
            self._terminal = True
            agent.drop(agent.steering, "the turn was stopped")
        more = isinstance(decision, Continue) or bool(agent.steering)
        return not self.stopped and more and not stop and not self._limited()

    def _limited(self) -> bool:
        options = self.agent.options
        for name, limit, used in (
            ("max_steps", options.max_steps, self.step),
            ("max_turn_tokens", options.max_turn_tokens, self.output_tokens),
        ):
            if limit is not None and used >= limit:
                self.verdict = MaxTurnRequests(name, limit)
                return True
        return False

    async def _again(self, failure: RequestFailed) -> bool:
        if self.stopped:
            return False
        event = AgentRequestError(
            self.agent, self.number, self.step, failure.config, failure.finish, self.signal
        )
        if await self.driver.policies.again(event):
            return True
        self.fail(failure.error())
        return False
