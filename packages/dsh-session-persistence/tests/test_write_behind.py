"""When what waits is written, in time that only the tests move."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from dsh.llm import LlmRequest, StreamChunk, TextDelta
from dsh.llm.events import LlmStream
from dsh.session import AssistantChunk, Session, StepStart, UnknownData
from dsh.session.testing import write_turn
from dsh.session_persistence import PersistenceError
from dsh.session_persistence.testing import MemoryDisk


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def anyio_backend(clock: MockClock) -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": clock}


@pytest.fixture
def after(clock: MockClock) -> Any:
    """`await after(bench, seconds)`: let time pass, and the background do its work."""

    async def jump(bench: Any, seconds: float) -> None:
        await bench.still()
        clock.jump(seconds)
        await bench.still()

    return jump


def streaming(session: Session, open_turn: Callable[[Session], None]) -> None:
    open_turn(session)
    session.append(StepStart(1, 1))


def chunk(session: Session) -> None:
    session.append(AssistantChunk(1, 1, TextDelta(0, "x")))


def note(session: Session) -> None:
    session.append(UnknownData("some/note", {}))


async def test_what_comes_within_the_window_is_one_batch(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    # case: PS-13
    async with open_bench() as bench:
        session = bench.live()
        streaming(session, open_turn)
        for _ in range(18):
            await after(bench, 0.01)
            chunk(session)
        assert bench.disk.writes == 0
        await after(bench, 0.019)
        assert bench.disk.writes == 0, "a later event moved the window"
        await after(bench, 0.002)
        assert bench.disk.writes == 1
        assert bench.disk.events("s") == session.events[:]
        await after(bench, 10)
        assert bench.disk.writes == 1


async def test_the_window_is_configured(open_bench: Any, after: Any, open_turn: Any) -> None:
    async with open_bench(write_after_ms=5000) as bench:
        open_turn(bench.live())
        await after(bench, 4.9)
        assert bench.disk.writes == 0
        await after(bench, 0.2)
        assert bench.disk.writes == 1


async def test_chunks_alone_wait_longer(open_bench: Any, after: Any, open_turn: Any) -> None:
    async with open_bench() as bench:
        session = bench.live()
        streaming(session, open_turn)
        await bench.sessions.flush(session)
        for _ in range(99):
            chunk(session)
            await after(bench, 0.1)
        assert bench.disk.writes == 1
        await after(bench, 0.09)
        assert bench.disk.writes == 1, "they did not wait ten seconds"
        await after(bench, 0.02)
        assert bench.disk.writes == 2
        assert bench.disk.events("s") == session.events[:]


async def test_another_event_takes_the_chunks_before_it_along(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    async with open_bench() as bench:
        session = bench.live()
        streaming(session, open_turn)
        await bench.sessions.flush(session)
        chunk(session)
        await after(bench, 3)
        note(session)
        await after(bench, 0.1)
        note(session)
        chunk(session)
        await after(bench, 0.09)
        assert bench.disk.writes == 1
        await after(bench, 0.02)
        assert bench.disk.writes == 2, "a later event moved the window"
        assert bench.disk.events("s") == session.events[:]
        await after(bench, 20)
        assert bench.disk.writes == 2, "the window of the chunks is still open"


async def test_chunks_do_not_hold_up_what_waits_before_them(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    async with open_bench() as bench:
        session = bench.live()
        streaming(session, open_turn)
        chunk(session)
        await after(bench, 0.21)
        assert bench.disk.events("s") == session.events[:]


async def test_the_window_of_chunks_is_configured(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    async with open_bench(write_chunks_after_ms=50) as bench:
        session = bench.live()
        streaming(session, open_turn)
        await bench.sessions.flush(session)
        chunk(session)
        await after(bench, 0.04)
        assert bench.disk.writes == 1
        await after(bench, 0.02)
        assert bench.disk.events("s") == session.events[:]


async def test_a_session_that_is_gone_is_not_kept_for_the_window(
    open_bench: Any, open_turn: Any
) -> None:
    async with open_bench() as bench:
        session, end = bench.passing()
        streaming(session, open_turn)
        await bench.sessions.flush(session)
        chunk(session)
        end()
        await bench.still()
        assert len(bench.disk.events("s")) == session.seq
        gone = weakref.ref(session)
        del session, end
        for _ in range(50):  # the thread that wrote it lets go of it when it gets there
            gc.collect()
            if gone() is None:
                break
            await bench.store.list()
        assert gone() is None


async def test_what_comes_during_a_write_has_a_window_of_its_own(
    open_bench: Any, gate_of: Any, after: Any, clock: MockClock, open_turn: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session = bench.live()
        streaming(session, open_turn)
        gate.hold("write")
        clock.jump(0.2)
        await gate.reached()
        note(session)
        gate.let_go()
        await bench.still()
        assert (disk.writes, len(disk.events("s"))) == (1, 2)
        await after(bench, 0.19)
        assert disk.writes == 1, "the background wrote without a pause"
        await after(bench, 0.02)
        assert disk.events("s") == session.events[:]


async def test_a_window_that_ended_during_a_write_is_written_at_once(
    open_bench: Any, gate_of: Any, clock: MockClock, open_turn: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session = bench.live()
        streaming(session, open_turn)
        gate.hold("write")
        clock.jump(0.2)
        await gate.reached()
        note(session)
        clock.jump(0.5)
        gate.let_go()
        await bench.still()
        assert disk.writes == 2
        assert disk.events("s") == session.events[:]


async def test_a_flush_ends_the_window(open_bench: Any, after: Any, open_turn: Any) -> None:
    async with open_bench() as bench:
        session = bench.live()
        streaming(session, open_turn)
        await after(bench, 0.15)
        await bench.sessions.flush(session)
        assert bench.disk.writes == 1
        note(session)
        await after(bench, 0.15)
        assert bench.disk.writes == 1, "the window began before the event"
        await after(bench, 0.06)
        assert bench.disk.writes == 2


async def test_a_flush_takes_what_comes_while_it_runs(
    open_bench: Any, gate_of: Any, open_turn: Any
) -> None:
    # case: PS-16
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session = bench.live()
        streaming(session, open_turn)
        gate.hold("write")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(bench.sessions.flush, session)
            await gate.reached()
            chunk(session)
            gate.let_go()
        assert disk.events("s") == session.events[:]
        assert disk.writes == 2


async def test_a_failed_write_behind_is_told_once_and_tried_again_by_the_next_event(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    # case: PS-14
    async with open_bench() as bench:
        session = bench.live()
        streaming(session, open_turn)
        bench.disk.failures.extend(OSError(28, "no space") for _ in range(2))
        await after(bench, 0.2)
        assert [failure.plugin for failure in bench.failures] == ["memory-persistence"]
        await after(bench, 60)
        assert len(bench.disk.failures) == 1, "it was tried again though nothing had come"
        note(session)
        await after(bench, 0.2)
        assert bench.disk.failures == []
        assert bench.disk.writes == 0
        note(session)
        await after(bench, 0.2)
        assert len(bench.failures) == 1
        assert bench.disk.events("s") == session.events[:]
        bench.disk.failures.append(OSError("again"))
        note(session)
        await after(bench, 0.2)
        assert len(bench.failures) == 2, "a new failure after a success is news"
        await bench.sessions.flush(session)
        assert bench.disk.events("s") == session.events[:]


async def test_a_failed_flush_is_told_to_whoever_flushed_only(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    # case: PS-15
    async with open_bench() as bench:
        session = bench.live()
        streaming(session, open_turn)
        bench.disk.failures.append(OSError("no space"))
        with pytest.raises(ExceptionGroup) as caught:
            await bench.sessions.flush(session)
        assert str(caught.value.exceptions[0]) == "session 's' could not be written: no space"
        assert bench.failures == []
        await after(bench, 0.2)
        assert bench.disk.events("s") == session.events[:], "the window was still open"


async def test_a_large_batch_that_fails_stays(open_bench: Any, after: Any, open_turn: Any) -> None:
    # case: PS-17
    async with open_bench(max_unwritten=1_000_000) as bench:
        session = bench.live()
        streaming(session, open_turn)
        for _ in range(50_000):
            chunk(session)
        bench.disk.failures.append(OSError("no space"))
        await after(bench, 0.2)
        assert bench.disk.events("s") == ()
        await bench.sessions.flush(session)
        assert (bench.disk.writes, bench.disk.events("s")) == (1, session.events[:])


async def test_what_a_session_leaves_behind_is_written_at_once(
    open_bench: Any, open_turn: Any
) -> None:
    # case: PS-25
    async with open_bench() as bench:
        session, end = bench.passing()
        write_turn(session)
        end()
        await bench.still()
        assert bench.disk.events("s") == session.events[:]
        assert bench.disk.owners == {}


async def test_what_a_session_leaves_behind_is_tried_again(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    async with open_bench() as bench:
        session, end = bench.passing()
        streaming(session, open_turn)
        await bench.sessions.flush(session)
        chunk(session)
        bench.disk.failures.extend(OSError("no space") for _ in range(3))
        end()
        await bench.still()
        assert len(bench.failures) == 1
        assert bench.disk.owners.keys() == {"s"}
        session.append(UnknownData("later/than", {"the": "end"}))
        for left in (2, 1, 0):
            assert len(bench.disk.failures) == left
            await after(bench, 5)
        assert bench.disk.events("s") == session.events[:3]
        assert bench.disk.owners == {}
        assert len(bench.failures) == 1


async def test_half_of_what_may_wait_is_written_early(open_bench: Any, open_turn: Any) -> None:
    async with open_bench(max_unwritten=20) as bench:
        session = bench.live()
        streaming(session, open_turn)
        for _ in range(7):
            chunk(session)
        await bench.still()
        assert bench.disk.writes == 0
        chunk(session)
        await bench.still()
        assert bench.disk.writes == 1


async def stream_into(bench: Any, session: Session, count: int) -> int:
    """Log the chunks of a model's answer as a loop does; return how many came."""

    async def answer(event: LlmStream) -> AsyncGenerator[StreamChunk, None]:
        for _ in range(count):
            yield TextDelta(0, "x")

    request = LlmRequest("test/model", (), session_id=session.id)
    came = 0
    async with aclosing(bench.app.ctx.stream(LlmStream(request), answer)) as chunks:
        async for delta in chunks:
            session.append(AssistantChunk(1, 1, delta))
            came += 1
    return came


