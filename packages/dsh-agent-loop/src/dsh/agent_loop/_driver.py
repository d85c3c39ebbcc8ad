"""The driver: one task per agent that runs its turns, from publication to disposal."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from dsh.agent.loop import leaf_of
from dsh.agent_loop._state import AgentState
from dsh.agent_loop._turn import TurnRunner

_log: Final = logging.getLogger("dsh.agent_loop")


async def drive(state: AgentState) -> None:
    """Run turns until the agent is disposed. Being cancelled means the same."""
    try:
        while not state.disposed:
            await state.wait_for_work()
            if not state.disposed:
                await _serve(state)
    finally:
        state.begin_dispose()
        await _last_checkpoint(state)


async def _serve(state: AgentState) -> None:
    """Run one turn if there is one to run, and come to rest if nothing follows."""
    if state.cause is not None:
        # cancelled before this task woke up: what is queued now came after the cancel
        state.cause = None
    state.prune()
    if state.queued:
        state.set_status("running")
        if state.disposed:
            return
        if state.cause is None:
            await _run_batch(state)
            if state.disposed:
                return
        state.cause = None
    if state.flush_due:
        await state.flush(0)
    if not state.queued and not state.disposed:
        state.set_status("idle")
        state.release_waiters()


async def _run_batch(state: AgentState) -> None:
    batch = state.take_batch()
    if not batch:
        return
    runner = TurnRunner(state)
    try:
        await runner.run(batch)
    except Exception as error:  # noqa: BLE001 - the log refused the turn; the driver goes on
        leaf = leaf_of(error)
        _log.warning("agent %s: no turn could be opened: %s", state.agent.id, leaf)
        receipts = [item.receipt for item in batch if item.receipt is not None]
        state.book.drop(receipts, f"the log refused the turn: {leaf}")
        state.report(state.session.last_turn + 1, 0, error)
    else:
        await state.flush(runner.step)
        state.book.settle()
    _requeue(state, runner.terminal)


def _requeue(state: AgentState, terminal: bool) -> None:
    """Make prompts of the steering that came too late for the turn, or discard it."""
    if terminal:
        state.drop_steering("the turn was stopped for good")
    state.queued.extend(state.steering)
    state.steering.clear()


async def _last_checkpoint(state: AgentState) -> None:
    """Make durable what the end of the task has kept from it, for a bounded time."""
    if state.flush_due:
        with anyio.move_on_after(state.spine.config.close_grace_s, shield=True):
            await state.flush(0)
