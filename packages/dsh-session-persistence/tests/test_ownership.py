"""Who owns an id: sessions one after another, what is stored already, other processes."""

from __future__ import annotations

import gc
import threading
from typing import Any

import anyio
import pytest

from dsh.core import Plugin, on
from dsh.session import (
    SessionEvent,
    SessionMeta,
    UnknownData,
)
from dsh.session.errors import LiveSessionError
from dsh.session.events import SessionCreated
from dsh.session.testing import types_of, write_turn
from dsh.session_persistence import (
    PersistenceError,
    SessionInUse,
    StoredSessionExists,
)
from dsh.session_persistence.testing import MemoryDisk

# --- one id after another ------------------------------------------------------------------------


async def test_a_second_object_with_a_live_id_changes_nothing(open_bench: Any) -> None:
    # case: PS-20
    async with open_bench() as bench:
        first = bench.live()
        with pytest.raises(LiveSessionError, match="already exists"):
            bench.live()
        write_turn(first)
        await bench.sessions.flush(first)
        assert bench.disk.events("s") == first.events[:]


async def test_a_session_announced_again_stays_as_it_is(open_bench: Any) -> None:
    async with open_bench() as bench:
        session = bench.live()
        write_turn(session)
        await bench.sessions.flush(session)
        bench.app.ctx.emit(SessionCreated(session))
        write_turn(session)
        await bench.sessions.flush(session)
        assert bench.disk.writes == 2
        assert bench.disk.events("s") == session.events[:]


async def test_a_foreign_object_announced_with_a_live_id_is_refused(open_bench: Any) -> None:
    # case: PS-20
    async with open_bench() as bench, open_bench() as other:
        session = bench.live()
        impostor = other.live()
        with pytest.raises(StoredSessionExists):
            bench.app.ctx.emit(SessionCreated(impostor))
        write_turn(session)
        await bench.sessions.flush(session)
        assert bench.disk.events("s") == session.events[:]


async def test_an_empty_session_frees_its_id(open_bench: Any, log: Any) -> None:
    async with open_bench() as bench:
        for _ in range(3):
            _, end = bench.passing()
            end()
        await bench.fill()
        assert bench.disk.events("s") == log


@pytest.mark.parametrize("seeded", [True, False])
async def test_an_id_is_used_again_while_its_last_events_wait(
    open_bench: Any, seeded: bool
) -> None:
    async with open_bench() as bench:
        session, end = bench.passing()
        write_turn(session)
        end()
        if not seeded:
            with pytest.raises(StoredSessionExists):
                bench.passing()
            await bench.still()
            assert bench.disk.events("s") == session.events[:]
            assert bench.disk.owners == {}
            return
        again, end = bench.passing(seed=session.events[:])
        write_turn(again)
        await bench.still()
        assert bench.disk.owners.keys() == {"s"}, "the first one's end took the id from the second"
        await bench.sessions.flush(again)
        assert bench.disk.events("s") == again.events[:]
        end()
        await bench.still()
        assert bench.disk.owners == {}


