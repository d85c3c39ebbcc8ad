"""The driver: one task per agent that runs its turns, from publication to disposal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from dsh.agent.loopkit import leaf_of
from dsh.agent_loop._turn import TurnRunner

if TYPE_CHECKING:
    from dsh.agent_loop._agent import LoopAgent

_log: Final = logging.getLogger("dsh.agent_loop")


async def drive(agent: LoopAgent) -> None:
    """Run turns until the agent is disposed. Being cancelled means the same."""
    try:
        while not agent.disposed:
            await agent.wait_for_work()
            if not agent.disposed:
                await _serve(agent)
    finally:
        agent.halt()
        if agent.flush_due:
            # what the end of the task has kept from the store; the flush bounds itself by now
            with anyio.CancelScope(shield=True):
                await agent.flush(0)


async def _serve(agent: LoopAgent) -> None:
    """Run one turn if there is one to run, and come to rest if nothing follows."""
    # cancelled before this task woke up: what is queued now came after the cancel
    agent.cause = None
    agent.queues.prune()
    if agent.queues.has_prompts:
        # whoever hears of it may cancel or dispose the agent, and withdraw prompts
        agent.set_status("running")
        if agent.cause is None:
            await _run_batch(agent)
        if agent.disposed:
            return
        agent.cause = None
    if agent.flush_due:
        await agent.flush(0)
    if not agent.queues.has_prompts and not agent.disposed:
        agent.set_status("idle")
        # also those who waited for a checkpoint, during which the status was idle all the time
        agent.rest()


async def _run_batch(agent: LoopAgent) -> None:
    batch = agent.queues.take_prompts()
    if not batch:
        return
    runner = TurnRunner(agent)
    try:
        await runner.run(batch)
    except Exception as error:  # noqa: BLE001 - the log refused the turn; the driver goes on
        leaf = leaf_of(error)
        _log.warning("agent %s: no turn could be opened: %s", agent.id, leaf)
        agent.book.drop([item.receipt for item in batch], f"the log refused the turn: {leaf}")
        agent.report(agent.session.last_turn + 1, 0, error)
    else:
        await agent.flush(runner.step)
        agent.book.settle()
    if runner.terminal:
        agent.queues.drop_steering("the turn was stopped for good")
    agent.queues.steering_to_prompts()
