"""The two time limits, in virtual time over a network of memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import anyio
import httpcore
import pytest
from anyio.abc import ByteStream
from trio.testing import MockClock

from dsh.llm import CancelSignal, LlmError, LlmRequest, Message, StreamChunk, TextBlock, TextDelta
from dsh.llm.testing import collect
from dsh.llm_deepseek import DeepSeekAdapter
from dsh.llm_deepseek._limits import Limits, Watch

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
DONE = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
PING = b": ping\n\n"

Serve = Callable[[ByteStream], Coroutine[Any, Any, None]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    # Trio alone can jump over the waits; the code below the clock is the same on asyncio.
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Pipe(httpcore.AsyncNetworkStream):
    """One end of a connection inside the process."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.closed = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with anyio.move_on_after(timeout) as scope:
            await self._stream.send(buffer)
        if scope.cancelled_caught:
            raise httpcore.WriteTimeout

    async def aclose(self) -> None:
        self.closed = True
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return False if info == "is_readable" else None


class Network(httpcore.AsyncNetworkBackend):
    """Connects to a function that plays the server."""

    def __init__(self, tasks: anyio.abc.TaskGroup, serve: Serve, *, buffer: float = 1000) -> None:
        self._tasks = tasks
        self._serve = serve
        self._buffer = buffer
        self.connect_s = 0.0
        self.pipes: list[Pipe] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Pipe:
        with anyio.move_on_after(timeout) as scope:
            await anyio.sleep(self.connect_s)
        if scope.cancelled_caught:
            raise httpcore.ConnectTimeout
        near, far = memory_pair(self._buffer)
        self._tasks.start_soon(self._serve, far)
        self.pipes.append(Pipe(near))
        return self.pipes[-1]


