"""The handle: two queues, a status, and what may be said when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acme_loop.driver import Driver
from dsh.agent import AgentOptions, AgentStatus, HookContext, Prompt, Receipt
from dsh.agent.events import AgentError, AgentQueued, AgentStatusChanged
from dsh.agent.loopkit import (
    DrivenAgent,
    Notes,
    Pulse,
    checked_content,
    checked_prompt,
    checked_source,
    leaf_of,
)
from dsh.llm import CancelSignal, ContentBlock
from dsh.session import (
    Aborted,
    ContextMessage,
    Disposed,
    MessageSource,
    Session,
    SessionData,
    SessionEvent,
)

if TYPE_CHECKING:
    from acme_loop.plugin import AcmeLoop


@dataclass(frozen=True, slots=True)
class Said:
    """Something that waits to be taken in."""

    content: tuple[ContentBlock, ...]
    source: MessageSource
    receipt: Receipt


class AcmeAgent(DrivenAgent):
    """An agent of this loop. The driver works off what its verbs leave here."""

    def __init__(
        self, loop: AcmeLoop, agent_id: str, session: Session, options: AgentOptions
    ) -> None:
        super().__init__(agent_id, session, options)
        self.loop = loop
        self.notes = Notes(session, self._enclosed)
        self.queued: deque[Said] = deque()
        self.steering: deque[Said] = deque()
        self.signal: CancelSignal | None = None
        """The signal of the turn under way."""
        self.stopped: Aborted | Disposed | None = None
        """Who stopped the turn under way, or the one about to begin."""
        self.unflushed = False
        self.ending = CancelSignal()
        self._status: AgentStatus = "idle"
        self.news = Pulse()
        """Wakes the driver, and whoever waits for idleness."""

    @property
    def status(self) -> AgentStatus:
        return self._status

    # --- verbs ----------------------------------------------------------------------------

    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        self.check("send")
        return self._queue(self.queued, content, source)

    def steer(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        self.check("steer")
        queue = self.steering if self._status == "running" else self.queued
        return self._queue(queue, content, source)

    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        self.check("inject")
        self.notes.inject(
            ContextMessage(checked_content(content, "context"), checked_source(source))
        )

    def record(self, data: SessionData) -> SessionEvent:
        self.check("record")
        return self.notes.record(data)

    def cancel(self, reason: str | None = None) -> None:
        if self._status == "disposed":
            return
        self.check("cancel")
        self._stop(Aborted(reason or "cancelled"))
        self.drop(self.queued, reason or "cancelled")
        self.drop(self.steering, reason or "cancelled")
        self.news.fire()

    async def when_idle(self) -> None:
        self.refuse_own_wait("becomes idle")
        while self._status != "disposed" and self._busy:
            await self.news.wait()
        if self._status == "disposed":
            await self.exited.wait()

    # --- for the loop ---------------------------------------------------------------------

    def halt(self) -> None:
        self._stop(Disposed())
        self.set_status("disposed")
        self.ending.abort("disposed")

    async def drive(self) -> None:
        await Driver(self).run()

    def take(self, queue: deque[Said]) -> list[Said]:
        """Empty a queue and return what was not withdrawn."""
        taken = [said for said in queue if not said.receipt.settled]
        self.book.drop([said.receipt for said in queue if said.receipt.settled], "withdrawn")
        queue.clear()
        return taken

    def drop(self, queue: deque[Said], reason: str) -> None:
        """Empty a queue that nobody will take in."""
        self.book.drop([said.receipt for said in queue], reason)
        queue.clear()

    def steer_inside(self, reason: HookContext) -> None:
        """Steer on behalf of a policy of the turn itself; nobody follows it."""
        self.steering.append(Said(reason.content, reason.source, self.book.issue()))

    def set_status(self, status: AgentStatus) -> None:
        """Change the status and tell everybody, waiters first."""
        if self._status not in (status, "disposed"):
            self._status = status
            self.news.fire()
            if self.ready:
                self.loop.ctx.emit(AgentStatusChanged(self, status))

    def report(self, error: BaseException, turn: int, step: int) -> None:
        """Tell everybody about a failure."""
        self.loop.ctx.emit(AgentError(self, turn, step, leaf_of(error)))

    async def work(self) -> None:
        """Wait until there is something for the driver to do."""
        while not (self.queued or self.unflushed or self._status == "disposed"):
            await self.news.wait()

    @property
    def _busy(self) -> bool:
        waiting = any(not said.receipt.settled for said in self.queued)
        return self._status == "running" or self.unflushed or waiting

    def _stop(self, why: Aborted | Disposed) -> None:
        """Stop the turn under way; the first one who asks says why."""
        if self._status == "running" and self.stopped is None:
            self.stopped = why
            if self.signal is not None:
                self.signal.abort(why.reason if isinstance(why, Aborted) else "disposed")

    def _queue(self, queue: deque[Said], content: Prompt, source: MessageSource | None) -> Receipt:
        blocks, who = checked_prompt(content), checked_source(source)
        said = Said(blocks, who, self.book.issue())
        queue.append(said)
        self.news.fire()
        self.loop.ctx.emit(AgentQueued(self, blocks, who, queue is self.steering))
        return said.receipt

    def _enclosed(self, turn: int, objection: Exception | None) -> None:
        self.unflushed = True
        self.news.fire()
        if objection is not None:
            self.report(objection, turn, 0)
