"""As much of HTTP/1.1 as a model client speaks: read a request, frame a response."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import anyio
from anyio.abc import ByteStream

MAX_HEAD: Final = 65536
MAX_BODY: Final = 256 * 1024 * 1024


class BadRequestError(Exception):
    """The bytes of the client are not a request this server understands."""


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One request as it came over the connection."""

    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    """Header names in lower case, in the order of arrival."""
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the last value of a header, None if it was not sent."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None

    @property
    def keep_alive(self) -> bool:
        """Whether the client expects the connection to stay open."""
        tokens = (self.header("connection") or "").lower()
        return self.version != "HTTP/1.0" and "close" not in tokens


class Reader:
    """Buffered reading from a connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def request(self) -> RawRequest | None:
        """Read the next request; None if the client closed the connection before one began.

        Raises:
            BadRequestError: The head or the body is malformed or cut short.
        """
        try:
            head = await self._until(b"\r\n\r\n")
        except anyio.EndOfStream:
            if self._buffer.strip():
                raise BadRequestError("the connection ended inside a request head") from None
            return None
        try:
            method, target, version, headers = _parse_head(head)
            fields = dict(headers)
            if fields.get("expect", "").lower() == "100-continue":
                await self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await self._body(fields)
        except anyio.EndOfStream:
            raise BadRequestError("the connection ended inside a request body") from None
        except ValueError as error:
            raise BadRequestError(str(error)) from None
        return RawRequest(method, target, version, headers, body)

    async def watch(self) -> None:
        """Return when the client closes or loses the connection; keep what it sends meanwhile."""
        while len(self._buffer) <= MAX_BODY:
            try:
                self._buffer += await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def _body(self, fields: dict[str, str]) -> bytes:
        if "chunked" in fields.get("transfer-encoding", "").lower():
            return await self._chunked()
        return await self._exactly(int(fields.get("content-length", "0")))

    async def _chunked(self) -> bytes:
        body = bytearray()
        while size := int((await self._until(b"\r\n")).split(b";")[0], 16):
            body += await self._exactly(size)
            await self._exactly(2)
        while await self._until(b"\r\n"):
            pass
        return bytes(body)

    async def _until(self, mark: bytes) -> bytes:
        start = 0
        while (end := self._buffer.find(mark, start)) < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequestError(f"no {mark!r} in the first {MAX_HEAD} bytes")
            start = max(0, len(self._buffer) - len(mark) + 1)
            self._buffer += await self._stream.receive()
        data = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return data

    async def _exactly(self, count: int) -> bytes:
        if not 0 <= count <= MAX_BODY:
            raise ValueError(f"a body of {count} bytes is not accepted")
        while len(self._buffer) < count:
            self._buffer += await self._stream.receive()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data


def response_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Build the status line and the header lines of a response."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unassigned"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines.extend(f"{name}: {value}" for name, value in headers)
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def http_chunk(data: bytes) -> bytes:
    """Frame bytes in the chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK: Final = b"0\r\n\r\n"
"""The end of a chunked body."""


def _parse_head(
    head: bytes,
) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    first, *lines = head.decode("latin-1").lstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise ValueError(f"not a request line: {first[:80]!r}")
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"not a header line: {line[:80]!r}")
        headers.append((name.strip().lower(), value.strip()))
    return parts[0], parts[1], parts[2], tuple(headers)
