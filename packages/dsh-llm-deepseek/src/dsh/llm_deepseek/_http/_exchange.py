"""One request and its answer: opens it, reads it, closes it, and says what went wrong."""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final, Self

import anyio
import httpcore
import httpx

from dsh.llm import LlmError
from dsh.llm_deepseek import _provider_errors
from dsh.llm_deepseek._call import Call
from dsh.llm_deepseek._http import _transport_errors
from dsh.llm_deepseek._http._clients import Client, ClientPool
from dsh.llm_deepseek._limits import Watch
from dsh.llm_deepseek._provider_errors import ERROR_BODY_BYTES, aborted, facts_of
from dsh.llm_deepseek._wire import EVENT_STREAM

DRAIN_S: Final = 0.1
"""How long the end of a complete answer may take to arrive, in seconds."""

DRAIN_BYTES: Final = 64 * 1024
"""How much may follow a complete answer before its connection is given up."""

CLOSE_S: Final = 5.0
"""Upper bound for closing a connection, in seconds; normally it takes no time."""

_SSE_STARTS: Final = (b"data:", b":", b"event:", b"id:", b"retry:")

_BROKEN: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    OSError,
)
"""What says that a connection is of no use any more."""

_log = logging.getLogger("dsh.llm_deepseek")


class Exchange:
    """One request on one client: sent when the block is entered, closed when it is left."""

    def __init__(self, pool: ClientPool, call: Call, watch: Watch) -> None:
        self.request_id: str | None = None
        """The provider's name for the request, known once the head of the answer is there."""
        self.complete = False
        """Set when all of the answer that matters has been read."""
        self._pool = pool
        self._call = call
        self._watch = watch
        self._client: Client | None = None
        self._response: httpx.Response | None = None
        self._body: AsyncIterator[bytes] | None = None
        self._inflate: Callable[[bytes], bytes] | None = None
        self._exhausted = False

    async def __aenter__(self) -> Self:
        """Send the request and wait for the head of the answer.

        Raises:
            LlmError: `TRANSPORT`, `TIMEOUT` or `ABORTED`.
        """
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._close()

    async def _open(self) -> None:
        client = self._client = self._pool.take(self._call.limits.connect_s)
        client.network.watch = self._watch
        cause: Exception | None = None
        try:
            response = await self._watch.run(lambda: client.http.send(self._request(), stream=True))
        except (*_BROKEN, httpcore.ProxyError, httpx.HTTPError) as error:
            cause = error
        else:
            if response is not None:
                self._response = response
                self.request_id = _provider_errors.request_id(response.headers)
                return
        raise self._failure(cause, opening=True)

    async def accept(self) -> bytes:
        """Return the first bytes of the answer once it is certain that it is a stream of events.

        Raises:
            LlmError: The provider refused the request, or answered with something else.
        """
        response = self._opened()
        if not response.is_success:
            raise _provider_errors.refused(
                response.status_code,
                response.reason_phrase,
                response.headers,
                await self._document(b""),
                self._call.provider,
                self._call.key_name,
            )
        data = await self.read()
        error = await self._objection(response, data)
        if error is None:
            return data
        # What the provider sent may repeat the key; it is not to stay in the frame of the error.
        del data
        raise error

    async def read(self) -> bytes:
        """Return the next bytes of the answer, nothing at its end.

        Raises:
            LlmError: `TRANSPORT`, `TIMEOUT`, `ABORTED` or `MALFORMED_RESPONSE`.
        """
        body = self._body
        if body is None:
            body = self._body = self._start()
        try:
            while True:
                data = await body.__anext__()
                if self._inflate is None:
                    return data
                if plain := self._inflate(data):
                    return plain
        except StopAsyncIteration:
            self._exhausted = True
            return b""
        except zlib.error:
            raise self._malformed("a body that cannot be decompressed") from None
        except _BROKEN as error:
            cause = error
        self._exhausted = True
        raise self._failure(cause, opening=False)

    async def _objection(self, response: httpx.Response, data: bytes) -> LlmError | None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not data or _looks_like_events(data, kind == EVENT_STREAM):
            return None
        body = await self._document(data)
        name = self._call.provider
        return _provider_errors.no_stream(response.status_code, kind, body, name, self.request_id)

    async def _document(self, first: bytes) -> bytes:
        """Return the rest of a short body, cut after `ERROR_BODY_BYTES`; what arrives, counts."""
        parts, size = [first], len(first)
        try:
            while size < ERROR_BODY_BYTES and (data := await self.read()):
                parts.append(data)
                size += len(data)
        except LlmError as error:
            if error.code == LlmError.ABORTED:
                raise
        return b"".join(parts)[:ERROR_BODY_BYTES]

    async def _close(self) -> None:
        """Close the answer and put the client back; the connection is kept if it is clean."""
        client, self._client = self._client, None
        if client is None:
            self._watch.close()
            return
        try:
            if self.complete and not self._exhausted:
                await self._drain()
        finally:
            self._watch.close()
            with anyio.move_on_after(CLOSE_S, shield=True) as scope:
                if await self._hang_up():
                    await self._pool.give_back(client)
                else:
                    await self._pool.discard(client)
            if scope.cancelled_caught:
                _log.warning("closing a connection to %s took too long", self._call.provider)

    async def _drain(self) -> None:
        """Read what follows a complete answer, normally nothing, so that the connection lives."""
        size = 0
        with anyio.move_on_after(DRAIN_S) as scope:
            try:
                while size <= DRAIN_BYTES and (data := await self.read()):
                    size += len(data)
            except LlmError as error:
                _log.debug("after the answer: %s", error)
        self._exhausted = self._exhausted or scope.cancelled_caught

    async def _hang_up(self) -> bool:
        """Close the response; tell whether the client may be used again."""
        if self._response is None:
            # The library may have lost sight of a connection that failed half way.
            return False
        try:
            if self._body is not None and not self._exhausted:
                # The generators below end in order only from their innermost one. What has been
                # buffered passes through them, then the refused read makes them unwind.
                self._watch.refusing = True
                with suppress(httpcore.ReadError):
                    async for _ in self._body:
                        pass
            await self._response.aclose()
        except Exception as error:  # noqa: BLE001 - how the end of a request ended interests nobody
            _log.debug("closing the answer of %s failed: %r", self._call.provider, error)
            return False
        return True

    def _request(self) -> httpx.Request:
        call = self._call
        headers = dict(call.headers)
        if call.key is not None:
            headers["authorization"] = f"Bearer {call.key.get_secret_value()}"
        limits = call.limits
        waits = {"connect": limits.connect_s, "write": limits.idle_s, "pool": limits.connect_s}
        return httpx.Request(
            "POST",
            self._pool.url,
            headers=headers,
            content=call.body,
            extensions={"timeout": {**waits, "read": None}},
        )

    def _opened(self) -> httpx.Response:
        if self._response is None:
            raise RuntimeError("the exchange is not open")
        return self._response

    def _start(self) -> AsyncIterator[bytes]:
        response = self._opened()
        # No compression was asked for; a server that compresses all the same is understood. The
        # library's own decoder cannot be used: when it fails, its generators do not end in order.
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
        elif packed not in ("", "identity"):
            raise self._malformed("a body in an encoding that was not asked for")
        return response.aiter_raw()

    def _malformed(self, what: str) -> LlmError:
        return LlmError(
            f"{self._call.provider} sent {what}",
            code=LlmError.MALFORMED_RESPONSE,
            failure=facts_of(self.request_id),
        )

    def _failure(self, cause: Exception | None, *, opening: bool) -> LlmError:
        """Return the error to raise. A limit that passed counts first, then the caller's wish."""
        call, watch, facts = self._call, self._watch, facts_of(self.request_id)
        if watch.expired is not None or isinstance(cause, httpcore.WriteTimeout):
            error = _transport_errors.silence(call, watch.expired, facts)
        elif watch.aborted or cause is None:
            error = aborted()
        else:
            error = _transport_errors.transport(cause, self._pool.endpoint, call, facts, opening)
        if cause is not None:
            error.__cause__ = _transport_errors.bare(cause)
        return error


def _looks_like_events(data: bytes, declared: bool) -> bool:
    """Tell whether a body begins like a stream of events, whatever its type is.

    Some servers forget the type, others declare it and send an error object.
    """
    head = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if declared:
        return not head.startswith(b"{")
    return any(head.startswith(start) or start.startswith(head) for start in _SSE_STARTS)
