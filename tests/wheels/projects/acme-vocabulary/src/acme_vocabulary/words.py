"""What the wheel adds to the vocabularies: one class for each word."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.llm import ContentBlock
from dsh.session import MessageSource, SessionData, TurnEndReason, TurnTrigger


@dataclass(frozen=True, slots=True)
class Citation(ContentBlock, type="acme/citation"):
    """Where something can be read."""

    source_url: str
    """The address."""
    title: str
    """The headline."""
    alt: str
    """What a reader that knows no citations shows."""


@dataclass(frozen=True, slots=True)
class FeedPolled(SessionData, type="acme-feed/polled"):
    """The feed was looked at."""

    feed_name: str
    """Which feed."""
    fresh_items: int
    """How many items were new."""


@dataclass(frozen=True, slots=True)
class Poll(TurnTrigger, kind="acme-poll"):
    """It was time to look at the feed."""

    feed_name: str
    """Which feed."""


@dataclass(frozen=True, slots=True)
class Quiet(TurnEndReason, kind="acme-quiet"):
    """The feed was read; no model was asked."""

    message: str
    """What came of it, for a person."""


@dataclass(frozen=True, slots=True)
class FeedSource(MessageSource, kind="acme-feed"):
    """The feed says it."""

    feed_name: str
    """Which feed."""
