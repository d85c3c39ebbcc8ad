"""One turn: a batch of prompts, run until the model stops and no policy wants more."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dsh.agent import Continue
from dsh.agent.events import AgentRequest, AgentRequestError, PreStep
from dsh.agent.loopkit import LoggedCall, failed, is_fatal, leaf_of
from dsh.agent_loop._admission import admit
from dsh.agent_loop._step import RequestFailed, StepOutcome, StepWork
from dsh.llm import CancelSignal, Message, ToolSchema
from dsh.session import (
    APPEND,
    Completed,
    Failed,
    MaxTokens,
    MaxTurnRequests,
    MessageTrigger,
    Refusal,
    Rejected,
    SessionData,
    SteeringMessage,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
)
from dsh.system_prompt import AssembleContext, render_prompt

if TYPE_CHECKING:
    from dsh.agent_loop._agent import LoopAgent
    from dsh.agent_loop._queues import Queued

_log: Final = logging.getLogger("dsh.agent_loop")


class TurnRunner:
    """Runs one turn and closes it, whatever happens.

    Why the turn ends is what its last step returns. Where something gets out of one instead, what
    came first counts: a failure, or what interrupted the agent (a cancel, or its disposal), which
    explains the failures that follow from it.
    """

    def __init__(self, agent: LoopAgent) -> None:
        self._agent = agent
        self._session = agent.session
        self.turn = 0
        self.step = 0
        self.terminal = False
        """Whether a policy stopped the turn for good; late steering is then discarded."""
        self._start = 0
        self._opened = False
        self._failure: Failed | None = None
        self._requests = 0
        self._output_tokens = 0
        self._last: TurnEndReason = Completed()
        """How a turn ends that nothing stops: sticky, once a reply was cut off or declined."""
        self._work: StepWork | None = None

    async def run(self, prompts: Sequence[Queued]) -> None:
        """Run the turn to its end.

        Args:
            prompts: What it is about; at least one.

        Raises:
            Exception: The log refused `turn/start`; there is no turn.
            BaseException: The task is being ended; the turn is closed.
        """
        try:
            self._open(prompts)
            reason = await self._reason(prompts)
        except BaseException as error:
            if not self._opened:
                raise
            self._commit(TurnEnd(self.turn, self._broken_off(error)))
            if is_fatal(error):
                raise
        else:
            self._commit(TurnEnd(self.turn, reason))

    async def _reason(self, prompts: Sequence[Queued]) -> TurnEndReason:
        """Do the work of the open turn and return why it ends."""
        blocked = await admit(self._agent, prompts)
        if blocked is not None:
            return Rejected(blocked)
        while True:
            self.step = self._session.last_step + 1
            self._agent.check_interrupted()
            signal = self._agent.arm()
            try:
                reason = await self._one_step(signal)
            finally:
                self._agent.disarm()
            if reason is not None:
                return reason

    # --- opening and closing ----------------------------------------------------------------

    def _open(self, prompts: Sequence[Queued]) -> None:
        self.turn = self._session.last_turn + 1
        self._start = self._session.seq
        try:
            self._session.append(TurnStart(self.turn, MessageTrigger(prompts[0].source)))
        finally:
            # an event may be in the log although telling about it was vetoed
            self._opened = self._session.turn_open == self.turn
            if self._opened:
                self._agent.flush_due = True
                self._agent.book.admit([item.receipt for item in prompts], self.turn, self._start)

    def _broken_off(self, error: BaseException) -> TurnEndReason:
        """Close the step that something got out of, and return why the turn ends."""
        if is_fatal(error):
            self._agent.halt()
        cause = self._agent.cause if self._failure is None else None
        self._close_step()
        return self._fail(error) if cause is None else cause

    def _fail(self, error: BaseException) -> Failed:
        """Return the failure the turn ends with: the first one, which alone is reported."""
        if self._failure is None:
            self._failure = failed(leaf_of(error), self.step)
            self._agent.report(self.turn, self.step, error)
        return self._failure

    def _close_step(self) -> Failed | None:
        """Bring the records of the open step in order and close it; never raises.

        Returns:
            What the log has against it, which makes the turn a failure.
        """
        if self._session.step_open is not None:
            work, self._work = self._work, None
            if work is not None:
                work.finish(self._fail)
            self._commit(StepEnd(self.turn, self.step))
        return self._failure

    def _commit(self, data: SessionData) -> None:
        """Append a closing event. What a validator has against it is reported, not obeyed."""
        try:
            self._session.append(data)
        except Exception as error:  # noqa: BLE001 - nothing may keep the turn from being closed
            _log.warning("agent %s: %s", self._agent.id, error)
            self._fail(error)
        objection = self._session.take_objection()
        if objection is not None:
            self._fail(objection)

    # --- steps ------------------------------------------------------------------------------

    async def _one_step(self, signal: CancelSignal) -> TurnEndReason | None:
        """Run one step; None when the turn makes another one."""
        agent, session = self._agent, self._session
        self._take_steering()
        system, tools = await self._prepare(signal)
        history = session.derive_messages()
        session.append(StepStart(self.turn, self.step))
        agent.check_interrupted()
        work = self._work = StepWork(agent, self.turn, self.step, signal)
        try:
            outcome = await work.run(await self._request(system, tools, history, signal))
        except RequestFailed as failure:
            return await self._after_failure(failure, signal)
        return await self._after_success(outcome)

    async def _prepare(self, signal: CancelSignal) -> tuple[str, tuple[ToolSchema, ...]]:
        """Assemble the system prompt and the tools, and let listeners prepare the history."""
        agent = self._agent
        prompt = await agent.loop.system_prompt.assemble(AssembleContext.for_agent(agent))
        system, tools = render_prompt(prompt), tuple(prompt.tools)
        agent.check_interrupted()
        if agent.prefix is None:
            prefix = await agent.policies.prefix(signal)
            agent.check_interrupted()
            agent.prefix = prefix
        event = PreStep(agent, self.turn, self.step, system, agent.prefix, signal)
        await agent.policies.pre_step(event)
        agent.check_interrupted()
        return system, tools

    async def _request(
        self,
        system: str,
        tools: tuple[ToolSchema, ...],
        history: tuple[Message, ...],
        signal: CancelSignal,
    ) -> LoggedCall:
        """Choose the configuration, log the request's header, build the request from the log."""
        agent = self._agent
        seed = AgentRequest(agent, self.turn, self.step, agent.requests.seed())
        return await agent.requests.build(
            agent.loop.llm,
            await agent.policies.config(seed),
            system=system,
            tools=tools,
            prefix=agent.prefix or (),
            history=history,
            signal=signal,
        )

    def _take_steering(self) -> bool:
        """Log the steering that waits; whether there was any."""
        taken = False
        while (item := self._agent.queues.next_steering()) is not None:
            self._agent.book.admit((item.receipt,), self.turn, self._start)
            self._session.append(SteeringMessage(self.turn, item.content, item.source), APPEND)
            taken = True
        return taken

    async def _after_failure(
        self, error: RequestFailed, signal: CancelSignal
    ) -> TurnEndReason | None:
        """Close a step whose request failed; None when it is made again."""
        agent = self._agent
        objection = self._close_step()
        if objection is not None:
            return objection
        agent.check_interrupted()
        event = AgentRequestError(agent, self.turn, self.step, error.config, error.finish, signal)
        again = await agent.policies.again(event)
        agent.check_interrupted()
        return None if again else self._fail(error.error())

    async def _after_success(self, outcome: StepOutcome) -> TurnEndReason | None:
        """Close a step that went well; None when the turn makes another one."""
        agent = self._agent
        self._requests += 1
        if outcome.usage is not None:
            self._output_tokens += outcome.usage.output_tokens
        if outcome.finish.kind == "max-tokens":
            self._last = MaxTokens()
        elif outcome.finish.kind == "refusal":
            self._last = Refusal()
        steered = self._take_steering()
        objection = self._close_step()
        if objection is not None:
            return objection
        more = await self._asks_for_more(outcome.had_tool_calls or steered)
        self.terminal = await agent.policies.stops_for_good(self.turn)
        if self.terminal:
            agent.queues.drop_steering("the turn was stopped for good")
        agent.check_interrupted()
        if self.terminal or not (more or agent.queues.has_steering):
            return self._last
        return self._limit()

    async def _asks_for_more(self, more: bool) -> bool:
        """Ask the policies about another step; a reason they give becomes steering."""
        decision = await self._agent.policies.goes_on(self.turn, more)
        if not isinstance(decision, Continue):
            return False
        if decision.reason is not None:
            self._agent.queues.add(decision.reason.content, decision.reason.source, steer=True)
        return True

    def _limit(self) -> MaxTurnRequests | None:
        options = self._agent.options
        if options.max_steps is not None and self._requests >= options.max_steps:
            return MaxTurnRequests("max_steps", options.max_steps)
        allowed = options.max_turn_tokens
        if allowed is not None and self._output_tokens >= allowed:
            return MaxTurnRequests("max_turn_tokens", allowed)
        return None
