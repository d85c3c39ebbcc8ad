"""One turn: a batch of prompts, run until the model stops and no policy wants more."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from dsh.agent import Continue
from dsh.agent.events import AgentRequestError
from dsh.agent.loop import failed, is_fatal, leaf_of
from dsh.agent_loop._admission import admit
from dsh.agent_loop._request import Inputs, assemble, build_call, prepare_history
from dsh.agent_loop._state import AgentState, Queued
from dsh.agent_loop._step import RequestFailed, StepOutcome, StepWork
from dsh.llm import CancelSignal
from dsh.session import (
    APPEND,
    Aborted,
    Completed,
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

_log: Final = logging.getLogger("dsh.agent_loop")


class TurnRunner:
    """Runs one turn and closes it, whatever happens.

    `reason` starts as completed and is overwritten in program order. The first cause that
    interrupts the agent (a cancel, or its disposal) wins over a failure that follows from it.
    """

    def __init__(self, state: AgentState) -> None:
        self._state = state
        self.turn = 0
        self.step = 0
        self.opened = False
        """Whether `turn/start` is in the log."""
        self.terminal = False
        """Whether a policy stopped the turn for good; late steering is then discarded."""
        self.reason: TurnEndReason = Completed()
        self._start = 0
        self._reported = False
        self._requests = 0
        self._output_tokens = 0
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
            blocked = await admit(self._state, prompts)
            if blocked is None:
                await self._steps()
            else:
                self.reason = Rejected(blocked)
        except BaseException as error:
            if not self.opened:
                raise
            self._break_off(error)
            if is_fatal(error):
                self._close()
                raise
        self._close()

    # --- opening and closing ----------------------------------------------------------------

    def _open(self, prompts: Sequence[Queued]) -> None:
        session = self._state.session
        self.turn = session.last_turn + 1
        self._start = session.seq
        try:
            session.append(TurnStart(self.turn, MessageTrigger(prompts[0].source)))
        finally:
            # an event may be in the log although telling about it was vetoed
            self.opened = session.turn_open == self.turn
        self._state.flush_due = True
        receipts = [item.receipt for item in prompts if item.receipt is not None]
        self._state.book.admit(receipts, self.turn, self._start)

    def _break_off(self, error: BaseException) -> None:
        """Settle the reason of a turn that something got out of."""
        if is_fatal(error):
            self._state.begin_dispose()
        self._close_step()
        if self._state.cause is not None and not self._reported:
            self.reason = self._state.cause
        else:
            self._fail(error)

    def _close(self) -> None:
        self._commit(TurnEnd(self.turn, self.reason))

    def _fail(self, error: BaseException) -> None:
        """End the turn with a failure; only the first one counts and is reported."""
        if self._reported:
            return
        self._reported = True
        leaf = leaf_of(error)
        self.reason = failed(leaf, self.step)
        self._state.report(self.turn, self.step, error)

    def _close_step(self) -> bool:
        """Bring the records of the open step in order and close it; never raises.

        Returns:
            False when the log objected, which makes the turn a failure.
        """
        if self._state.session.step_open is None:
            return True
        before = self._reported
        if self._work is not None:
            self._work.finish(self._fail)
            self._work = None
        self._commit(StepEnd(self.turn, self.step))
        return self._reported == before

    def _commit(self, data: SessionData) -> None:
        """Append a closing event. What a validator has against it is reported, not obeyed."""
        try:
            self._state.session.append(data)
        except Exception as error:  # noqa: BLE001 - nothing may keep the turn from being closed
            _log.warning("agent %s: %s", self._state.agent.id, error)
            self._fail(error)
        objection = self._state.session.take_objection()
        if objection is not None:
            self._fail(objection)

    def _interrupted(self, signal: CancelSignal) -> bool:
        """Whether the turn was cancelled or the agent disposed; sets the reason."""
        cause = self._cause(signal)
        if cause is None:
            return False
        self.reason = cause
        return True

    def _cause(self, signal: CancelSignal) -> TurnEndReason | None:
        if self._state.cause is not None:
            return self._state.cause
        return Aborted(signal.reason or "cancelled") if signal.aborted else None

    # --- steps ------------------------------------------------------------------------------

    async def _steps(self) -> None:
        more = True
        while more:
            self.step = self._state.session.last_step + 1
            signal = self._state.arm()
            try:
                more = await self._one_step(signal)
            finally:
                self._state.disarm()

    async def _one_step(self, signal: CancelSignal) -> bool:
        """Run one step; True when the turn makes another one."""
        if self._interrupted(signal):
            return False
        self._take_steering()
        inputs = await self._prepare(signal)
        if inputs is None:
            return False
        history = self._state.session.derive_messages()
        self._state.session.append(StepStart(self.turn, self.step))
        if self._interrupted(signal):
            self._close_step()
            return False
        work = self._work = StepWork(self._state, self.turn, self.step, signal)
        try:
            call = await build_call(self._state, self.turn, self.step, inputs, history, signal)
            outcome = await work.run(call)
        except BaseException as error:
            if is_fatal(error):
                raise
            self._close_step()
            return await self._after_failure(error, signal)
        return await self._after_success(outcome)

    async def _prepare(self, signal: CancelSignal) -> Inputs | None:
        """Assemble the request's fixed parts and let listeners prepare the history."""
        state = self._state
        inputs = await assemble(state)
        if self._interrupted(signal):
            return None
        if state.prefix is None:
            prefix = await state.policies.prefix(signal)
            if self._interrupted(signal):
                return None
            state.prefix = prefix
        await prepare_history(state, self.turn, self.step, inputs, signal)
        return None if self._interrupted(signal) else inputs

    def _take_steering(self) -> bool:
        """Log the steering that waits; whether there was any."""
        state = self._state
        state.prune()
        taken = False
        while state.steering:
            item = state.steering.popleft()
            if item.receipt is not None:
                state.book.admit((item.receipt,), self.turn, self._start)
            message = SteeringMessage(self.turn, item.content, item.source)
            state.session.append(message, APPEND)
            taken = True
        return taken

    async def _after_failure(self, error: BaseException, signal: CancelSignal) -> bool:
        """Settle a failed step that is closed; True when its request is made again."""
        if self._interrupted(signal):
            return False
        if not isinstance(error, RequestFailed):
            self._fail(error)
            return False
        state = self._state
        event = AgentRequestError(
            state.agent, self.turn, self.step, error.config, error.finish, signal
        )
        again = not self._reported and await state.policies.again(event)
        if self._interrupted(signal):
            return False
        if not again:
            self._fail(error.error())
        return again

    async def _after_success(self, outcome: StepOutcome) -> bool:
        """Close a step that went well and decide whether the turn goes on."""
        self._requests += 1
        if outcome.usage is not None:
            self._output_tokens += outcome.usage.output_tokens
        if outcome.finish.kind == "max-tokens":
            self.reason = MaxTokens()
        elif outcome.finish.kind == "refusal":
            self.reason = Refusal()
        steered = self._take_steering()
        if not self._close_step():
            return False
        try:
            more = await self._wants_more(outcome.had_tool_calls or steered)
            stopped = await self._state.policies.stops_for_good(self.turn)
        except Exception as error:  # noqa: BLE001 - any failure of a policy ends the turn
            self._fail(error)
            return False
        if stopped:
            self.terminal = True
            self._state.drop_steering("the turn was stopped for good")
            more = False
        return self._goes_on(more or (bool(self._state.steering) and not stopped))

    async def _wants_more(self, wants_more: bool) -> bool:
        """Ask whether the turn makes another step; a reason to do so becomes steering."""
        decision = await self._state.policies.goes_on(self.turn, wants_more)
        if not isinstance(decision, Continue):
            return False
        if decision.reason is not None:
            reason = decision.reason
            self._state.steering.append(Queued(reason.content, reason.source, None))
        return True

    def _goes_on(self, more: bool) -> bool:
        if self._state.cause is not None:
            self.reason = self._state.cause
            return False
        if not more:
            return False
        limit = self._limit()
        if limit is not None:
            self.reason = limit
            return False
        return True

    def _limit(self) -> MaxTurnRequests | None:
        options = self._state.agent.options
        if options.max_steps is not None and self._requests >= options.max_steps:
            return MaxTurnRequests("max_steps", options.max_steps)
        allowed = options.max_turn_tokens
        if allowed is not None and self._output_tokens >= allowed:
            return MaxTurnRequests("max_turn_tokens", allowed)
        return None
