"""Signals: the first one asks the run to end in good order, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

import anyio

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")


class Signals:
    """Catches SIGINT, SIGTERM and SIGHUP inside a `with` block.

    The handlers work on any event loop and while a write blocks: they only note the signal and
    make a socket readable. A second signal ends the process on the spot; what it started dies
    with it, because the supervisor of commands notices.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        """The first signal that came, if any."""
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _NAMES:
                number = getattr(signal, name, None)
                # whoever started us with a signal ignored (nohup, a background job) keeps that
                if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    async def wait(self) -> int:
        """Wait for the first signal and return its number."""
        while self.received is None:
            await anyio.wait_readable(self._reader)
        return self.received

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(128 + number)
        self.received = number
        with suppress(OSError):  # full or closed: the reader has been woken already
            self._writer.send(b"\0")
