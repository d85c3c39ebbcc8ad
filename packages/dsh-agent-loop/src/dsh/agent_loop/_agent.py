"""The agents this loop makes."""

from __future__ import annotations

from dsh.agent import AgentOptions, AgentStatus, Prompt, Receipt
from dsh.agent.loop import DrivenAgent, checked_content, checked_source
from dsh.agent_loop._driver import drive
from dsh.agent_loop._spine import Spine
from dsh.agent_loop._state import AgentState
from dsh.session import ContextMessage, MessageSource, Session, SessionData, SessionEvent


class LoopAgent(DrivenAgent):
    """An agent driven by one task of the loop that made it."""

    def __init__(
        self, spine: Spine, agent_id: str, session: Session, options: AgentOptions
    ) -> None:
        super().__init__(agent_id, session, options)
        self.state = AgentState(spine, self)

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
        self.check(verb)
        return self.state.enqueue(checked_content(content, "prompt"), checked_source(source), steer)

    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        """Add context to the log without running the model."""
        self.check("inject")
        message = ContextMessage(checked_content(content, "context"), checked_source(source))
        self.state.notes.inject(message)

    def record(self, data: SessionData) -> SessionEvent:
        """Append a log-only event."""
        self.check("record")
        return self.state.notes.record(data)

    def cancel(self, reason: str | None = None) -> None:
        """Stop the running turn and empty both queues."""
        if not self.state.disposed:
            self.check("cancel")
        self.state.cancel(reason)

    async def when_idle(self) -> None:
        """Wait until nothing is queued or running."""
        await self.state.when_idle()

    def halt(self) -> None:
        """Start the end of the agent."""
        self.state.begin_dispose()

    async def drive(self) -> None:
        """Run turns until the agent is disposed."""
        await drive(self.state)
