"""HTTP clients: one connection each, lent to one request at a time.

A client that many requests share has to look through all of its connections whenever one of them
starts or ends. A client with a single connection costs a few microseconds to make and nothing to
find, so each request takes the one that was used last and puts it back when it has closed its
response. There are as many clients as requests ever ran at the same time.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final, cast

import anyio
import httpcore
import httpx

from dsh.llm import LlmError
from dsh.llm_deepseek._endpoint import Endpoint, tls_context
from dsh.llm_deepseek._http._network import WatchedBackend
from dsh.llm_deepseek._proxy import Proxy
from dsh.llm_deepseek.errors import INVALID_ENDPOINT

KEEPALIVE_S: Final = 30.0
"""How long a connection may rest and still be used again, in seconds."""

SURPLUS_S: Final = 300.0
"""How long a client may rest before it is closed, in seconds."""


class Client:
    """One HTTP client with one connection."""

    __slots__ = ("_transport", "http", "network", "resting_since")

    def __init__(
        self,
        endpoint: Endpoint,
        tls: ssl.SSLContext | None,
        network: httpcore.AsyncNetworkBackend,
        connect_s: float,
    ) -> None:
        self.network = WatchedBackend(network, endpoint.tls_layers, connect_s)
        self._transport = _Transport(endpoint, tls, self.network)
        self.http = httpx.AsyncClient(transport=self._transport, trust_env=False)
        self.resting_since = 0.0

    @property
    def clean(self) -> bool:
        """Whether nothing waits on the connection that would be taken for the next answer."""
        return self._transport.clean


class ClientPool:
    """The free clients of one endpoint, the one used last on top."""

    def __init__(
        self, endpoint: Endpoint, network: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        """Make an empty pool.

        Args:
            endpoint: Where the clients connect to.
            network: Opens the connections, for tests; None for real ones.

        Raises:
            LlmError: Code `INVALID_ENDPOINT`.
        """
        self.endpoint = endpoint
        self.url = _url(endpoint)
        """Where requests are posted, parsed once."""
        self.made = 0
        """How many clients were made so far."""
        self._tls = tls_context(endpoint)
        # One backend for both event loops; the class is a stub only where anyio is missing.
        self._network = network or cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())
        self._free: list[Client] = []
        self._closed = False

    @property
    def free(self) -> int:
        """How many clients are waiting for a request."""
        return len(self._free)

    def take(self, connect_s: float) -> Client:
        """Return a client for one request; it comes back through `give_back` or `discard`.

        Args:
            connect_s: Longest wait for a proxy to open the way, in seconds.
        """
        if self._free:
            client = self._free.pop()
            client.network.handshake_s = connect_s
            return client
        self.made += 1
        return Client(self.endpoint, self._tls, self._network, connect_s)

    async def give_back(self, client: Client) -> None:
        """Take a client back whose response is closed; it is closed if something followed that."""
        client.network.watch = None
        if self._closed or not client.clean:
            await client.http.aclose()
            return
        now = client.resting_since = anyio.current_time()
        self._free.append(client)
        # The bottom one has rested longest; one a time is enough to follow a falling demand.
        if now - self._free[0].resting_since > SURPLUS_S:
            await self._free.pop(0).http.aclose()

    async def discard(self, client: Client) -> None:
        """Close a client whose connection is in an unknown state."""
        client.network.watch = None
        await client.http.aclose()

    async def aclose(self) -> None:
        """Close every free client now and every other one when it comes back."""
        self._closed = True
        while self._free:
            await self._free.pop().http.aclose()


class _Transport(httpx.AsyncBaseTransport):
    """What httpx sends requests through: a connection pool of one connection."""

    def __init__(
        self, endpoint: Endpoint, tls: ssl.SSLContext | None, network: WatchedBackend
    ) -> None:
        proxy = endpoint.proxy
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls if endpoint.over_tls else None,
            proxy=None if proxy is None else _proxy(proxy, tls),
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=KEEPALIVE_S,
            network_backend=network,
        )

    @property
    def clean(self) -> bool:
        return all(map(_is_empty, self._pool.connections))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=cast("Any", response).extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


def _is_empty(connection: object) -> bool:
    """Say whether a connection holds no bytes it has read and not used.

    The library looks for them on the socket only. What came in the same read as the end of an
    answer would become the head of the next one, whoever sent it. No public name leads to them;
    should the private one change, no connection is used again.
    """
    while (inner := getattr(connection, "_connection", None)) is not None:
        connection = inner
    data, _ = getattr(getattr(connection, "_h11_state", None), "trailing_data", (b"?", True))
    return not data


def _url(endpoint: Endpoint) -> httpx.URL:
    try:
        return httpx.URL(endpoint.url)
    except httpx.InvalidURL as error:
        raise LlmError(
            f"{endpoint.base_url} is no URL: {error}",
            code=INVALID_ENDPOINT,
            hint="check base_url",
        ) from error


def _proxy(proxy: Proxy, tls: ssl.SSLContext | None) -> httpcore.Proxy:
    auth = None if proxy.auth is None else (proxy.auth[0].encode(), proxy.auth[1].encode())
    return httpcore.Proxy(proxy.url, auth=auth, ssl_context=tls if proxy.over_tls else None)


class _Body(httpx.AsyncByteStream):
    """The body of a response."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response
        self._stream = cast("AsyncIterable[bytes]", response.stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        await self._response.aclose()
