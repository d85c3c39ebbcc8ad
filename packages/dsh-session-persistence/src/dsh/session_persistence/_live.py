"""Live sessions and how far each of them is stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from dsh.session import Session
from dsh.session_persistence._summary import SummaryFold

__all__ = ["LiveLog", "Slot", "WriteBehind"]


class Slot:
    """What is known in this process about one session id; calls about it take turns."""

    __slots__ = ("__weakref__", "live", "loading", "lock")

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        """Held by whoever works on the stored log of this id."""
        self.live: LiveLog | None = None
        """The live session with this id, or one that is gone and not written to its end."""
        self.loading = False
        """Whether the log is being read and repaired right now."""


class LiveLog:
    """One live session; what is in its log from `stored` on waits to be written.

    The log itself is the buffer: its events never change and never leave, so nothing is copied,
    and a batch that could not be written is simply still there.
    """

    __slots__ = ("armed", "due", "failing", "fold", "gone", "session", "slot", "stored")

    def __init__(self, session: Session, slot: Slot, stored: int, fold: SummaryFold) -> None:
        self.session = session
        self.slot = slot
        self.stored = stored
        """How many events of the log are durable."""
        self.fold = fold
        """The summary of those."""
        self.armed = False
        """Whether a write has been scheduled."""
        self.due = 0.0
        """When it is due, in the event loop's time."""
        self.failing = False
        """Whether the last background write failed, which was reported."""
        self.gone = False
        """Whether the session is no longer live."""

    @property
    def behind(self) -> int:
        """How many events wait."""
        return self.session.seq - self.stored


class WriteBehind:
    """Writes live sessions a fixed while after the first event that waits.

    Args:
        window: Seconds from the first waiting event to the write; later events do not extend it.
        write: Writes a session; never raises.
    """

    def __init__(self, window: float, write: Callable[[LiveLog], Awaitable[None]]) -> None:
        self._window = window
        self._write = write
        self._queue: deque[LiveLog] = deque()  # by due time, since the window is the same for all
        self._wake = anyio.Event()

    def arm(self, live: LiveLog) -> None:
        """Schedule a write, if none is scheduled."""
        if live.armed:
            return
        live.armed = True
        live.due = anyio.current_time() + self._window
        self._queue.append(live)
        self._wake.set()

    def hurry(self, live: LiveLog) -> None:
        """Write as soon as possible."""
        if live.armed:
            self._queue.remove(live)
        live.armed = True
        live.due = anyio.current_time()
        self._queue.appendleft(live)
        self._wake.set()

    async def run(self) -> None:
        """Write what is due, for ever."""
        while True:
            delay = self._queue[0].due - anyio.current_time() if self._queue else None
            if delay is not None and delay <= 0:
                live = self._queue.popleft()
                live.armed = False
                await self._write(live)
                continue
            self._wake = anyio.Event()
            with anyio.move_on_after(delay):
                await self._wake.wait()
