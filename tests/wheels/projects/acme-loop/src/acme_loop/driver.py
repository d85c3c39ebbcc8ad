"""The driver: one task for each agent, from its publication to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from acme_loop.turn import Turn
from dsh.agent.loopkit import CallIds, Checkpoints, Policies, Requests
from dsh.llm import Message

if TYPE_CHECKING:
    from acme_loop.agent import AcmeAgent


class Driver:
    """Works off the queue of one agent."""

    tasks: TaskGroup
    """Where tools run: apart from the turn, so that one can be left behind."""

    def __init__(self, agent: AcmeAgent) -> None:
        self.agent = agent
        self.loop = agent.loop
        self.policies = Policies(agent.loop.ctx, agent)
        self.checkpoints = Checkpoints(agent.loop.sessions, agent.session)
        self.requests = Requests(agent, self.checkpoints)
        self.call_ids = CallIds(agent.session)
        self.prefix: tuple[Message, ...] | None = None

    async def run(self) -> None:
        """Drive until the agent is disposed; being cancelled is one way of that."""
        done, shield = anyio.Event(), anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as self.tasks:
            self.tasks.start_soon(self._drive, shield, done)
            try:
                await done.wait()
            except anyio.get_cancelled_exc_class():
                # one who waits for the end has waited long enough before cancelling
                patience = 0 if self.agent.status == "disposed" else self.loop.config.close_grace_s
                self.agent.halt()
                shield.deadline = anyio.current_time() + patience
                raise

    async def flush(self, turn: int, step: int) -> None:
        """Make the log durable, or report that it is not."""
        self.agent.unflushed = False
        try:
            with self.agent.ending.cancel_scope(self.loop.config.close_grace_s) as scope:
                await self.loop.sessions.flush(self.agent.session)
            if scope.cancelled_caught:
                raise TimeoutError(f"the checkpoint of turn {turn} was given up")
        except Exception as error:
            self.agent.report(error, turn, step)
        except BaseException:
            self.agent.unflushed = True
            raise

    async def _drive(self, shield: anyio.CancelScope, done: anyio.Event) -> None:
        agent = self.agent
        try:
            # a turn is ended by its signal: nothing in one sees this task cancelled, at first
            with shield:
                while agent.status != "disposed":
                    await agent.work()
                    if agent.queued:
                        agent.set_status("running")
                        await self._turn()
                    if agent.unflushed:
                        await self.flush(agent.session.last_turn, 0)
                    if not agent.queued:
                        agent.set_status("idle")
                        agent.news.fire()
        finally:
            if agent.unflushed:
                with anyio.CancelScope(shield=True):
                    await self.flush(agent.session.last_turn, 0)
            done.set()

    async def _turn(self) -> None:
        agent = self.agent
        if agent.status == "disposed":
            return
        # cancelled in this very moment: what is queued now came after that
        agent.stopped = None
        batch = agent.take(agent.queued)
        terminal = await Turn(self, batch).run() if batch else False
        if terminal:
            agent.drop(agent.steering, "the turn was stopped")
        # what came too late for the turn is a prompt of the next one
        agent.queued.extend(agent.steering)
        agent.steering.clear()
