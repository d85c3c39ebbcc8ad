"""The plugin: a turn of its own for what the feed brings, and a tool that cites it."""

from __future__ import annotations

from pydantic import Field

from acme_vocabulary.words import Citation, FeedPolled, FeedSource, Poll, Quiet
from dsh.agent import Agent
from dsh.agent.events import AgentSessionStart
from dsh.core import Plugin, PluginConfig, inject, on, settings
from dsh.session import APPEND, ContextMessage, Session, TurnEnd, TurnStart
from dsh.tools import ToolRegistry, tool


class AcmeFeed(Plugin):
    """Tells an agent what is new in a feed, and cites it."""

    name = "acme-feed"

    class Config(PluginConfig):
        """The feed."""

        feed: str = "news"
        """Its name."""
        items: dict[str, str] = Field(default_factory=dict[str, str])
        """What is in it: addresses by headline."""

    config = settings(Config)
    tools = inject(ToolRegistry)

    async def start(self) -> None:
        """Offer the tool."""
        self.tools.register(self.ctx, self.cite)

    @on(AgentSessionStart)
    def begin(self, event: AgentSessionStart) -> None:
        """Look at the feed before the first prompt."""
        self.poll(event.agent)

    def poll(self, agent: Agent) -> bool:
        """Log what is new, in a turn of its own that asks no model.

        Args:
            agent: Whose log it goes into.

        Returns:
            Whether there was time for it: no turn of the loop was open.
        """
        session = agent.session
        if session.turn_open is not None or session.notifying:
            return False
        feed = self.config.feed
        told = _told(session)
        fresh = [item for item in self._citations() if item not in told]
        turn = session.last_turn + 1
        session.append(TurnStart(turn, Poll(feed)))
        session.append(FeedPolled(feed, len(fresh)))
        for item in fresh:
            session.append(ContextMessage((item,), FeedSource(feed)), APPEND)
        session.append(TurnEnd(turn, Quiet(f"{len(fresh)} new in {feed}")))
        return True

    @tool
    async def cite(self, title: str) -> Citation:
        """Cite an item of the feed.

        Args:
            title: Its headline.
        """
        for item in self._citations():
            if item.title == title:
                return item
        raise LookupError(f"{self.config.feed} has no {title!r}")

    def _citations(self) -> list[Citation]:
        return [
            Citation(url, title, f"[{title}]({url})") for title, url in self.config.items.items()
        ]


def _told(session: Session) -> set[Citation]:
    """Return what a log says has been told before."""
    return {
        block
        for event in session.events
        if isinstance(event.data, ContextMessage)
        for block in event.data.content
        if isinstance(block, Citation)
    }
