"""The state of one agent between its handle and its driver."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.lowlevel

from dsh.agent import AgentStatus, Receipt
from dsh.agent.events import AgentError, AgentQueued, AgentStatusChanged
from dsh.agent.loop import CallIds, Checkpoints, DrivenAgent, Notes, Policies, Requests, leaf_of
from dsh.agent_loop._spine import Spine
from dsh.llm import CancelSignal, ContentBlock, Message
from dsh.session import Aborted, Disposed, MessageSource

_log: Final = logging.getLogger("dsh.agent_loop")


@dataclass(frozen=True, slots=True)
class Queued:
    """A prompt or a steering message that waits for its turn."""

    content: tuple[ContentBlock, ...]
    source: MessageSource
    receipt: Receipt | None
    """None for steering that a policy asked for."""


class AgentState:
    """Queues, status, interruption and checkpoint of one agent.

    Everything here is synchronous except the waits, so it holds no lock. The first cause that
    interrupts a turn is kept and names its end: a cancel, or the disposal.
    """

    __slots__ = (
        "agent",
        "book",
        "call_ids",
        "cause",
        "checkpoints",
        "disposed",
        "flush_due",
        "flush_scope",
        "notes",
        "policies",
        "prefix",
        "queued",
        "requests",
        "session",
        "signal",
        "spine",
        "status",
        "steering",
        "waiters",
        "wake",
    )

    def __init__(self, spine: Spine, agent: DrivenAgent) -> None:
        self.spine = spine
        self.agent = agent
        self.session = agent.session
        self.book = agent.book
        self.policies = Policies(spine.ctx, agent)
        self.checkpoints = Checkpoints(spine.sessions, agent.session)
        self.requests = Requests(agent, self.checkpoints)
        self.call_ids = CallIds(agent.session)
        self.notes = Notes(agent.session, self._enclosed)
        self.queued: deque[Queued] = deque()
        self.steering: deque[Queued] = deque()
        self.wake: anyio.Event | None = None
        self.status: AgentStatus = "idle"
        self.disposed = False
        self.cause: Aborted | Disposed | None = None
        self.signal: CancelSignal | None = None
        self.waiters: list[anyio.Event] = []
        self.flush_due = False
        self.flush_scope: anyio.CancelScope | None = None
        self.prefix: tuple[Message, ...] | None = None

    # --- driving ----------------------------------------------------------------------------

    def enqueue(
        self, content: tuple[ContentBlock, ...], source: MessageSource, steer: bool
    ) -> Receipt:
        """Queue a prompt, or a steering message for the running turn."""
        receipt = self.book.issue()
        item = Queued(content, source, receipt)
        steering = steer and self.status == "running"
        if steering:
            self.steering.append(item)
        else:
            self.queued.append(item)
            self.rouse()
        self.spine.ctx.emit(AgentQueued(self.agent, content, source, steering))
        return receipt

    def cancel(self, reason: str | None) -> None:
        """Stop what runs and empty the queues; arms nothing on an idle, empty agent."""
        if self.disposed:
            return
        text = reason or "cancelled"
        busy = self.status == "running" or self.signal is not None
        if self.cause is None and (busy or self.queued or self.steering):
            self.cause = Aborted(text)
            self.rouse()
        self.drop_queued(text)
        self.drop_steering(text)
        if self.signal is not None:
            self.signal.abort(text if self.cause is None else _reason(self.cause))

    def drop_queued(self, why: str) -> None:
        """Empty the prompt queue."""
        self._drop(self.queued, why)

    def drop_steering(self, why: str) -> None:
        """Empty the steering queue."""
        self._drop(self.steering, why)

    def _drop(self, queue: deque[Queued], why: str) -> None:
        receipts = [item.receipt for item in queue if item.receipt is not None]
        queue.clear()
        self.book.drop(receipts, why)

    def take_batch(self) -> list[Queued]:
        """Take every queued prompt that was not withdrawn."""
        self.prune()
        batch = list(self.queued)
        self.queued.clear()
        return batch

    def prune(self) -> None:
        """Leave out what was withdrawn."""
        for queue in (self.queued, self.steering):
            gone = [item for item in queue if item.receipt is not None and item.receipt.settled]
            for item in gone:
                queue.remove(item)
            self.book.drop([item.receipt for item in gone if item.receipt is not None], "")

    def arm(self) -> CancelSignal:
        """Make the signal of the step about to begin."""
        self.signal = CancelSignal()
        return self.signal

    def disarm(self) -> None:
        """Forget the signal of the step that is over."""
        self.signal = None

    def begin_dispose(self) -> None:
        """Start the end of the agent; never raises and may be called again."""
        if self.disposed:
            return
        self.disposed = True
        if self.cause is None:
            self.cause = Disposed()
        self.rouse()
        if self.flush_scope is not None:
            self.flush_scope.deadline = anyio.current_time() + self.spine.config.close_grace_s
        self.release_waiters()
        if self.signal is not None:
            self.signal.abort(_reason(self.cause))
        self.status = "disposed"
        if self.agent.ready:
            self.spine.ctx.emit(AgentStatusChanged(self.agent, "disposed"))

    def rouse(self) -> None:
        """Wake the driver, if it sleeps."""
        if self.wake is not None:
            self.wake.set()
            self.wake = None

    # --- status and waiting -----------------------------------------------------------------

    def set_status(self, status: AgentStatus) -> None:
        """Change the status; waiters are released before anybody hears of it."""
        if status == self.status or self.disposed:
            return
        if self.status == "running":
            self.release_waiters()
        self.status = status
        self.spine.ctx.emit(AgentStatusChanged(self.agent, status))

    def release_waiters(self) -> None:
        """Let everybody go who waits for idleness."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.set()

    @property
    def busy(self) -> bool:
        """Whether there is something to wait for."""
        return self.status == "running" or bool(self.queued) or self.flush_due

    async def when_idle(self) -> None:
        """Wait for idleness; on a disposed agent for the driver's exit."""
        self.agent.refuse_own_wait("becomes idle")
        if not self.disposed and self.busy:
            waiter = anyio.Event()
            self.waiters.append(waiter)
            try:
                await waiter.wait()
            finally:
                if waiter in self.waiters:
                    self.waiters.remove(waiter)
        if self.disposed:
            await self.agent.exited.wait()

    async def wait_for_work(self) -> None:
        """Wait until the driver has something to do; always lets other tasks run once."""
        await anyio.lowlevel.checkpoint()
        while not (self.queued or self.disposed or self.flush_due or self.cause is not None):
            self.wake = anyio.Event()
            await self.wake.wait()

    # --- reporting and checkpoints ----------------------------------------------------------

    def report(self, turn: int, step: int, error: BaseException) -> None:
        """Emit `agent/error` for a failure."""
        self.spine.ctx.emit(AgentError(self.agent, turn, step, leaf_of(error)))

    def _enclosed(self, turn: int, objection: Exception | None) -> None:
        """Have the driver checkpoint a turn that was made around one event."""
        self.flush_due = True
        self.rouse()
        if objection is not None:
            self.report(turn, 0, objection)

    async def flush(self, step: int) -> None:
        """Checkpoint the session; a failure is reported, and bounded once disposal has begun."""
        self.flush_due = False
        turn = self.session.last_turn
        try:
            with anyio.CancelScope() as scope:
                self.flush_scope = scope
                if self.disposed:
                    scope.deadline = anyio.current_time() + self.spine.config.close_grace_s
                await self.spine.sessions.flush(self.session)
            if scope.cancelled_caught:
                raise TimeoutError(
                    f"the checkpoint of session {self.session.id!r} did not finish within "
                    f"{self.spine.config.close_grace_s:g} s"
                )
        except Exception as error:  # noqa: BLE001 - nothing can be logged after the turn's end
            _log.warning("agent %s: checkpoint failed: %s", self.agent.id, leaf_of(error))
            self.report(turn, step, error)
        except BaseException:
            self.flush_due = True
            raise
        finally:
            self.flush_scope = None


def _reason(cause: Aborted | Disposed) -> str | None:
    return cause.reason if isinstance(cause, Aborted) else "disposed"
