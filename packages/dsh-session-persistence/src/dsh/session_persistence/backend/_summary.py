"""What a listing tells about a session, kept up as its log grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsh.llm import ContentBlock, TextBlock
from dsh.session import AssistantChunk, SessionEvent, TurnEnd, TurnStart, UserMessage
from dsh.session_persistence._types import SessionSummary

__all__ = ["SummaryFold", "summarize"]

TITLE_CHARS: Final = 120
"""A title made from a prompt is cut after so many characters."""


class SummaryFold:
    """Makes a summary from a log, event by event.

    Args:
        summary: What is known of the events before; nothing for an empty log.
    """

    __slots__ = ("_ended", "_events", "_title", "_turns", "_updated_at")

    def __init__(self, summary: SessionSummary | None = None) -> None:
        before = summary or SessionSummary()
        self._title = before.title
        self._turns = before.turns
        self._events = before.events
        self._updated_at = before.updated_at
        self._ended = before.ended

    def add(self, events: Iterable[SessionEvent]) -> None:
        """Take in the next events of the log."""
        for event in events:
            self._events += 1
            self._updated_at = event.time
            if type(event.data) is AssistantChunk:
                continue  # most events are, and they tell nothing more
            match event.data:
                case TurnStart():
                    self._turns += 1
                    self._ended = None
                case TurnEnd(reason=reason):
                    self._ended = reason.kind
                case UserMessage(content=content) if self._title is None:
                    self._title = _title(content)
                case _:
                    pass

    @property
    def summary(self) -> SessionSummary:
        """What the events so far come to."""
        return SessionSummary(self._title, self._turns, self._events, self._updated_at, self._ended)


def summarize(events: Iterable[SessionEvent]) -> SessionSummary:
    """Return the summary of a whole log."""
    fold = SummaryFold()
    fold.add(events)
    return fold.summary


def _title(content: Iterable[ContentBlock]) -> str | None:
    for block in content:
        if isinstance(block, TextBlock):
            for line in block.text.splitlines():
                # a title is shown in terminals, where control characters would act
                words = " ".join("".join(c if _shows(c) else " " for c in line).split())
                if words:
                    return words if len(words) <= TITLE_CHARS else words[: TITLE_CHARS - 1] + "…"
    return None


def _shows(character: str) -> bool:
    return character.isprintable() or character == "\u200d"  # which joins emoji
