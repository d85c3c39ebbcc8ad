"""An agent without a loop, for tests of wheels that need one to scope by."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.agent._agent import Agent
from dsh.agent._receipt import Receipt, ReceiptBook
from dsh.agent._types import AgentOptions, AgentStatus, HookContext, Prompt, blocks_of
from dsh.core import Context, Scope
from dsh.llm import ContentBlock
from dsh.session import (
    APPEND,
    ContextMessage,
    MessageSource,
    Session,
    SessionData,
    SessionEvent,
    UserSource,
)

__all__ = ["Said", "StubAgent", "stub_agent"]


@dataclass(frozen=True, slots=True)
class Said:
    """One driving call a stub took."""

    verb: str
    """`send`, `steer` or `inject`."""
    content: tuple[ContentBlock, ...]
    """What was said."""
    source: MessageSource
    """Who said it."""


class StubAgent(Agent):
    """Takes every verb down in `said` and never runs a turn. `inject` and `record` do append."""

    def __init__(
        self, agent_id: str, session: Session | None = None, options: AgentOptions | None = None
    ) -> None:
        super().__init__(
            agent_id,
            session or Session(f"{agent_id}-session", enclosed=False),
            options or AgentOptions(),
        )
        self.said: list[Said] = []
        """The driving calls, oldest first."""
        self.cancelled: list[str] = []
        """The reasons of the cancels, oldest first."""
        self.mode: AgentStatus = "idle"
        """What `status` says."""
        self._book = ReceiptBook(agent_id, self.session)

    @property
    def status(self) -> AgentStatus:
        """What `mode` was set to."""
        return self.mode

    def send(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Take it down."""
        self._take("send", content, source)
        return self._book.issue()

    def steer(self, content: Prompt, source: MessageSource | None = None) -> Receipt:
        """Take it down."""
        self._take("steer", content, source)
        return self._book.issue()

    def inject(self, content: Prompt, source: MessageSource | None = None) -> None:
        """Take it down and append it."""
        said = self._take("inject", content, source)
        self.session.append(ContextMessage(said.content, said.source), APPEND)

    def inject_context(self, context: HookContext) -> None:
        """Inject what a hook added."""
        self.inject(context.content, context.source)

    def record(self, data: SessionData) -> SessionEvent:
        """Append it."""
        return self.session.append(data)

    def cancel(self, reason: str | None = None) -> None:
        """Take the reason down."""
        self.cancelled.append(reason or "cancelled")

    async def when_idle(self) -> None:
        """Return at once."""

    def _take(self, verb: str, content: Prompt, source: MessageSource | None) -> Said:
        said = Said(verb, blocks_of(content), source or UserSource())
        self.said.append(said)
        return said


def stub_agent(ctx: Context, agent_id: str = "agent") -> tuple[StubAgent, Scope]:
    """Make a stub with a scope of its own under `ctx`.

    Returns:
        The agent, whose `ctx` is the scope's, and the scope, to be disposed by the caller.
    """
    agent = StubAgent(agent_id)
    scope = ctx.scope(agent)
    agent.bind(scope.ctx)
    return agent, scope
