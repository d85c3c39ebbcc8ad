"""The server: a listening socket, a script and a record of what came in."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

import anyio
from anyio.abc import TaskGroup
from anyio.streams.tls import TLSStream

from dsh.llm_replay.server import _faults
from dsh.llm_replay.server._behaviour import Behaviour
from dsh.llm_replay.server._connection import Accepted, Connection
from dsh.llm_replay.server._gate import Gate, Gates
from dsh.llm_replay.server._http import RawRequest
from dsh.llm_replay.server._record import Attempt, Rejection, WireRequest
from dsh.llm_replay.server._script import Entry, Script, ScriptRunner
from dsh.llm_replay.server._stream import SocketStream

CONTROL: Final = "/__wire__/"


class WireServer:
    """Speaks the chat-completions wire on a local socket, following a script.

    Use it as an async context manager, entered and left in one task; it runs on asyncio and trio.
    Every accepted `POST .../chat/completions` consumes one entry of the script. Requests with a
    wrong method (405), route (404), bearer token (401) or body (400) do not.

    Args:
        script: The entries, or one entry that serves every request.
        host: The address to bind; IPv6 addresses work.
        port: The port, 0 for a free one.
        token: The bearer token requests must carry; None accepts any.
        route: What the path of a request ends in; another one serves adapters of other wires, with
            behaviours whose bytes are written by hand.
        repeat_last: Whether the last entry serves all requests after the end. Otherwise they get
            status 500 with code `MOCK_SCRIPT_EXHAUSTED`.
        seed: Seed of the generator behind random entries.
        ssl_context: Serve TLS with this server context.
        listening: False binds the port but refuses connections until `listen()`.
        control: Serve the routes below `/__wire__/` that other processes use to read the record
            and to open gates.
        gates: The named gates, where a script that was read from a file already refers to some.
        on_finished: Called with each attempt when it has ended.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        route: str = "/chat/completions",
        repeat_last: bool = False,
        seed: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        listening: bool = True,
        control: bool = False,
        gates: Gates | None = None,
        on_finished: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._runner = ScriptRunner(script, repeat_last=repeat_last, seed=seed)
        self._host = host
        self._port = port
        self._token = token
        self._route = route
        self._ssl = ssl_context
        self._start_listening = listening
        self._control = control
        self._on_finished = on_finished
        self._attempts: list[Attempt] = []
        self._rejections: list[Rejection] = []
        self._gates = gates or Gates()
        self._connections: set[tuple[Connection, SocketStream]] = set()
        self._accepted = 0
        self._changed = anyio.Event()
        self._socket: socket.socket | None = None
        self._tasks: TaskGroup | None = None
        self._stack = AsyncExitStack()

    @property
    def host(self) -> str:
        """The bound address."""
        return self._host

    @property
    def port(self) -> int:
        """The bound port; known once the server was entered."""
        return self._port

    @property
    def url(self) -> str:
        """The base URL to give to an adapter, without a trailing slash."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._ssl else 'http'}://{host}:{self._port}"

    @property
    def attempts(self) -> Sequence[Attempt]:
        """Every accepted request, oldest first; entries of running requests still change."""
        return self._attempts

    @property
    def rejections(self) -> Sequence[Rejection]:
        """Every request that did not consume the script."""
        return self._rejections

    @property
    def connections(self) -> int:
        """How many TCP connections were accepted so far."""
        return self._accepted

    @property
    def remaining(self) -> int:
        """Script entries that no request has consumed."""
        return self._runner.remaining

    def append(self, entry: Entry) -> None:
        """Add an entry at the end of the script.

        Raises:
            ScriptError: If it is the name of an unknown behaviour.
        """
        self._runner.append(entry)

    def gate(self, name: str) -> Gate:
        """Return the gate of this name, made on first use; script files name gates this way."""
        return self._gates.get(name)

    async def attempt(self, number: int = 1) -> Attempt:
        """Wait until the request of this number, from 1, was accepted."""
        while len(self._attempts) < number:
            await self._changed.wait()
        return self._attempts[number - 1]

    def assert_consumed(self) -> None:
        """Check that requests have consumed the whole script.

        Raises:
            AssertionError: If entries are left over.
        """
        if self.remaining:
            raise AssertionError(
                f"{self.remaining} script entries were never requested; "
                f"{len(self._attempts)} requests were accepted"
            )

    def listen(self) -> None:
        """Accept connections again after `refuse()` or a start with `listening=False`."""
        if self._tasks is None or self._socket is None:
            raise RuntimeError("enter the server before it can listen")
        self._socket.listen(128)
        self._tasks.start_soon(self._accept, self._socket)

    def refuse(self) -> None:
        """Refuse new connections and drop idle ones; running responses go on.

        The port stays reserved.
        """
        if self._socket is not None:
            _close(self._socket)
            self._socket = self._bind()
        for connection, stream in tuple(self._connections):
            if not connection.busy:
                stream.reset()

    async def __aenter__(self) -> Self:
        self._socket = self._bind()
        try:
            self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
            if self._start_listening:
                self.listen()
        except BaseException:
            _close(self._socket)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._socket is not None:
            _close(self._socket)
            self._socket = None
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        await self._stack.__aexit__(None, None, None)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, self._port))
        except BaseException:
            sock.close()
            raise
        self._port = sock.getsockname()[1]
        return sock

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                await anyio.wait_readable(listener)
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                continue
            except (anyio.ClosedResourceError, OSError, ValueError):
                # The socket was closed by refuse() or by the end of the server.
                if listener.fileno() < 0:
                    return
                await anyio.sleep(0.05)
                continue
            self._accepted += 1
            if self._tasks is not None:
                self._tasks.start_soon(self._serve, SocketStream(sock), self._accepted)

    async def _serve(self, transport: SocketStream, number: int) -> None:
        try:
            stream = await self._secure(transport)
            if stream is not None:
                connection = Connection(stream, transport, number, self._decide)
                entry = (connection, transport)
                self._connections.add(entry)
                try:
                    await connection.serve()
                finally:
                    self._connections.discard(entry)
        finally:
            transport.close()

    async def _secure(self, transport: SocketStream) -> SocketStream | TLSStream | None:
        if self._ssl is None:
            return transport
        try:
            return await TLSStream.wrap(
                transport, server_side=True, ssl_context=self._ssl, standard_compatible=False
            )
        except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            self._rejections.append(Rejection("", "", 0, f"TLS handshake failed: {error}"))
            return None

    async def _decide(
        self, request: RawRequest, body: dict[str, Any] | None, connection: int
    ) -> Accepted | Behaviour:
        if self._control and request.target.startswith(CONTROL):
            return self._command(request)
        refusal = self._refusal(request, body)
        if refusal is not None or body is None:
            status, reason = refusal or (400, "the body is not a JSON object")
            self._rejections.append(Rejection(request.method, request.target, status, reason))
            return _faults.http_error(status, reason, request_id=None)
        number = len(self._attempts) + 1
        wire = WireRequest(number, request.target, dict(request.headers), body)
        scripted, behaviour = self._runner.next(wire)
        attempt = Attempt(
            wire,
            connection,
            scripted,
            behaviour.name,
            behaviour.status,
            anyio.current_time(),
            on_finished=self._on_finished,
        )
        self._attempts.append(attempt)
        self._changed.set()
        self._changed = anyio.Event()
        return Accepted(attempt, behaviour)

    def _refusal(self, request: RawRequest, body: dict[str, Any] | None) -> tuple[int, str] | None:
        path = request.target.partition("?")[0]
        if not path.endswith(self._route):
            return 404, f"no route {path}, only POST ...{self._route} is served"
        if request.method != "POST":
            return 405, f"{request.method} is not allowed, use POST"
        if self._token is not None and request.header("authorization") != f"Bearer {self._token}":
            return 401, "the bearer token is missing or wrong"
        if body is None:
            return 400, "the body is not a JSON object"
        return None

    def _command(self, request: RawRequest) -> Behaviour:
        """Serve a control route: read the record, open a gate."""
        command, _, argument = request.target.removeprefix(CONTROL).partition("/")
        match command:
            case "attempts":
                return _faults.http_json(200, [attempt.as_json() for attempt in self._attempts])
            case "status":
                status = {
                    "attempts": len(self._attempts),
                    "remaining": self.remaining,
                    "connections": self._accepted,
                    "gates": {
                        gate.name: {"reached": gate.was_reached, "open": gate.is_open}
                        for gate in self._gates
                    },
                }
                return _faults.http_json(200, status)
            case "open" if argument and request.method == "POST":
                self.gate(argument).open()
                return _faults.http_json(200, {"open": argument})
            case _:
                return _faults.http_error(404, f"no control route {request.target}")


def _close(sock: socket.socket) -> None:
    if sock.fileno() >= 0:
        anyio.notify_closing(sock)
        sock.close()
