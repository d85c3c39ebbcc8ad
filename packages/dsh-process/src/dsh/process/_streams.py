"""Byte streams over pipe descriptors, on asyncio and trio, without threads."""

from __future__ import annotations

import contextlib
import os

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

__all__ = ["FdReceiveStream", "FdSendStream"]


class _Descriptor:
    """A non-blocking descriptor that is closed once, waking whoever waits on it."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    def _usable(self) -> int:
        if self._fd < 0:
            raise anyio.ClosedResourceError
        return self._fd

    def close(self) -> None:
        """Close at once, without a checkpoint."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(RuntimeError):  # outside of any event loop
                anyio.notify_closing(fd)
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FdReceiveStream(_Descriptor, ByteReceiveStream):
    """What a child writes. Reading past its end raises `anyio.EndOfStream`."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Return at least one byte and at most `max_bytes`.

        Raises:
            anyio.EndOfStream: Every writer has closed its end.
            anyio.ClosedResourceError: This stream was closed.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return self.receive_nowait(max_bytes)
            except anyio.WouldBlock:
                await anyio.wait_readable(self._usable())

    def receive_nowait(self, max_bytes: int = 65536) -> bytes:
        """Return what is there, without waiting.

        Raises:
            anyio.WouldBlock: Nothing is there yet.
            anyio.EndOfStream: Every writer has closed its end.
            anyio.ClosedResourceError: This stream was closed.
        """
        try:
            data = os.read(self._usable(), max_bytes)
        except BlockingIOError:
            raise anyio.WouldBlock from None
        if not data:
            raise anyio.EndOfStream
        return data

    async def aclose(self) -> None:
        """Close the reading end; a child that goes on writing gets SIGPIPE."""
        self.close()
        await anyio.lowlevel.checkpoint()


class FdSendStream(_Descriptor, ByteSendStream):
    """What a child reads."""

    async def send(self, item: bytes) -> None:
        """Write all of `item`, waiting while the child does not read.

        Raises:
            anyio.BrokenResourceError: The child closed its end or is gone.
            anyio.ClosedResourceError: This stream was closed.
        """
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._usable(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._usable())
            except (BrokenPipeError, ConnectionResetError) as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Close the writing end: the child reads end-of-file."""
        self.close()
        await anyio.lowlevel.checkpoint()
