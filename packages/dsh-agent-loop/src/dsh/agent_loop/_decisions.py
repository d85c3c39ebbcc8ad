"""What policies decide about a turn: whether it goes on, stops for good, tries again."""

from __future__ import annotations

import logging
from typing import Final, cast

from dsh.agent import (
    AgentFault,
    ContinuationDecision,
    Continue,
    GiveUp,
    RequestErrorDecision,
    Retry,
    Stop,
)
from dsh.agent.events import AgentRequestError, TurnContinuation, TurnStop
from dsh.agent_loop._failures import leaf_of
from dsh.agent_loop._prompt import Queued, context_message
from dsh.agent_loop._state import AgentState

_log: Final = logging.getLogger("dsh.agent_loop")


def no_decision(event: str, value: object, wanted: str = "a decision") -> AgentFault:
    """Return the error for a listener that returned something else than what its event wants."""
    return AgentFault(
        f"a listener of {event} returned {value!r}, not {wanted}", code=AgentFault.BAD_DECISION
    )


async def goes_on(state: AgentState, turn: int, wants_more: bool) -> bool:
    """Ask whether the turn makes another step; a reason to do so becomes steering.

    Raises:
        Exception: A listener raised, or returned no decision.
    """
    event = TurnContinuation(state.agent, turn, Continue() if wants_more else Stop())
    decision = cast("object", await state.spine.ctx.waterfall(event, _default_decision))
    if isinstance(decision, Stop):
        return False
    if not isinstance(decision, Continue):
        raise no_decision("agent/turn-continuation", decision)
    if decision.reason is not None:
        message = context_message(decision.reason)
        state.steering.append(Queued(message.content, message.source, None))
    return True


async def stops_for_good(state: AgentState, turn: int) -> bool:
    """Ask whether anybody stops the turn for good.

    Raises:
        Exception: A listener raised, or returned something else than `Stop`.
    """
    verdict = cast("object", await state.spine.ctx.serial(TurnStop(state.agent, turn)))
    if verdict is not None and not isinstance(verdict, Stop):
        raise no_decision("agent/turn-stop", verdict, "Stop() or nothing")
    return verdict is not None


async def tries_again(state: AgentState, event: AgentRequestError) -> bool:
    """Ask whether a failed request is made again; what breaks here leaves the failure as it is."""
    try:
        decision = cast("object", await state.spine.ctx.waterfall(event, _give_up))
        if not isinstance(decision, Retry | GiveUp):
            raise no_decision("agent/request-error", decision)
    except Exception as error:  # noqa: BLE001 - the request's own failure is what counts
        _log.warning("agent %s: recovery failed: %s", state.agent.id, leaf_of(error))
        return False
    return isinstance(decision, Retry)


async def _default_decision(event: TurnContinuation) -> ContinuationDecision:
    return event.default


async def _give_up(event: AgentRequestError) -> RequestErrorDecision:
    return GiveUp()
