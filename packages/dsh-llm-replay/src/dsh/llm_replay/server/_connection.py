"""One connection: read requests, pick behaviours, play them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import anyio
from anyio.abc import ByteStream

from dsh.llm_replay.server import _faults
from dsh.llm_replay.server._behaviour import Behaviour, Hold, Send, Stall, Step, Wait
from dsh.llm_replay.server._http import (
    LAST_CHUNK,
    BadRequestError,
    RawRequest,
    Reader,
    http_chunk,
    response_head,
)
from dsh.llm_replay.server._record import Attempt, Outcome
from dsh.llm_replay.server._stream import SocketStream


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server's decision to serve a request."""

    attempt: Attempt
    behaviour: Behaviour


Decide = Callable[[RawRequest, dict[str, Any] | None, int], Awaitable["Accepted | Behaviour"]]
"""Asks the server about a request: its parsed body (None if not JSON) and connection number.

A bare behaviour answers a request that does not consume the script.
"""


class Connection:
    """Serves the requests of one TCP connection, one after the other.

    Args:
        stream: Where bytes are read and written, with TLS on top if the server has it.
        socket: The TCP connection below, for resets.
        number: The number of the connection.
        decide: Called for each request.
    """

    def __init__(
        self, stream: ByteStream, socket: SocketStream, number: int, decide: Decide
    ) -> None:
        self._stream = stream
        self._socket = socket
        self._number = number
        self._decide = decide
        self._reader = Reader(stream)
        self.busy = False

    async def serve(self) -> None:
        """Serve until one side closes."""
        keep = True
        while keep:
            try:
                request = await self._reader.request()
                if request is None:
                    return
                keep = await self._answer(request)
            except BadRequestError as error:
                await self._refuse(str(error))
                return
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return

    async def _answer(self, request: RawRequest) -> bool:
        decision = await self._decide(request, _parse_body(request.body), self._number)
        if isinstance(decision, Behaviour):
            await self._stream.send(_whole(decision, request))
            return request.keep_alive
        attempt = decision.attempt
        self.busy = True
        try:
            outcome = await self._play(decision.behaviour, attempt, request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            outcome = "client-aborted"
        except BaseException:
            # Nothing but the end of the server interrupts a response.
            attempt.finish("server-stopped")
            raise
        self.busy = False
        attempt.finish(outcome)
        return outcome == "completed" and request.keep_alive

    async def _play(self, behaviour: Behaviour, attempt: Attempt, request: RawRequest) -> Outcome:
        player = _Player(self._stream, attempt, chunked=request.version != "HTTP/1.0")
        if behaviour.is_instant:
            await player.play(behaviour, request)
        elif not await self._watched(player, behaviour, request):
            return "client-aborted"
        return self._end(behaviour)

    async def _watched(self, player: _Player, behaviour: Behaviour, request: RawRequest) -> bool:
        """Play while watching for the client to leave; return whether the end was reached."""
        finished = False

        async def watch() -> None:
            await self._reader.watch()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                await player.play(behaviour, request)
                finished = True
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            tasks.cancel_scope.cancel()
        return finished

    def _end(self, behaviour: Behaviour) -> Outcome:
        if behaviour.end == "complete":
            return "completed"
        if behaviour.end == "reset":
            self._socket.reset()
            return "reset"
        return "truncated"

    async def _refuse(self, reason: str) -> None:
        refusal = _faults.http_error(400, reason, request_id=None)
        try:
            await self._stream.send(_whole(refusal, None))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


class _Player:
    """Writes one behaviour and counts what was written."""

    def __init__(self, stream: ByteStream, attempt: Attempt, *, chunked: bool) -> None:
        self._stream = stream
        self._attempt = attempt
        self._chunked = chunked

    async def play(self, behaviour: Behaviour, request: RawRequest) -> None:
        for step in behaviour.before:
            await self._pause(step)
        if not behaviour.status:
            return
        if behaviour.sized and behaviour.end == "complete":
            await self._stream.send(_whole(behaviour, request))
            self._count(len(behaviour.body), sum(_chunks(step) for step in behaviour.steps))
            return
        await self._play_stream(behaviour, request)

    async def _play_stream(self, behaviour: Behaviour, request: RawRequest) -> None:
        framing = ("transfer-encoding", "chunked") if self._chunked else ("connection", "close")
        # The head waits for the first bytes of the body, so that an instant answer is one write.
        pending = response_head(behaviour.status, (*behaviour.headers, framing))
        for step in behaviour.writes:
            if isinstance(step, Send):
                framed = http_chunk(step.data) if self._chunked and step.data else step.data
                await self._stream.send(pending + framed)
                self._count(len(step.data), step.chunks)
                pending = b""
                continue
            if pending:
                await self._stream.send(pending)
                pending = b""
            await self._pause(step)
        if behaviour.end == "complete" and self._chunked:
            pending += LAST_CHUNK
        if pending:
            await self._stream.send(pending)

    def _count(self, size: int, chunks: int) -> None:
        self._attempt.bytes_sent += size
        self._attempt.chunks_sent += chunks

    async def _pause(self, step: Step) -> None:
        match step:
            case Wait(seconds):
                await anyio.sleep(seconds)
            case Hold(gate):
                await gate.pass_through()
            case Stall():
                await anyio.sleep_forever()
            case Send():
                raise AssertionError("sends are written, not waited for")


def _chunks(step: Step) -> int:
    return step.chunks if isinstance(step, Send) else 0


def _whole(behaviour: Behaviour, request: RawRequest | None) -> bytes:
    """Frame a behaviour with a content length, as one piece of bytes."""
    headers = [*behaviour.headers, ("content-length", str(len(behaviour.body)))]
    if request is None or not request.keep_alive:
        headers.append(("connection", "close"))
    return response_head(behaviour.status, headers) + behaviour.body


def _parse_body(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
