"""The harness's end of a command's control socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, cast

import anyio

__all__ = ["Channel"]


class Channel:
    """JSON lines to and from one monitor. Closing it makes the monitor kill its command."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._buffer = b""

    async def send(self, message: Mapping[str, object]) -> None:
        """Send a message of any size; one that cannot be delivered shows as EOF in `read`."""
        rest = memoryview(_encode(message))
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._sock)
            except OSError:
                return

    def send_now(self, message: Mapping[str, object]) -> None:
        """Send a short message without waiting; a stuck monitor is given up instead."""
        try:
            self._sock.send(_encode(message))
        except OSError:
            self.give_up()

    def give_up(self) -> None:
        """Tell the monitor, by EOF, that nobody cares for its command any more."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return

    async def read(self) -> Mapping[str, Any] | None:
        """Return the next message, or None at the end."""
        while b"\n" not in self._buffer:
            try:
                data = self._sock.recv(65536)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
                continue
            except OSError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast("Mapping[str, Any]", json.loads(line))

    def close(self) -> None:
        """Close the socket; safe to call twice. Nobody may be waiting in `read`."""
        self._sock.close()


def _encode(message: Mapping[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"