async def test_a_stream_waits_for_what_it_has_left_unwritten(
    open_bench: Any, gate_of: Any, open_turn: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk, max_unwritten=10) as bench:
        session = bench.live()
        streaming(session, open_turn)
        gate.hold("write")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream_into, bench, session, 100)
            await gate.reached()
            await anyio.wait_all_tasks_blocked()
            assert session.seq == 10, "the stream went on"
            gate.let_go()
        assert session.seq == 102
        assert len(disk.events("s")) >= 92


async def test_a_stream_fails_where_nothing_can_be_written(open_bench: Any, open_turn: Any) -> None:
    async with open_bench(max_unwritten=10) as bench:
        session = bench.live()
        streaming(session, open_turn)
        bench.disk.failures.extend(OSError("no space") for _ in range(9))
        with pytest.raises(PersistenceError, match="no space"):
            await stream_into(bench, session, 100)
        assert session.seq == 10
        bench.disk.failures.clear()
        assert await stream_into(bench, session, 100) == 100


async def test_a_stream_outlives_the_store(open_bench: Any, open_turn: Any) -> None:
    async with open_bench(max_unwritten=10) as bench:
        session = bench.live()
        streaming(session, open_turn)

        async def answer(event: LlmStream) -> AsyncGenerator[StreamChunk, None]:
            for number in range(60):
                if number == 20:
                    await bench.mount.dispose()
                elif number == 40:
                    await bench.load_plugin(max_unwritten=10)
                yield TextDelta(0, "x")

        request = LlmRequest("test/model", (), session_id="s")
        async with aclosing(bench.app.ctx.stream(LlmStream(request), answer)) as chunks:
            async for delta in chunks:
                session.append(AssistantChunk(1, 1, delta))
        await bench.sessions.flush(session)
        assert bench.disk.events("s") == session.events[:]
        assert bench.failures == []


async def test_streams_of_others_pass(open_bench: Any, open_turn: Any) -> None:
    async with open_bench(max_unwritten=1) as bench:
        session = Session("elsewhere")
        streaming(session, open_turn)
        assert await stream_into(bench, session, 5) == 5
        assert bench.disk.files == {}


async def test_an_early_write_does_not_disturb_the_others(
    open_bench: Any, after: Any, open_turn: Any
) -> None:
    async with open_bench(max_unwritten=4) as bench:
        first, second = bench.live("a"), bench.live("b")
        streaming(first, open_turn)
        await after(bench, 0.1)
        streaming(second, open_turn)
        await bench.still()
        assert (len(bench.disk.events("a")), len(bench.disk.events("b"))) == (2, 2)
        note(first)
        note(second)
        await after(bench, 0.21)
        assert bench.disk.events("a") == first.events[:]
        assert bench.disk.events("b") == second.events[:]
