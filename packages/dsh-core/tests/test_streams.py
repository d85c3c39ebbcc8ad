"""Streams that end badly: everything opened is closed, and no error hides another."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import pytest

from dsh.core import App, Context, Failure, NextStream, StreamWaterfall


@dataclass(frozen=True, slots=True)
class Numbers(StreamWaterfall[int], name="test-streams/numbers"):
    """A stream of numbers."""


async def pass_on(event: Numbers, next: NextStream[int]) -> AsyncGenerator[int, None]:
    async for number in next():
        yield number


async def bad_to_close(event: Numbers) -> AsyncGenerator[int, None]:
    try:
        yield 1
        yield 2
    finally:
        raise RuntimeError("closing")


def watch(app: App) -> list[Failure]:
    failures: list[Failure] = []
    app.on_error(app.ctx, failures.append)
    return failures


async def test_what_broke_the_stream_is_raised_and_a_failing_close_reported() -> None:
    async def breaks(event: Numbers, next: NextStream[int]) -> AsyncGenerator[int, None]:
        yield await anext(next())
        raise ValueError("broken")

    async with App() as app:
        failures = watch(app)
        app.ctx.on(Numbers, breaks)
        stream = app.ctx.stream(Numbers(), bad_to_close)
        assert await anext(stream) == 1
        with pytest.raises(ValueError, match="broken"):
            await anext(stream)
        assert [str(failure.error) for failure in failures] == ["closing"]


async def test_a_failing_close_after_a_good_end_is_raised() -> None:
    async with App() as app:
        failures = watch(app)

        async def takes_one(event: Numbers, next: NextStream[int]) -> AsyncGenerator[int, None]:
            yield await anext(next())

        app.ctx.on(Numbers, takes_one)
        with pytest.raises(RuntimeError, match="closing"):
            async with aclosing(app.ctx.stream(Numbers(), bad_to_close)) as stream:
                assert [number async for number in stream] == [1]
        assert failures == []


async def test_a_failing_close_by_the_consumer_is_raised_to_it() -> None:
    async with App() as app:
        app.ctx.on(Numbers, pass_on)
        stream = app.ctx.stream(Numbers(), bad_to_close)
        assert await anext(stream) == 1
        with pytest.raises(RuntimeError, match="closing"):
            await stream.aclose()


async def test_a_cancelled_consumer_closes_every_layer() -> None:
    log: list[str] = []

    async def source(event: Numbers) -> AsyncGenerator[int, None]:
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            log.append("source closed")

    async def layer(event: Numbers, next: NextStream[int]) -> AsyncGenerator[int, None]:
        numbers = next()
        yield await anext(numbers)
        yield await anext(numbers)

    async with App() as app:
        app.ctx.on(Numbers, layer)

        async def consume() -> None:
            async with aclosing(app.ctx.stream(Numbers(), source)) as stream:
                async for _ in stream:
                    pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert log == ["source closed"]


async def test_a_stream_in_flight_is_closed_with_the_plugin_that_reads_it() -> None:
    log: list[str] = []

    async def layer(event: Numbers, next: NextStream[int]) -> AsyncGenerator[int, None]:
        try:
            async for number in next():
                yield number
        finally:
            log.append("layer closed")

    async def source(event: Numbers) -> AsyncGenerator[int, None]:
        yield 1
        await anyio.sleep_forever()

    async def reader(ctx: Context, config: object) -> None:
        async def read() -> None:
            async with aclosing(ctx.stream(Numbers(), source)) as stream:
                async for _ in stream:
                    log.append("read")

        ctx.spawn(read)

    async with App() as app:
        app.ctx.on(Numbers, layer)
        await app.mount(reader).settled()
        await anyio.wait_all_tasks_blocked()
    assert log == ["read", "layer closed"]
