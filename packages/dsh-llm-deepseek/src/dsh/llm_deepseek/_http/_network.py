"""The sockets below the HTTP client: they wait under the limits of the request they serve.

The HTTP library reads through this layer, so limits and cancellation act on the one await that can
take long. Events it has already buffered pass without any scope, timer or trip to the scheduler.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from functools import partial
from typing import Any

import anyio
import httpcore

from dsh.llm_deepseek._limits import Watch


class WatchedBackend(httpcore.AsyncNetworkBackend):
    """Opens the connections of one client."""

    def __init__(
        self, inner: httpcore.AsyncNetworkBackend, tls_layers: int, handshake_s: float
    ) -> None:
        """Wrap `inner`.

        Args:
            inner: Makes the real connections.
            tls_layers: How many TLS layers a finished connection has: one for `https`, one more
                for a proxy that is reached over TLS.
            handshake_s: Longest wait for a byte while a proxy opens the way, in seconds.
        """
        self.watch: Watch | None = None
        """The limits of the request that uses the client now."""
        self.handshake_s = handshake_s
        self.tls_layers = tls_layers
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Open a TCP connection."""
        stream = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return WatchedStream(stream, self, 0)

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts to connect, which this wheel never asks for."""
        await self._inner.sleep(seconds)


class WatchedStream(httpcore.AsyncNetworkStream):
    """One connection."""

    def __init__(
        self, inner: httpcore.AsyncNetworkStream, backend: WatchedBackend, layers: int
    ) -> None:
        self._inner = inner
        self._backend = backend
        self._layers = layers

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read under the limits of the request; `timeout` is theirs to say."""
        backend = self._backend
        if backend.watch is None:
            return await self._inner.read(max_bytes, timeout)
        limit_s = backend.handshake_s if self._layers < backend.tls_layers else 0.0
        try:
            return await backend.watch.read(partial(self._inner.read, max_bytes), limit_s)
        except TimeoutError as error:
            raise httpcore.ReadTimeout("no answer in time") from error
        except anyio.ClosedResourceError as error:
            raise httpcore.ReadError("the read was given up") from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of `buffer`."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Go on inside TLS."""
        try:
            stream = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            # The library forgets the socket when a handshake is cancelled.
            with anyio.CancelScope(shield=True):
                await self._inner.aclose()
            raise
        return WatchedStream(stream, self._backend, self._layers + 1)

    def get_extra_info(self, info: str) -> Any:
        """Return what the HTTP library asks about the connection."""
        return self._inner.get_extra_info(info)