class Memory(ByteStream):
    """Bytes over two memory channels."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send = send
        self._receive = receive

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._receive.receive()

    async def send(self, item: bytes) -> None:
        await self._send.send(item)

    async def send_eof(self) -> None:
        await self._send.aclose()

    async def aclose(self) -> None:
        await self._send.aclose()
        await self._receive.aclose()


def memory_pair(buffer: float) -> tuple[Memory, Memory]:
    send_a, receive_a = anyio.create_memory_object_stream[bytes](buffer)
    send_b, receive_b = anyio.create_memory_object_stream[bytes](buffer)
    return Memory(send_a, receive_b), Memory(send_b, receive_a)


def request(**fields: Any) -> LlmRequest:
    return LlmRequest("deepseek-flash", (Message("user", (TextBlock("hi"),)),), **fields)


async def play(
    stream: ByteStream, *acts: bytes | float, every: tuple[float, bytes] | None = None
) -> None:
    """Read the request, then send bytes and pause, then repeat `every` until the client is gone."""
    async with stream:
        await stream.receive()
        try:
            for act in acts:
                await (stream.send(act) if isinstance(act, bytes) else anyio.sleep(act))
            while every is not None:
                await anyio.sleep(every[0])
                await stream.send(every[1])
            await anyio.sleep_forever()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


async def ask(
    serve: Serve, *, connect_s: float = 0.0, **config: Any
) -> tuple[str, float, LlmError | None]:
    """Make a request; return the text that arrived, the time it took and the failure."""
    text, took, error = "", 0.0, None
    async with anyio.create_task_group() as tasks:
        network = Network(tasks, serve)
        network.connect_s = connect_s
        adapter = DeepSeekAdapter(
            {"base_url": "http://memory", "api_key": "sk-limits", **config}, network=network
        )
        started = anyio.current_time()
        try:
            async for chunk in adapter.stream(request()):
                text += chunk.text if isinstance(chunk, TextDelta) else ""
        except LlmError as caught:
            error = caught
        took = anyio.current_time() - started
        assert all(pipe.closed for pipe in network.pipes) or error is None
        await adapter.aclose()
        tasks.cancel_scope.cancel()
    return text, took, error


# case: HTTP-12
@pytest.mark.parametrize("acts", [(), (HEAD,), (HEAD, DELTA)])
async def test_silence_ends_with_the_idle_limit(acts: tuple[bytes, ...]) -> None:
    _, took, error = await ask(lambda stream: play(stream, *acts))
    assert error is not None
    assert error.code == "TIMEOUT"
    assert "300 s" in error.message
    assert "idle" in error.message
    assert "idle_timeout_s" in (error.hint or "")
    assert took == pytest.approx(300, abs=1)


# case: HTTP-13
async def test_comments_hold_the_idle_limit_off() -> None:
    acts = [HEAD, *([5.0, PING] * 100), DELTA, DONE]
    text, took, error = await ask(lambda stream: play(stream, *acts), idle_timeout_s=10)
    assert (text, error) == ("x", None)
    assert took >= 500


# case: F-40
async def test_comments_alone_do_not_keep_a_request_alive() -> None:
    text, took, error = await ask(lambda stream: play(stream, HEAD, DELTA, every=(5.0, PING)))
    assert text == "x"
    assert error is not None
    assert error.code == "TIMEOUT"
    assert "600 s" in error.message
    assert "progress" in error.message
    assert "progress_timeout_s" in (error.hint or "")
    assert took == pytest.approx(600, abs=1)


# case: F-40
async def test_the_progress_limit_ends_a_wait_that_is_shorter_than_the_idle_limit() -> None:
    acts = (HEAD, DELTA, 5.0, PING)
    _, took, error = await ask(lambda stream: play(stream, *acts), progress_timeout_s=20)
    assert error is not None
    assert "progress" in error.message
    assert took == pytest.approx(20, abs=1)


async def test_payloads_hold_the_progress_limit_off() -> None:
    acts = [HEAD, *([500.0, DELTA] * 5), DONE]
    text, took, error = await ask(lambda stream: play(stream, *acts), idle_timeout_s=550)
    assert (text, error) == ("xxxxx", None)
    assert took >= 2500


async def test_pieces_of_a_payload_are_no_progress() -> None:
    _, took, error = await ask(
        lambda stream: play(stream, HEAD, b"data: ", every=(5.0, b"x")), progress_timeout_s=60
    )
    assert error is not None
    assert "progress" in error.message
    assert took == pytest.approx(60, abs=5)


# case: HTTP-14
async def test_a_slow_consumer_is_no_slow_provider() -> None:
    acts = [HEAD, *([1.0, DELTA] * 3), DONE]
    async with anyio.create_task_group() as tasks:
        network = Network(tasks, lambda stream: play(stream, *acts))
        adapter = DeepSeekAdapter(
            {"base_url": "http://memory", "api_key": "sk-limits"}, network=network
        )
        chunks: list[StreamChunk] = []
        async for chunk in adapter.stream(request()):
            chunks.append(chunk)
            await anyio.sleep(5000)
        assert sum(isinstance(chunk, TextDelta) for chunk in chunks) == 3
        await adapter.aclose()
        tasks.cancel_scope.cancel()


async def test_a_connection_that_is_never_made() -> None:
    _, took, error = await ask(lambda stream: play(stream), connect_s=1e6)
    assert error is not None
    assert error.code == "TRANSPORT"
    assert "30 s" in error.message
    assert "http://memory" in error.message
    assert "connect_timeout_s" in (error.hint or "")
    assert took == pytest.approx(30, abs=1)


# case: HTTP-16
async def test_an_abort_ends_the_wait_for_a_connection() -> None:
    signal = CancelSignal()
    async with anyio.create_task_group() as tasks:
        network = Network(tasks, lambda stream: play(stream))
        network.connect_s = float("inf")
        adapter = DeepSeekAdapter(
            {"base_url": "http://memory", "api_key": "sk-limits"}, network=network
        )
        started = anyio.current_time()

        async def abort() -> None:
            await anyio.sleep(5)
            signal.abort()

        tasks.start_soon(abort)
        with pytest.raises(LlmError) as caught:
            await collect(adapter.stream(request(signal=signal)))
        assert caught.value.code == "ABORTED"
        assert anyio.current_time() - started == pytest.approx(5, abs=0.1)
        await adapter.aclose()


async def test_a_server_that_takes_no_request() -> None:
    async def deaf(stream: ByteStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        network = Network(tasks, deaf, buffer=0)
        adapter = DeepSeekAdapter(
            {"base_url": "http://memory", "api_key": "sk-limits"}, network=network
        )
        started = anyio.current_time()
        with pytest.raises(LlmError, match="took no byte") as caught:
            await collect(adapter.stream(request()))
        assert caught.value.code == "TIMEOUT"
        assert anyio.current_time() - started == pytest.approx(300, abs=1)
        await adapter.aclose()
        tasks.cancel_scope.cancel()


async def test_an_answer_that_never_closes_costs_no_time() -> None:
    # Complete but for the end of the HTTP body: everything is delivered at once.
    text, took, error = await ask(lambda stream: play(stream, HEAD, DELTA, DONE))
    assert (text, error) == ("x", None)
    assert took < 1


async def test_an_error_body_that_never_ends_is_waited_for_within_the_limits() -> None:
    head = b"HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\n{"
    _, took, error = await ask(lambda stream: play(stream, head))
    assert error is not None
    assert error.code == "SERVER"
    assert took == pytest.approx(300, abs=1)


# case: HTTP-18
async def test_a_limit_that_passed_counts_more_than_an_abort() -> None:
    signal = CancelSignal()
    watch = Watch(Limits(10, 20, 10), signal)

    async def never() -> bytes:
        try:
            await anyio.sleep_forever()
        finally:
            # The limit has passed; the caller gives up in the same moment.
            signal.abort("too late")
        return b""

    with pytest.raises(TimeoutError):
        await watch.read(never)
    assert watch.expired == "idle"
    assert watch.aborted


async def test_an_abort_before_the_limit_is_an_abort() -> None:
    signal = CancelSignal()
    watch = Watch(Limits(10, 20, 10), signal)

    async def never() -> bytes:
        await anyio.sleep(9)
        signal.abort()
        await anyio.sleep_forever()
        return b""

    with pytest.raises(anyio.ClosedResourceError):
        await watch.read(never)
    assert watch.expired is None


async def test_a_watch_that_is_closed_holds_no_signal() -> None:
    signal = CancelSignal()
    watch = Watch(Limits(10, 20, 10), signal)
    watch.close()
    signal.abort()
    assert not watch.aborted


async def test_waiting_counts_towards_progress_across_reads() -> None:
    watch = Watch(Limits(100, 25, 10))

    async def ping() -> bytes:
        await anyio.sleep(10)
        return PING

    await watch.read(ping)
    await watch.read(ping)
    with pytest.raises(TimeoutError):
        await watch.read(ping)
    assert watch.expired == "progress"
    watch.progressed()
    await watch.read(ping)