@pytest.mark.parametrize("call", ["write", "release"])
async def test_an_id_is_used_again_while_its_last_events_are_written(
    open_bench: Any, gate_of: Any, call: str
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session, end = bench.passing()
        write_turn(session)
        if call == "release":
            await bench.sessions.flush(session)
        gate.hold(call)
        end()
        await gate.reached()
        # the new session has to wait for the call; nothing else can let it go
        threading.Thread(target=gate.let_go).start()
        again, end = bench.passing(seed=session.events[:])
        write_turn(again)
        await bench.sessions.flush(again)
        await bench.still()
        assert disk.events("s") == again.events[:]
        assert disk.owners.keys() == {"s"}
        assert bench.failures == []
        end()
        await bench.still()
        assert disk.owners == {}


async def test_an_id_is_used_again_while_its_end_waits_its_turn(
    open_bench: Any, gate_of: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session, end = bench.passing()
        write_turn(session)
        gate.hold("list")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.store.list)
            await gate.reached()
            end()
            await anyio.wait_all_tasks_blocked()
            threading.Thread(target=gate.let_go).start()
            bench.passing(seed=session.events[:])
        await bench.still()
        assert disk.owners.keys() == {"s"}
        again = bench.sessions.get("s")
        write_turn(again)
        await bench.sessions.flush(again)
        assert disk.events("s") == again.events[:]


async def test_a_new_session_waits_for_what_its_predecessor_could_not_write(
    open_bench: Any,
) -> None:
    async with open_bench() as bench:
        session, end = bench.passing()
        write_turn(session)
        bench.disk.failures.extend(OSError("no space") for _ in range(2))
        end()
        await bench.still()
        with pytest.raises(PersistenceError, match="no space"):
            bench.passing(seed=session.events[:])
        assert bench.sessions.get("s") is None
        again, _ = bench.passing(seed=session.events[:])
        write_turn(again)
        await bench.sessions.flush(again)
        assert bench.disk.events("s") == again.events[:]


async def test_the_same_object_comes_back(open_bench: Any) -> None:
    async with open_bench() as bench:
        session, end = bench.passing()
        write_turn(session)
        end()
        write_turn(session)
        entry = bench.sessions.enter(bench.app.ctx, session)
        bench.sessions.announce(session)
        write_turn(session)
        await bench.sessions.flush(session)
        await bench.still()
        assert bench.disk.events("s") == session.events[:]
        entry.dispose_nowait()
        await bench.still()
        assert bench.disk.owners == {}


async def test_what_comes_after_the_end_is_not_stored(open_bench: Any) -> None:
    async with open_bench() as bench:
        session, end = bench.passing()
        write_turn(session)
        end()
        before = session.events[:]
        write_turn(session)
        await bench.still()
        assert bench.disk.events("s") == before


async def test_a_session_that_another_listener_refuses_is_let_go(open_bench: Any) -> None:
    class Refuses(Plugin):
        @on(SessionCreated)
        def refuse(self, event: SessionCreated) -> None:
            raise RuntimeError("not today")

    async with open_bench() as bench:
        await bench.fill()
        loaded = await bench.store.load("s")
        await bench.app.mount(Refuses).settled()
        with pytest.raises(RuntimeError, match="not today"):
            bench.passing(seed=loaded.events)
        await bench.still()
        assert bench.disk.owners == {}
        await bench.store.remove("s")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_ten_thousand_sessions_leave_nothing(open_bench: Any) -> None:
    async with open_bench() as bench:
        for number in range(10_000):
            _, end = bench.passing(f"s{number}")
            end()
        for number in range(50):
            session, end = bench.passing(f"t{number}")
            write_turn(session)
            end()
            await bench.store.load(f"t{number}")
        store: Any = bench.store
        with anyio.fail_after(60):
            while store._owners or store._behind._queue:
                await bench.still()
        assert store._owners == {}
        assert len(store._ownership._loaded) <= 8
        gc.collect()
        assert bench.disk.owners == {}


# --- what is stored already ----------------------------------------------------------------------


async def test_a_fresh_session_with_a_stored_id_is_told_so_whoever_has_it(open_bench: Any) -> None:
    # case: PS-21
    disk = MemoryDisk()
    async with open_bench(disk) as one, open_bench(disk) as other:
        session = one.live(cwd="/w")
        write_turn(session)
        await one.sessions.flush(session)
        with pytest.raises(StoredSessionExists):
            other.live(cwd="/w")
        assert other.sessions.list() == ()


async def test_a_session_that_another_process_has_is_in_use(open_bench: Any) -> None:
    # case: PS-35
    disk = MemoryDisk()
    async with open_bench(disk) as one, open_bench(disk) as other:
        session, end = one.passing()
        write_turn(session)
        await one.sessions.flush(session)
        for step in (other.store.load, other.store.archive, other.store.remove):
            with pytest.raises(SessionInUse):
                await step("s")
        with pytest.raises(SessionInUse):
            await other.store.append("s", [SessionEvent(session.seq, 0, UnknownData("x/y", {}))])
        with pytest.raises(SessionInUse):
            other.passing(seed=session.events[:])
        assert (await other.store.inspect("s")).events == session.events[:]
        end()
        await one.still()
        again, _ = other.passing(seed=(await other.store.load("s")).events)
        write_turn(again)
        await other.sessions.flush(again)
        with pytest.raises(SessionInUse):
            await one.store.load("s")
        assert disk.events("s") == again.events[:]


async def test_a_log_that_went_on_since_it_was_loaded_is_not_overwritten(
    open_bench: Any, log: Any
) -> None:
    disk = MemoryDisk()
    async with open_bench(disk) as one, open_bench(disk) as other:
        await one.fill()
        loaded = await one.store.load("s")
        event = SessionEvent(len(log), 0, UnknownData("x/y", {}))
        await other.store.append("s", [event])
        with pytest.raises(StoredSessionExists):
            one.passing(seed=loaded.events)
        assert disk.events("s") == (*log, event)
        assert disk.owners == {}


@pytest.mark.parametrize("call", ["revision", "acquire", "read"])
async def test_a_claim_that_fails_holds_nothing(open_bench: Any, call: str, log: Any) -> None:
    disk = MemoryDisk()
    async with open_bench(disk) as bench:
        await bench.fill()
        armed = True

        def fails(name: str, session_id: str) -> None:
            if armed and name == call:
                raise OSError(5, "broken")

        disk.on_call = fails
        # the seed is not what the store remembers, so that it has to read
        bench.store._ownership._loaded.clear()
        with pytest.raises(PersistenceError, match="'s' could not be read"):
            bench.passing(seed=log)
        assert bench.sessions.list() == ()
        assert disk.owners == {}
        armed = False
        session, _ = bench.passing(seed=log)
        write_turn(session)
        await bench.sessions.flush(session)
        assert disk.events("s") == session.events[:]


@pytest.mark.parametrize("call", ["revision", "acquire", "read", "write", "release"])
async def test_a_load_that_fails_holds_nothing(open_bench: Any, open_turn: Any, call: str) -> None:
    disk = MemoryDisk()
    async with open_bench(disk) as bench:
        session, end = bench.passing()
        open_turn(session)
        end()
        await bench.still()
        failed: list[str] = []

        def fails(name: str, session_id: str) -> None:
            if name == call and not failed:
                failed.append(name)
                raise OSError(5, "broken")

        disk.on_call = fails
        if call != "write":
            bench.store._ownership._loaded.clear()
        with pytest.raises(PersistenceError, match="broken"):
            await bench.store.load("s")
        loaded = await bench.store.load("s")
        assert types_of(loaded.events) == ["turn/start", "turn/end"]
        assert disk.owners == {}


async def test_an_append_that_was_written_is_no_failure(open_bench: Any, log: Any) -> None:
    disk = MemoryDisk()
    async with open_bench(disk) as bench:
        await bench.store.create(bench.header())

        def fails(name: str, session_id: str) -> None:
            if name == "revision" and disk.writes:
                raise OSError(5, "broken")

        disk.on_call = fails
        await bench.store.append("s", log)
        disk.on_call = None
        await bench.store.append("s", [SessionEvent(len(log), 0, UnknownData("x/y", {}))])
        assert len(disk.events("s")) == len(log) + 1


async def test_a_resumed_session_keeps_the_header_it_is_stored_with(
    open_bench: Any, log: Any
) -> None:
    # case: PS-22
    async with open_bench() as bench:
        await bench.fill()
        session, _ = bench.passing(seed=log, meta=SessionMeta(created_at=9))
        write_turn(session)
        await bench.sessions.flush(session)
        assert (await bench.store.load("s")).header == bench.header()
        (shown,) = await bench.store.list_snapshots()
        assert shown.header == bench.header()
        assert (shown.summary.turns, shown.summary.events) == (2, session.seq)


async def test_a_reserved_id_is_free_for_a_live_session(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.store.create(bench.header())
        session = bench.live()
        with pytest.raises(StoredSessionExists):
            await bench.store.create(bench.header())
        write_turn(session)
        await bench.sessions.flush(session)
        assert bench.disk.events("s") == session.events[:]


async def test_a_fork_is_summed_up_whole(open_bench: Any) -> None:
    # case: PS-23
    async with open_bench() as bench:
        source = bench.live()
        write_turn(source, "first\nline")
        await bench.sessions.flush(source)
        child = bench.sessions.fork(bench.app.ctx, source, child_id="c")
        write_turn(child, "second")
        await bench.sessions.flush(child)
        shown = {item.header.id: item.summary for item in await bench.store.list_snapshots()}
        assert (shown["s"].title, shown["s"].turns, shown["s"].events) == ("first", 1, source.seq)
        assert (shown["c"].title, shown["c"].turns, shown["c"].events) == ("first", 2, child.seq)
        assert shown["c"].ended == "completed"
        assert bench.disk.events("s") == source.events[:]
