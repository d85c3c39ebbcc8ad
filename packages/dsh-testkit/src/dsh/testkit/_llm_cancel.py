"""Adapter contract: requests that are given up."""

from __future__ import annotations

from contextlib import aclosing

import anyio

from dsh.llm import CancelSignal, LlmError, StreamChunk, TextDelta
from dsh.llm_replay import server as wire
from dsh.testkit._llm_bench import Answer, Bench, cases_of

__all__ = ["CANCEL"]

TEXT = "An answer that somebody gives up before its end."


def _expect_aborted(answer: Answer) -> None:
    answer.expect("aborted")
    assert answer.finish.code == LlmError.ABORTED, answer.finish


async def aborted_before_it_begins(bench: Bench) -> None:
    """A request whose signal has fired already reaches nobody."""
    signal = CancelSignal()
    signal.abort("not wanted")
    _expect_aborted(await bench.ask("success", bench.request(signal=signal)))
    assert bench.server.connections == 0, "the adapter connected all the same"


async def _aborted_at(bench: Bench, gate: wire.Gate, behaviour: wire.Behaviour) -> Answer:
    """Abort a request while the server stands at a gate."""
    signal = CancelSignal()
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await bench.ask(behaviour, bench.request(signal=signal)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await gate.reached()
        # The adapter now waits for the next byte.
        await anyio.wait_all_tasks_blocked()
        signal.abort("enough")
    _expect_aborted(answers[0])
    await bench.left(len(bench.server.attempts))
    return answers[0]


async def aborted_while_waiting_for_a_response(bench: Bench) -> None:
    """An abort ends the wait for the head of the response, and the connection is closed."""
    gate = wire.Gate()
    await _aborted_at(bench, gate, wire.success(TEXT).hold_before(gate))
    await bench.works()


async def aborted_while_streaming(bench: Bench) -> None:
    """An abort ends the wait for the next byte; what had come is kept."""
    gate = wire.Gate()
    answer = await _aborted_at(bench, gate, wire.success(TEXT).hold(gate, after=3))
    assert answer.text
    assert TEXT.startswith(answer.text)
    await bench.works()


async def abort_wins_over_what_has_arrived(bench: Bench) -> None:
    """After an abort no more text is told, also where all of it has arrived."""
    whole = await bench.ask(wire.success(TEXT))
    last = max(n for n, chunk in enumerate(whole.chunks) if isinstance(chunk, TextDelta))
    for count in range(1, last + 1):
        signal = CancelSignal()
        seen: list[StreamChunk] = []

        def look(
            chunk: StreamChunk,
            seen: list[StreamChunk] = seen,
            signal: CancelSignal = signal,
            count: int = count,
        ) -> None:
            seen.append(chunk)
            if len(seen) == count:
                signal.abort("enough")

        answer = await bench.ask(wire.success(TEXT), bench.request(signal=signal), on_chunk=look)
        _expect_aborted(answer)
        told = [chunk for chunk in answer.chunks if chunk.type != "finish"]
        assert len(told) == count, f"aborted after {count} chunks, {len(told)} came"
    await bench.works()


async def left_at_any_chunk(bench: Bench) -> None:
    """A consumer may stop reading anywhere; closing the stream closes the connection."""
    whole = await bench.ask(wire.success(TEXT))
    for count in range(1, len(whole.chunks)):
        async with aclosing(bench.adapter.stream(bench.request())) as stream:
            bench.server.append(wire.success(TEXT))
            for _ in range(count):
                await anext(stream)
    await bench.works()


async def left_while_streaming(bench: Bench) -> None:
    """The server sees that the consumer has left."""
    gate = wire.Gate()
    bench.server.append(wire.success(TEXT).hold(gate, after=3))
    async with aclosing(bench.adapter.stream(bench.request())) as stream:
        await anext(stream)
    await bench.left()
    await bench.works()


async def never_read(bench: Bench) -> None:
    """A stream that nobody reads asks nobody."""
    await bench.adapter.stream(bench.request()).aclose()
    assert not bench.server.attempts, "the adapter asked before anybody read"


async def cancelled_from_outside(bench: Bench) -> None:
    """Cancelling the task that reads closes the connection and leaves the adapter usable."""
    for behaviour in (wire.success(TEXT).hold, wire.success(TEXT).hold_before):
        gate = wire.Gate()
        bench.server.append(behaviour(gate))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.ask)
            await gate.reached()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await bench.left(len(bench.server.attempts))
    await bench.works()


async def aborted_after_the_end(bench: Bench) -> None:
    """An abort that comes after the answer changes nothing."""
    signal = CancelSignal()
    answer = await bench.ask(wire.success(TEXT), bench.request(signal=signal))
    answer.expect("stop")
    signal.abort("too late")
    await bench.works()


CANCEL = cases_of(
    aborted_before_it_begins,
    aborted_while_waiting_for_a_response,
    aborted_while_streaming,
    abort_wins_over_what_has_arrived,
    left_at_any_chunk,
    left_while_streaming,
    never_read,
    cancelled_from_outside,
    aborted_after_the_end,
)
"""The cases of this subject."""
