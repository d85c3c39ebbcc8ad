"""A byte stream over a plain socket that can also be reset.

The streams of anyio announce the end of writing before they close, so a client may see an orderly
end where a reset is wanted. This one owns its socket and closes it with a linger time of zero.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

import anyio
from anyio.abc import ByteStream

_RESET: Final = struct.pack("ii", 1, 0)


class SocketStream(ByteStream):
    """One accepted connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Read what has arrived.

        Raises:
            anyio.EndOfStream: The client has closed its side.
            anyio.BrokenResourceError: The connection was lost.
            anyio.ClosedResourceError: The stream was closed here.
        """
        while True:
            self._check()
            try:
                data = self._sock.recv(max_bytes)
            except (BlockingIOError, InterruptedError):
                await anyio.wait_readable(self._sock)
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        """Write all bytes.

        Raises:
            anyio.BrokenResourceError: The connection was lost.
            anyio.ClosedResourceError: The stream was closed here.
        """
        view = memoryview(item)
        while view:
            self._check()
            try:
                view = view[self._sock.send(view) :]
            except (BlockingIOError, InterruptedError):
                await anyio.wait_writable(self._sock)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Announce that nothing more will be written."""
        if not self._closed:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Close in the orderly way; written data still reaches the client."""
        self.close()

    def close(self) -> None:
        """Close in the orderly way, at once."""
        if not self._closed:
            self._closed = True
            anyio.notify_closing(self._sock)
            self._sock.close()

    def reset(self) -> None:
        """Close so that the client sees a reset and never an orderly end."""
        if not self._closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close()

    def _check(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
