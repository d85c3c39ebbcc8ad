"""Ending a request early: the signal, a consumer that leaves, a task that is cancelled."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest

from dsh.core import App
from dsh.llm import (
    CancelSignal,
    Finish,
    LlmError,
    LlmRequest,
    LlmService,
    Message,
    StreamChunk,
    TextBlock,
    TextDelta,
)
from dsh.llm.testing import collect
from dsh.llm_deepseek import DeepSeekAdapter, DeepSeekPlugin
from dsh.llm_deepseek._http._clients import SURPLUS_S, ClientPool
from dsh.llm_replay import server as wire
from dsh.llm_replay.server import Behaviour, Gate, Send, Stall, WireServer


def request(signal: CancelSignal | None = None) -> LlmRequest:
    return LlmRequest("deepseek-flash", (Message("user", (TextBlock("hi"),)),), signal=signal)


def adapter_for(base_url: str, **config: Any) -> DeepSeekAdapter:
    return DeepSeekAdapter({"base_url": base_url, "api_key": "sk-abort-test", **config})


def pool_of(adapter: DeepSeekAdapter) -> ClientPool:
    pool = adapter._pool  # pyright: ignore[reportPrivateUsage]
    assert pool is not None
    return pool


async def read_all(
    adapter: DeepSeekAdapter, signal: CancelSignal, started: anyio.Event | None = None
) -> None:
    """Read an answer; `started` is set with its first text."""
    async with aclosing(adapter.stream(request(signal))) as stream:
        async for chunk in stream:
            if started is not None and isinstance(chunk, TextDelta):
                started.set()


# case: HTTP-15
async def test_a_request_that_is_aborted_already_touches_no_network() -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server.url)
        signal = CancelSignal()
        signal.abort("changed my mind")
        with pytest.raises(LlmError) as caught:
            await collect(adapter.stream(request(signal)))
        assert caught.value.code == "ABORTED"
        assert server.connections == 0
        assert server.remaining == 1


# case: HTTP-15
async def test_through_the_service_an_abort_is_a_finish() -> None:
    async with WireServer([wire.stall(chunks=2)]) as server, App() as app:
        await app.mount(LlmService).settled()
        config = {"base_url": server.url, "api_key": "sk-abort-test"}
        await app.mount(DeepSeekPlugin, config).settled()
        aborted, running = CancelSignal(), CancelSignal()
        aborted.abort()
        for signal in (aborted, running):
            chunks: list[StreamChunk] = []
            async with aclosing(app[LlmService].stream(request(signal))) as stream:
                async for chunk in stream:
                    chunks.append(chunk)
                    if isinstance(chunk, TextDelta):
                        running.abort()
            last = chunks[-1]
            assert isinstance(last, Finish)
            assert (last.reason.kind, last.reason.code) == ("aborted", "ABORTED")
        assert await server.attempts[0].finished() == "client-aborted"


# case: HTTP-16
@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour("silent", before=(Stall(),)),
        wire.stall(chunks=0),
        wire.stall(chunks=3),
        Behaviour("half", (Send(b"data: {"), Stall())),
        Behaviour("error", (Send(b"{"), Stall()), status=500),
    ],
    ids=lambda value: value.name,
)
async def test_an_abort_ends_the_wait_at_once(behaviour: Behaviour) -> None:
    async with WireServer([behaviour, wire.success()]) as server:
        adapter = adapter_for(server.url)
        signal = CancelSignal()

        async def abort() -> None:
            await server.attempt()
            await anyio.wait_all_tasks_blocked()
            signal.abort("enough")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort)
            # Every limit is far beyond this one.
            with anyio.fail_after(5), pytest.raises(LlmError, match="aborted"):
                await read_all(adapter, signal)
        assert await server.attempts[0].finished() == "client-aborted"
        # The adapter goes on working.
        assert isinstance((await collect(adapter.stream(request())))[-1], Finish)
        await adapter.aclose()


# case: HTTP-16
async def test_nothing_is_delivered_after_an_abort() -> None:
    async with WireServer([wire.success("one two three four", chunk_size=4)]) as server:
        adapter = adapter_for(server.url)
        signal = CancelSignal()
        chunks: list[StreamChunk] = []
        stream = adapter.stream(request(signal))
        async with aclosing(stream):
            while not isinstance(chunk := await anext(stream), TextDelta):
                chunks.append(chunk)
            # All of the answer has arrived with the first read; none of it is wanted any more.
            signal.abort()
            with pytest.raises(LlmError) as caught:
                await anext(stream)
        assert caught.value.code == "ABORTED"
        await adapter.aclose()


async def test_an_abort_from_another_thread_of_control_needs_no_reader() -> None:
    gate = Gate()
    async with WireServer([wire.held_success(gate)]) as server:
        adapter = adapter_for(server.url)
        signal = CancelSignal()
        async with aclosing(adapter.stream(request(signal))) as stream:
            await anext(stream)
            # Nobody waits for the network at this moment.
            signal.abort()
            with pytest.raises(LlmError):
                _ = [chunk async for chunk in stream]
        assert await server.attempts[0].finished() == "client-aborted"
        await adapter.aclose()


async def test_a_finished_request_leaves_nothing_on_the_signal() -> None:
    async with WireServer(wire.success(), repeat_last=True) as server:
        adapter = adapter_for(server.url)
        signal = CancelSignal()
        for _ in range(3):
            await collect(adapter.stream(request(signal)))
        assert signal._callbacks == {}  # pyright: ignore[reportPrivateUsage]
        await adapter.aclose()


# case: HTTP-17
async def test_a_consumer_that_leaves_closes_the_connection() -> None:
    async with WireServer([wire.stall(chunks=3), wire.success()]) as server:
        adapter = adapter_for(server.url)
        async with aclosing(adapter.stream(request())) as stream:
            async for chunk in stream:
                if isinstance(chunk, TextDelta):
                    break
        with anyio.fail_after(5):
            assert await server.attempts[0].finished() == "client-aborted"
        await collect(adapter.stream(request()))
        await adapter.aclose()


# case: HTTP-17
async def test_a_consumer_that_raises_sees_its_own_exception() -> None:
    async with WireServer([wire.stall(chunks=3)]) as server:
        adapter = adapter_for(server.url)

        async def consume() -> None:
            async with aclosing(adapter.stream(request())) as stream:
                async for _ in stream:
                    raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await consume()
        assert await server.attempts[0].finished() == "client-aborted"
        await adapter.aclose()


# case: F-13
async def test_a_thousand_early_breaks_exhaust_nothing() -> None:
    long = wire.success("word " * 2000, chunk_size=5)
    async with WireServer(long, repeat_last=True) as server:
        adapter = adapter_for(server.url)
        for _ in range(1000):
            async with aclosing(adapter.stream(request())) as stream:
                async for chunk in stream:
                    if isinstance(chunk, TextDelta):
                        break
        pool = pool_of(adapter)
        assert (pool.made, pool.free) == (1, 1)
        assert isinstance((await collect(adapter.stream(request())))[-1], Finish)
        await adapter.aclose()


async def test_cancelling_the_task_is_no_abort() -> None:
    async with WireServer([wire.stall(chunks=2), wire.success()]) as server:
        adapter = adapter_for(server.url)
        started = anyio.Event()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    with pytest.raises(anyio.get_cancelled_exc_class()) as caught:
                        await read_all(adapter, CancelSignal(), started)
                    raise caught.value

                tasks.start_soon(ask)
                await started.wait()
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            assert await server.attempts[0].finished() == "client-aborted"
        await collect(adapter.stream(request()))
        assert pool_of(adapter).made <= 2
        await adapter.aclose()


async def test_cancelling_before_the_head_of_the_answer() -> None:
    async with WireServer([wire.stall_before_headers(), wire.success()]) as server:
        adapter = adapter_for(server.url)
        with anyio.move_on_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect, adapter.stream(request()))
                await server.attempt()
                tasks.cancel_scope.cancel()
        assert await server.attempts[0].finished() == "client-aborted"
        await collect(adapter.stream(request()))
        await adapter.aclose()


async def test_a_stream_that_is_never_started_does_nothing() -> None:
    async with WireServer([wire.success()]) as server:
        adapter = adapter_for(server.url)
        await adapter.stream(request()).aclose()
        assert server.connections == 0


async def test_connections_are_used_again_last_one_first() -> None:
    async with WireServer(wire.success(), repeat_last=True) as server:
        adapter = adapter_for(server.url)
        for _ in range(5):
            await collect(adapter.stream(request()))
        assert server.connections == 1
        assert [attempt.connection for attempt in server.attempts] == [1] * 5
        await adapter.aclose()


async def test_a_consumer_that_stops_at_the_finish_keeps_the_connection() -> None:
    async with WireServer(wire.success(), repeat_last=True) as server:
        adapter = adapter_for(server.url)
        for _ in range(3):
            async with aclosing(adapter.stream(request())) as stream:
                async for chunk in stream:
                    if isinstance(chunk, Finish):
                        break
        assert server.connections == 1
        await adapter.aclose()


async def test_there_are_as_many_clients_as_requests_at_the_same_time() -> None:
    gates = [Gate() for _ in range(8)]
    script = [wire.held_success(gate) for gate in gates]
    async with WireServer([*script, wire.success()]) as server:
        adapter = adapter_for(server.url)
        async with anyio.create_task_group() as tasks:
            for _ in gates:
                tasks.start_soon(collect, adapter.stream(request()))
            for gate in gates:
                await gate.reached()
            assert (pool_of(adapter).made, pool_of(adapter).free) == (8, 0)
            for gate in gates:
                gate.open()
        pool = pool_of(adapter)
        assert (pool.made, pool.free) == (8, 8)
        await collect(adapter.stream(request()))
        assert (pool.made, pool.free) == (8, 8)
        assert server.connections == 8
        await adapter.aclose()
        assert pool.free == 0


async def test_a_server_that_has_hung_up_meanwhile_is_noticed() -> None:
    async with WireServer([wire.success(), wire.success()]) as server:
        adapter = adapter_for(server.url)
        await collect(adapter.stream(request()))
        server.refuse()
        server.listen()
        await anyio.wait_all_tasks_blocked()
        await collect(adapter.stream(request()))
        assert server.connections == 2
        await adapter.aclose()


async def test_clients_nobody_needs_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsh.llm_deepseek._http._clients.SURPLUS_S", -1.0)
    assert SURPLUS_S > 0
    async with WireServer(wire.success(), repeat_last=True) as server:
        adapter = adapter_for(server.url)
        await collect(adapter.stream(request()))
        assert pool_of(adapter).free == 0
        await collect(adapter.stream(request()))
        assert server.connections == 2
        await adapter.aclose()


async def test_closing_the_adapter_lets_running_requests_finish() -> None:
    gate = Gate()
    async with WireServer([wire.held_success(gate)]) as server:
        adapter = adapter_for(server.url)
        async with aclosing(adapter.stream(request())) as stream:
            await anext(stream)
            pool = pool_of(adapter)
            await adapter.aclose()
            gate.open()
            last = [chunk async for chunk in stream][-1]
        assert isinstance(last, Finish)
        assert last.reason.kind == "stop"
        assert pool.free == 0
        assert server.attempts[0].outcome == "completed"


# case: HTTP-12
async def test_a_timeout_closes_the_connection_for_real() -> None:
    async with WireServer([wire.stall(chunks=1)]) as server:
        adapter = adapter_for(server.url, idle_timeout_s=0.05)
        with pytest.raises(LlmError) as caught:
            await collect(adapter.stream(request()))
        assert caught.value.code == "TIMEOUT"
        with anyio.fail_after(5):
            assert await server.attempts[0].finished() == "client-aborted"
        await adapter.aclose()
