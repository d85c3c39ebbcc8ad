"""The agents this loop makes: the verbs, the status, and what interrupts a turn."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from dsh.agent import AgentOptions, AgentStatus, Prompt, Receipt
from dsh.agent.events import AgentError, AgentQueued, AgentStatusChanged
from dsh.agent.loopkit import (
    CallIds,
    Checkpoints,
    DrivenAgent,
    Notes,
    Policies,
    Pulse,
    Requests,
    checked_content,
    checked_prompt,
    checked_source,
    leaf_of,
)
from dsh.agent_loop._driver import drive
from dsh.agent_loop._queues import Queues
from dsh.llm import CancelSignal, Message
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
    from dsh.agent_loop._plugin import AgentLoop

_log: Final = logging.getLogger("dsh.agent_loop")


class TurnInterrupted(Exception):
    """The turn is not to go on; the agent's `cause` says why."""


class LoopAgent(DrivenAgent):
    """An agent driven by one task of the loop that made it.

    Everything here is synchronous except the waits, so it holds no lock. The first cause that
    interrupts a turn is kept and names its end: a cancel, the disposal, or somebody who was given
    the signal of the step and has aborted it.
    """

    def __init__(
        self, loop: AgentLoop, agent_id: str, session: Session, options: AgentOptions
    ) -> None:
        super().__init__(agent_id, session, options)
        self.loop = loop
        self.queues = Queues(self.book)
        self.policies = Policies(loop.ctx, self)
        self.checkpoints = Checkpoints(loop.sessions, session)
        self.requests = Requests(self, self.checkpoints)
        self.call_ids = CallIds(session)
        self.notes = Notes(session, self._enclosed)
        self.prefix: tuple[Message, ...] | None = None
        """The messages in front of the history; None before the first step asks for them."""
        self.cause: Aborted | Disposed | None = None
        """What interrupts the turn under way, or the one about to begin."""
        self.flush_due = False
        """Whether the log holds a turn that no checkpoint has reached."""
        self._status: AgentStatus = "idle"
        self._signal: CancelSignal | None = None
        self._ending = CancelSignal()
        self._unannounced: deque[AgentStatus] = deque()
        self._work = Pulse()
        self._rest = Pulse()

    @property
    def status(self) -> AgentStatus:
        """What the agent is doing."""
        return self._status

    @property
    def disposed(self) -> bool:
        """Whether the end of the agent has begun."""
        return self._status == "disposed"

    # --- verbs ------------------------------------------------------------------------------

    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Queue a prompt."""
        return self._say("send", content, source, steer=False)

    def steer(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Say something to the running turn."""
        return self._say("steer", content, source, steer=True)

    def _say(
        self, verb: str, content: Prompt, source: MessageSource | None, *, steer: bool
    ) -> Receipt:
        self.check(verb)
        blocks, who = checked_prompt(content), checked_source(source)
        steering = steer and self._status == "running"
        receipt = self.queues.add(blocks, who, steer=steering)
        self._work.fire()
        self.loop.ctx.emit(AgentQueued(self, blocks, who, steering))
        return receipt

    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        """Add context to the log without running the model."""
        self.check("inject")
        message = ContextMessage(checked_content(content, "context"), checked_source(source))
        self.notes.inject(message)

    def record(self, data: SessionData) -> SessionEvent:
        """Append a log-only event."""
        self.check("record")
        return self.notes.record(data)

    def cancel(self, reason: str | None = None) -> None:
        """Stop the running turn and empty both queues; arms nothing on an idle, empty agent."""
        if self.disposed:
            return
        self.check("cancel")
        text = reason or "cancelled"
        if self._status == "running" or self.queues.has_prompts or self.queues.has_steering:
            self._interrupt(Aborted(text))
        # before the signal: what its callbacks say came after the cancel
        self.queues.drop(text)
        self._abort_step()

    async def when_idle(self) -> None:
        """Wait until nothing is queued or running; on a disposed agent for the driver's exit."""
        self.refuse_own_wait("becomes idle")
        busy = self._status == "running" or self.queues.has_prompts or self.flush_due
        if busy and not self.disposed:
            await self._rest.wait()
        if self.disposed:
            await self.exited.wait()

    # --- for the loop -----------------------------------------------------------------------

    def halt(self) -> None:
        """Start the end of the agent."""
        if self.disposed:
            return
        self._status = "disposed"
        self._interrupt(Disposed())
        self._ending.abort("disposed")
        self.rest()
        self._abort_step()
        if self.ready:
            self._announce("disposed")

    async def drive(self) -> None:
        """Run turns until the agent is disposed."""
        await drive(self)

    async def wait_for_work(self) -> None:
        """Wait until the driver has something to do; always lets other tasks run once."""
        await anyio.lowlevel.checkpoint()
        while not (
            self.queues.has_prompts or self.flush_due or self.disposed or self.cause is not None
        ):
            await self._work.wait()

    def set_status(self, status: AgentStatus) -> None:
        """Change the status; waiters are released before anybody hears of it."""
        if status == self._status or self.disposed:
            return
        if self._status == "running":
            # first, because whoever hears of it may begin the next turn at once
            self.rest()
        self._status = status
        self._announce(status)

    def _announce(self, status: AgentStatus) -> None:
        """Tell listeners of a status; what one of them changes is told when all have heard this."""
        self._unannounced.append(status)
        if len(self._unannounced) > 1:
            return
        try:
            while self._unannounced:
                self.loop.ctx.emit(AgentStatusChanged(self, self._unannounced[0]))
                self._unannounced.popleft()
        finally:
            self._unannounced.clear()

    def rest(self) -> None:
        """Let everybody go who waits for idleness."""
        self._rest.fire()

    def report(self, turn: int, step: int, error: BaseException) -> None:
        """Emit `agent/error` for a failure."""
        self.loop.ctx.emit(AgentError(self, turn, step, leaf_of(error)))

    async def flush(self, step: int) -> None:
        """Checkpoint the session; a failure is reported, and bounded once disposal has begun."""
        self.flush_due = False
        turn, grace_s = self.session.last_turn, self.loop.config.close_grace_s
        try:
            with self._ending.cancel_scope(grace_s) as scope:
                await self.loop.sessions.flush(self.session)
            if scope.cancelled_caught:
                raise TimeoutError(
                    f"the checkpoint of session {self.session.id!r} did not finish within "
                    f"{grace_s:g} s"
                )
        except Exception as error:  # noqa: BLE001 - nothing can be logged after the turn's end
            _log.warning("agent %s: checkpoint failed: %s", self.id, leaf_of(error))
            self.report(turn, step, error)
        except BaseException:
            self.flush_due = True
            raise

    # --- interruption -----------------------------------------------------------------------

    def arm(self) -> CancelSignal:
        """Make the signal of the step about to begin."""
        signal = self._signal = CancelSignal()
        # first in line, so that whoever the signal interrupts finds the cause
        signal.on_abort(self._signal_fired)
        return signal

    def disarm(self) -> None:
        """Forget the signal of the step that is over."""
        self._signal = None

    def check_interrupted(self) -> None:
        """Look, after a wait, whether the turn may go on.

        Raises:
            TurnInterrupted: It may not.
        """
        if self.cause is not None:
            raise TurnInterrupted

    def _interrupt(self, cause: Aborted | Disposed) -> None:
        if self.cause is None:
            self.cause = cause
        self._work.fire()

    def _abort_step(self) -> None:
        if self._signal is not None:
            cause = self.cause
            self._signal.abort(cause.reason if isinstance(cause, Aborted) else "disposed")

    def _signal_fired(self) -> None:
        signal = self._signal
        if signal is not None and signal.aborted:
            self._interrupt(Aborted(signal.reason or "cancelled"))

    def _enclosed(self, turn: int, objection: Exception | None) -> None:
        """Have the driver checkpoint a turn that was made around one event."""
        self.flush_due = True
        self._work.fire()
        if objection is not None:
            self.report(turn, 0, objection)
