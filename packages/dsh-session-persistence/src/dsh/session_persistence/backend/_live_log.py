"""Live sessions, and how far each of them is stored."""

from __future__ import annotations

from dsh.session import Session, SessionEvent, SessionHeader
from dsh.session_persistence.backend._summary import SummaryFold

__all__ = ["LiveLog"]


class LiveLog:
    """One live session, or one that is gone and not yet written to its end.

    What is in its log from `stored` on waits to be written. The log itself is the buffer: its
    events never change and never leave, so nothing is copied, and a batch that could not be
    written is simply still there.

    Args:
        session: The session.
        header: The header it is stored with.
        stored: How many events of the log are stored already.
        fold: The summary of those.
    """

    __slots__ = ("due", "end", "fold", "header", "session", "stored", "ticket", "write_failed")

    def __init__(
        self, session: Session, header: SessionHeader, stored: int, fold: SummaryFold
    ) -> None:
        self.session = session
        self.header = header
        self.stored = stored
        self.fold = fold
        self.due: float | None = None
        """When it is written, in the event loop's time; None if no write is scheduled."""
        self.ticket = 0
        """Names that write among all that are scheduled."""
        self.write_failed = False
        """Whether the last background write failed, which was reported."""
        self.end: int | None = None
        """Length of the log when the session went; None while it is live."""

    @property
    def gone(self) -> bool:
        """Whether the session is no longer live."""
        return self.end is not None

    def leave(self) -> None:
        """Note that the session is no longer live; what its log gets from now on is not stored."""
        self.end = self.session.seq

    @property
    def behind(self) -> int:
        """How many events wait."""
        return (self.session.seq if self.end is None else self.end) - self.stored

    @property
    def waiting(self) -> tuple[SessionEvent, ...]:
        """The events that wait."""
        return self.session.events[self.stored : self.end]
