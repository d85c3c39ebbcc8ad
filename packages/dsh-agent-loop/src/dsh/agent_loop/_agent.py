"""The agents this loop makes."""

from __future__ import annotations

from weakref import WeakSet

from dsh.agent import Agent, AgentFault, AgentOptions, AgentStatus, Prompt, Receipt
from dsh.agent_loop._notes import Notes
from dsh.agent_loop._prompt import checked_content, checked_source
from dsh.agent_loop._spine import Spine
from dsh.agent_loop._state import AgentState
from dsh.session import (
    ContextMessage,
    MessageSource,
    Session,
    SessionData,
    SessionEvent,
    freeze,
)

_claimed: WeakSet[Session] = WeakSet()


class LoopAgent(Agent):
    """An agent driven by one task of the loop that made it."""

    def __init__(
        self, spine: Spine, agent_id: str, session: Session, options: AgentOptions
    ) -> None:
        if session in _claimed:
            raise AgentFault(
                f"session {session.id!r} already has a driver",
                code=AgentFault.SESSION_CLAIMED,
                hint="fork the session, or resume it after its agent is gone",
            )
        super().__init__(agent_id, session, options)
        self.state = AgentState(spine, self)
        self.notes = Notes(self.state)
        _claimed.add(session)

    @property
    def status(self) -> AgentStatus:
        """What the agent is doing."""
        return self.state.status

    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Queue a prompt."""
        return self._say("send", content, source, steer=False)

    def steer(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Say something to the running turn."""
        return self._say("steer", content, source, steer=True)

    def _say(
        self, verb: str, content: Prompt, source: MessageSource | None, *, steer: bool
    ) -> Receipt:
        self.state.check(verb)
        return self.state.enqueue(checked_content(content, "prompt"), checked_source(source), steer)

    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        """Add context to the log without running the model."""
        self.state.check("inject")
        message = ContextMessage(checked_content(content, "context"), checked_source(source))
        self.notes.inject(message)

    def record(self, data: SessionData) -> SessionEvent:
        """Append a log-only event."""
        self.state.check("record")
        if data.surface_eligible:
            raise AgentFault(
                f"{data.event_type} is no log-only event",
                code=AgentFault.BAD_CONTENT,
                hint="use send(), steer() or inject() for what the model shall see",
            )
        return self.notes.record(freeze(data, where=data.event_type))

    def cancel(self, reason: str | None = None) -> None:
        """Stop the running turn and empty both queues."""
        if not self.state.disposed:
            self.state.check("cancel")
        self.state.cancel(reason)

    async def when_idle(self) -> None:
        """Wait until nothing is queued or running."""
        await self.state.when_idle()
