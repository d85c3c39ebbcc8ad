"""When what waits of a live session is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count

import anyio

from dsh.session_persistence.backend._live_log import LiveLog

__all__ = ["WriteBehind"]


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
