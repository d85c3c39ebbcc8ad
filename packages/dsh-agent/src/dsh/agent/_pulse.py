"""A wake-up that costs nothing while nobody waits."""

from __future__ import annotations

import anyio


class Pulse:
    """Wakes whoever waits at the moment it fires; firing without a waiter does nothing."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def fire(self) -> None:
        """Wake the waiters of this moment."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next `fire`."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
