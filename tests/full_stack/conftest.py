"""The real stack: an app from a deployment, HTTP to a strict local server, real commands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream

from dsh.agent import Agent, AgentHandle, AgentOptions, AgentRegistry, CreateAgent
from dsh.core import Failure, PluginLike
from dsh.invariants import Invariants
from dsh.llm import LlmRequest
from dsh.llm_deepseek import DeepSeekAdapter
from dsh.llm_replay import server as wire
from dsh.loader import LoadedApp, open_app
from dsh.process.testing import descendants, eventually
from dsh.session import Session, SessionEvent, rebuild_request, request_steps
from dsh.session.testing import assert_balanced, reloaded
from dsh.tools import Tool

Script = Sequence[wire.Behaviour] | Callable[[wire.WireRequest], wire.Behaviour]

KEY = "sk-full-stack-0123456789"
MODEL = "deepseek/deepseek-flash"
GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class Tap:
    """Stands between client and server, and keeps the bytes of each request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.bodies: list[bytes] = []
        """The bodies of the requests, in order of arrival."""
        self.open = 0
        """Connections that are open now."""
        self.accepted = 0
        """Connections that were ever opened."""
        self.url = ""

    async def serve(self, listener: Listener[SocketStream]) -> None:
        await listener.serve(self._connection)

    async def _connection(self, client: ByteStream) -> None:
        self.open += 1
        self.accepted += 1
        try:
            async with client, await anyio.connect_tcp("127.0.0.1", self._port) as server:
                await self._relay(client, server)
        except* GONE:
            pass
        finally:
            self.open -= 1

    async def _relay(self, client: ByteStream, server: ByteStream) -> None:
        async def pump(source: ByteStream, sink: ByteStream, reader: Bodies | None) -> None:
            with suppress(*GONE):
                async for data in source:
                    if reader is not None:
                        reader.feed(data)
                    await sink.send(data)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump, client, server, Bodies(self.bodies))
            tasks.start_soon(pump, server, client, None)


class Bodies:
    """Cuts the bytes of a connection into request bodies."""

    def __init__(self, found: list[bytes]) -> None:
        self._found = found
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while True:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
            if not end or length is None or len(rest) < int(length[1]):
                return
            self._found.append(rest[: int(length[1])])
            self._buffer = rest[int(length[1]) :]


class Strict:
    """Answers as scripted, and refuses what a provider that checks everything would refuse."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._next = 0
        self.refusals: list[str] = []

    def __call__(self, request: wire.WireRequest) -> wire.Behaviour:
        for problem in problems_in(request.body):
            self.refusals.append(f"request {request.number}: {problem}")
            return wire.http_error(400, problem)
        if callable(self._script):
            return self._script(request)
        if self._next >= len(self._script):
            return wire.http_error(500, "the script is at its end")
        self._next += 1
        return self._script[self._next - 1]


def problems_in(body: Any) -> Iterable[str]:
    """Yield what is wrong with a request."""
    if b"null" in re.sub(rb'"(\\.|[^"\\])*"', b"", json.dumps(body).encode()):
        yield "something is null"
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    if len(names) != len(set(names)):
        yield f"tools are offered twice: {names}"
    used: set[str] = set()
    waiting: list[str] = []
    for number, message in enumerate(body["messages"]):
        where = f"message {number} ({message['role']})"
        if not isinstance(message.get("content"), str):
            yield f"{where} has no text"
        if message["role"] == "tool" and message["tool_call_id"] in waiting:
            waiting.remove(message["tool_call_id"])
        elif message["role"] == "tool":
            yield f"{where} answers {message['tool_call_id']!r}, which waits for nothing"
        elif waiting:
            yield f"{where} stands between calls and results: {waiting}"
        for call in message.get("tool_calls", []):
            yield from (f"{where} {problem}" for problem in problems_of_call(call, used))
            used.add(call["id"])
            waiting.append(call["id"])
    if waiting:
        yield f"calls have no results: {waiting}"


def problems_of_call(call: Any, used: set[str]) -> Iterable[str]:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if not call["id"] or call["id"] in used:
        yield f"has a call id that is empty or used: {call['id']!r}"
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        yield f"calls {name!r}"
    if not isinstance(arguments, str):
        yield "has arguments that are no text"


class Stack:
    """One app, its server, and what went over the wire."""

    def __init__(
        self, app: LoadedApp, server: wire.WireServer, tap: Tap, strict: Strict, folder: Path
    ) -> None:
        self.app = app
        self.server = server
        self.tap = tap
        self.refusals = strict.refusals
        self.folder = folder
        self.failures: list[Failure] = []
        app.on_error(app.ctx, self.failures.append)

    def agent(
        self, *, cwd: Path | None = None, tools: Iterable[Tool] = ()
    ) -> AbstractAsyncContextManager[Agent]:
        """Make an agent that works in the folder of the test, or in another."""
        return self.app.agent(cwd=cwd or self.folder, tools=tools)

    async def handle(self, seed: Iterable[SessionEvent] = ()) -> AgentHandle:
        """Make an agent that can be disposed from anywhere, on a log of another if given."""
        options = AgentOptions(model=MODEL)
        create = CreateAgent(cwd=str(self.folder), options=options, seed=tuple(seed))
        return await self.app[AgentRegistry].create(self.app.ctx, create)

    def messages(self, number: int) -> list[dict[str, Any]]:
        """Return the messages of a request, from 1."""
        return self.server.attempts[number - 1].request.messages

    def check_log(self, session: Session) -> None:
        """Fail unless a log is whole, also when it is read back from its JSON form."""
        assert_balanced(session.events)
        again = reloaded(session)
        assert again.derive_messages() == session.derive_messages()
        assert again.request_header() == session.request_header()

    async def check_requests(self, *sessions: Session, exact: bool = True) -> None:
        """Fail unless the logs say, byte for byte, what was sent.

        Args:
            sessions: The sessions of all agents that made requests.
            exact: False lets the logs have steps that ended before their request was made.
        """
        told = [request for session in sessions for request in requests_of(reloaded(session))]
        left = await bytes_of(told)
        for number, body in enumerate(self.tap.bodies, 1):
            assert body in left, f"no log tells of request {number}: {body!r}"
            left.remove(body)
        assert not exact or left == []

    def check_prefixes(self, bodies: Sequence[bytes]) -> None:
        """Fail unless each request says what the one before said, byte for byte, and then more."""
        cut = [cut_at_messages(body) for body in bodies]
        for before, after in pairwise(cut):
            assert after[0] == before[0]
            assert after[1].startswith(before[1].removesuffix(b"]") + b","), (before[1], after[1])
            assert after[2] == before[2]

    async def commands_are_gone(self) -> None:
        """Wait until no process of a command is left; the helper they share stays."""

        def running() -> list[int]:
            return [pid for pid in descendants(os.getpid()) if not is_helper(pid)]

        await eventually(lambda: not running())


def cut_at_messages(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Cut a body into what stands before its messages, the messages, and what follows."""
    text = body.decode()
    start = text.index('"messages":') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[:start].encode(), text[start:end].encode(), text[end:].encode()


