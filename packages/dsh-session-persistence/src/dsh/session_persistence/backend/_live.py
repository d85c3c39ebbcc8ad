"""Live sessions, how far each of them is stored, and when the rest is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count

import anyio

from dsh.session import Session, SessionEvent, SessionHeader
from dsh.session_persistence.backend._summary import SummaryFold

__all__ = ["LiveLog", "WriteBehind"]


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

    __slots__ = ("due", "end", "failing", "fold", "header", "session", "stored", "ticket")

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
        self.failing = False
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


class WriteBehind:
    """Writes sessions when they are due, one after the other.

    Args:
        write: Writes a session; never raises.
    """

    def __init__(self, write: Callable[[LiveLog], Awaitable[None]]) -> None:
        self._write = write
        self._queue: list[tuple[float, int]] = []
        self._waiting: dict[int, LiveLog] = {}
        self._tickets = count()
        self._wake = anyio.Event()

    def schedule(self, live: LiveLog, delay: float) -> None:
        """Have a session written after so many seconds, in place of when it was to be written."""
        self.cancel(live)
        live.due, live.ticket = anyio.current_time() + delay, next(self._tickets)
        self._waiting[live.ticket] = live
        heappush(self._queue, (live.due, live.ticket))
        self._wake.set()

    def schedule_within(self, live: LiveLog, delay: float) -> None:
        """Have a session written after so many seconds, if it is not to be written before."""
        if live.due is None or live.due > anyio.current_time() + delay:
            self.schedule(live, delay)

    def cancel(self, live: LiveLog) -> None:
        """Have a session not written, if it was to be."""
        if live.due is not None:
            del self._waiting[live.ticket]
            live.due = None

    async def run(self) -> None:
        """Write what is due, for ever."""
        while True:
            self._wake = anyio.Event()
            delay = self._delay()
            if delay is None or delay > 0:
                with anyio.move_on_after(delay):
                    await self._wake.wait()
            else:
                await self._write(self._next())

    def _next(self) -> LiveLog:
        _, ticket = heappop(self._queue)
        live = self._waiting[ticket]
        self.cancel(live)
        return live

    def _delay(self) -> float | None:
        """Return the seconds until the next write; None if there is none to come."""
        while self._queue:
            due, ticket = self._queue[0]
            if ticket in self._waiting:
                return due - anyio.current_time()
            heappop(self._queue)  # written meanwhile, or scheduled anew
        return None