def is_helper(pid: int) -> bool:
    """Whether a process belongs to the machinery that starts commands, or has just ended."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True
    return not line or b"dsh.process._helper._root" in line


def requests_of(session: Session) -> list[LlmRequest]:
    """Rebuild the request of every step of a session from its log alone, as an adapter gets it."""
    made = [rebuild_request(session.events, *place) for place in request_steps(session.events)]
    return [replace(request, model=request.model.partition("/")[2]) for request in made]


async def bytes_of(requests: Iterable[LlmRequest]) -> list[bytes]:
    """Return what an adapter that knows nothing else sends for these requests."""
    async with wire.WireServer(wire.success("x")) as server, tapped(server.port) as tap:
        adapter = DeepSeekAdapter({"base_url": tap.url, "api_key": "sk-other"})
        for request in requests:
            async with aclosing(adapter.stream(request)) as chunks:
                async for _ in chunks:
                    pass
        await adapter.aclose()
    return tap.bodies


@asynccontextmanager
async def tapped(port: int) -> AsyncGenerator[Tap, None]:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tap = Tap(port)
        tap.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.start_soon(tap.serve, listener)
        yield tap
        await eventually(lambda: tap.open == 0)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def opened(
    script: Script, folder: Path, plugins: Iterable[PluginLike], settings: dict[str, Any]
) -> AsyncGenerator[Stack, None]:
    strict = Strict(script)
    async with wire.WireServer(strict, token=KEY) as server, tapped(server.port) as tap:
        adapter = {"base_url": tap.url, "api_key": KEY, **settings.pop("adapter", {})}
        deployment = {
            "model": MODEL,
            "agent": {"invariants": {"level": "full"}, "persona": "You are tested."},
            "plugins": [{"use": "llm-deepseek", "config": adapter}, "tool-bash"],
            **settings,
        }
        async with open_app(deployment, plugins=plugins) as app:
            stack = Stack(app, server, tap, strict, folder)
            yield stack
            assert app[Invariants].violations == ()
        assert stack.refusals == []
        assert list(server.rejections) == []
        assert stack.failures == []
        assert descendants(os.getpid()) == []


@pytest.fixture
def open_stack(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Stack]]:
    """Return a function that runs the stack on a script, for the duration of a block.

    Leaving the block fails if the server refused a request, an invariant was broken, a plugin
    raised unnoticed, or a process or connection is left.
    """

    def make(
        script: Script, *, plugins: Iterable[PluginLike] = (), **settings: Any
    ) -> AbstractAsyncContextManager[Stack]:
        return opened(script, tmp_path, plugins, settings)

    return make


@pytest.fixture
def problems_of() -> Callable[[Any], Iterable[str]]:
    """Return the function that says what the strict server has against a request."""
    return problems_in
