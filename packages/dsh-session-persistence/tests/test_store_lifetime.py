"""The store comes and goes, and its backend misbehaves."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import anyio
import pytest

from dsh.core import App, InvalidPluginError, Plugin, PluginConfig, on, settings
from dsh.session import (
    LiveSessions,
    StepStart,
    UnknownData,
)
from dsh.session.events import SessionFlush
from dsh.session.testing import types_of, write_turn
from dsh.session_persistence import (
    AppendRefused,
    PersistenceError,
    SessionInUse,
    SessionPersistence,
    StoredSessionExists,
)
from dsh.session_persistence.testing import MemoryDisk, MemoryPersistence

# --- the store comes and goes --------------------------------------------------------------------


async def test_a_store_reloaded_in_a_turn_goes_on_without_closing_it(
    open_bench: Any, open_turn: Any
) -> None:
    # case: PS-24
    async with open_bench() as bench:
        session = bench.live()
        open_turn(session)
        await bench.sessions.flush(session)
        session.append(StepStart(1, 1))
        for _ in range(2):
            await bench.mount.restart()
            assert types_of(bench.disk.events("s")) == types_of(session.events)
            session.append(UnknownData("x/y", {}))
        await bench.sessions.flush(session)
        assert bench.disk.events("s") == session.events[:]
        assert "turn/end" not in types_of(bench.disk.events("s"))
        assert bench.disk.owners.keys() == {"s"}


async def test_a_session_that_cannot_be_taken_up_is_told_and_fails_its_flushes(
    open_bench: Any, open_turn: Any
) -> None:
    disk = MemoryDisk()
    async with open_bench(disk) as other, open_bench(disk, store=False) as bench:
        held = other.live("held")
        write_turn(held)
        await other.sessions.flush(held)
        mine = bench.sessions.create(bench.app.ctx, "held", seed=held.events[:])
        free = bench.live("free")
        write_turn(free)
        await bench.load_plugin()
        assert [failure.where for failure in bench.failures] == ["taking up session 'held'"]
        await bench.sessions.flush(free)
        assert disk.events("free") == free.events[:]
        open_turn(mine)
        with pytest.raises(ExceptionGroup) as caught:
            await bench.sessions.flush(mine)
        assert isinstance(caught.value.exceptions[0], SessionInUse)
        await other.mount.dispose()
        await bench.sessions.flush(mine)
        assert disk.events("held") == mine.events[:]


async def test_a_flush_while_the_store_starts_is_kept(
    open_bench: Any, gate_of: Any, open_turn: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk, store=False) as bench:
        first, second = bench.live("a"), bench.live("b")
        open_turn(first)
        open_turn(second)
        gate.hold("revision")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.load_plugin)
            await gate.reached()
            tasks.start_soon(bench.sessions.flush, second)
            await anyio.wait_all_tasks_blocked()
            first.append(StepStart(1, 1))
            second.append(StepStart(1, 1))
            gate.let_go()
        assert disk.events("b") == second.events[:]
        await bench.sessions.flush(first)
        assert disk.events("a") == first.events[:]
        assert disk.writes == 2


@pytest.mark.parametrize("call", ["revision", "acquire", "read"])
async def test_a_session_that_goes_while_it_is_taken_up_is_written_and_let_go(
    open_bench: Any, gate_of: Any, call: str, log: Any
) -> None:
    disk = MemoryDisk()
    async with open_bench(disk) as before:
        await before.fill()
    gate = gate_of(disk)
    async with open_bench(disk, store=False) as bench:
        session, end = bench.passing(seed=log)
        write_turn(session)
        gate.hold(call)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.load_plugin)
            await gate.reached()
            end()
            gate.let_go()
        await bench.still()
        assert disk.events("s") == session.events[:]
        assert disk.owners == {}


async def test_an_id_that_changes_hands_while_it_is_taken_up(open_bench: Any, gate_of: Any) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk, store=False) as bench:
        session, end = bench.passing()
        write_turn(session)
        gate.hold("revision")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.load_plugin)
            await gate.reached()
            end()
            threading.Thread(target=gate.let_go).start()
            bench.passing(seed=session.events[:])
            write_turn(bench.sessions.get("s"))
        again = bench.sessions.get("s")
        await bench.sessions.flush(again)
        await bench.still()
        assert disk.events("s") == again.events[:]
        assert disk.owners.keys() == {"s"}
        assert bench.failures == []


async def test_unloading_waits_for_the_write_under_way_and_tells_all_failures(
    open_bench: Any, gate_of: Any
) -> None:
    # case: PS-26
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        sessions = [bench.live(id) for id in "abc"]
        for session in sessions:
            write_turn(session)
        gate.hold("write")
        flushed: list[str] = []

        async def flush() -> None:
            await bench.sessions.flush(sessions[0])
            flushed.append("a")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flush)
            await gate.reached()
            tasks.start_soon(bench.mount.dispose)
            await anyio.wait_all_tasks_blocked()
            assert bench.mount.state.value == "unloading"

            def fails(name: str, session_id: str) -> None:
                if name == "write" and session_id in "bc":
                    raise OSError(f"{session_id} failed")

            disk.on_call = fails
            gate.let_go()
        assert flushed == ["a"]
        assert disk.events("a") == sessions[0].events[:]
        (failure,) = bench.failures
        group = cast("ExceptionGroup[Exception]", failure.error)
        assert [str(error) for error in group.exceptions] == [
            "session 'b' could not be written: b failed",
            "session 'c' could not be written: c failed",
        ]
        assert disk.owners == {}


async def test_a_flush_that_meets_the_end_of_the_store_tells_the_truth(
    open_bench: Any, gate_of: Any, open_turn: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    told: list[BaseException] = []
    async with open_bench(disk) as bench:
        stored, late = bench.live("stored"), bench.live("late")
        write_turn(stored)
        write_turn(late)
        gate.hold("close")

        async def flush(session: Any) -> None:
            try:
                await bench.sessions.flush(session)
            except* PersistenceError as group:
                told.extend(group.exceptions)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.mount.dispose)
            await gate.reached()
            tasks.start_soon(flush, stored)
            await anyio.wait_all_tasks_blocked()
            write_turn(bench.live("new"))
            gate.let_go()
        assert told == []
        assert disk.events("stored") == stored.events[:]
        await bench.load_plugin()
        for session in (stored, late, bench.sessions.get("new")):
            write_turn(session)
            await bench.sessions.flush(session)
            assert disk.events(session.id) == session.events[:]


async def test_a_closed_store_says_so(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.fill()
        store = bench.store
        await bench.mount.dispose()
        for step in (store.load("s"), store.list(), store.create(bench.header("t"))):
            with pytest.raises(PersistenceError, match="the store is closed"):
                await step
        assert bench.failures == []


async def test_nothing_is_opened_before_it_is_needed(open_bench: Any, gate_of: Any) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk):
        pass
    assert gate.calls == []


async def test_what_cannot_be_opened_is_tried_again(open_bench: Any) -> None:
    disk = MemoryDisk()
    broken = True

    def fails(name: str, session_id: str) -> None:
        if name == "open" and broken:
            raise PermissionError(13, "Permission denied")

    disk.on_call = fails
    async with open_bench(disk) as bench:
        with pytest.raises(PersistenceError, match="Permission denied"):
            bench.live()
        with pytest.raises(PersistenceError, match="could not be listed: Permission denied"):
            await bench.store.list()
        broken = False
        session = bench.live()
        write_turn(session)
        await bench.sessions.flush(session)
        assert disk.events("s") == session.events[:]


async def test_a_store_without_a_backend_is_in_nobodys_way(open_bench: Any) -> None:
    class Broken(MemoryPersistence):
        def make_backend(self) -> Any:
            raise RuntimeError("no such driver")

    async with open_bench(store=False) as bench:
        mount = bench.app.mount(Broken)
        with pytest.raises(RuntimeError, match="no such driver"):
            await mount.settled()
        session, end = bench.passing()
        write_turn(session)
        await bench.sessions.flush(session)
        end()
        assert [failure.where for failure in bench.failures] == ["start"]


async def test_two_stores_in_one_app_both_keep_everything(open_bench: Any) -> None:
    async with open_bench() as bench:
        second = MemoryDisk()
        apart = bench.app.ctx.isolate(SessionPersistence)
        mount = apart.mount(MemoryPersistence, {"disk": second})
        await mount.settled()
        session, end = bench.passing()
        write_turn(session)
        second.failures.append(OSError("no space"))
        with pytest.raises(ExceptionGroup):
            await bench.sessions.flush(session)
        assert bench.disk.events("s") == session.events[:]
        await bench.sessions.flush(session)
        assert second.events("s") == session.events[:]
        assert bench.disk.writes == 1
        end()
        await mount.dispose()
        await bench.still()
        assert bench.disk.owners == second.owners == {}


async def test_two_stores_on_one_disk_are_told_apart(open_bench: Any) -> None:
    async with open_bench() as bench:
        apart = bench.app.ctx.isolate(SessionPersistence)
        await apart.mount(MemoryPersistence, {"disk": bench.disk}).settled()
        session = bench.live()
        write_turn(session)
        with pytest.raises(ExceptionGroup) as caught:
            await bench.sessions.flush(session)
        (refusal,) = caught.value.exceptions
        assert isinstance(refusal, StoredSessionExists)
        assert bench.disk.events("s") == session.events[:]


# --- backends that misbehave ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
async def test_what_a_backend_raises_ends_nothing_else(
    open_bench: Any, bad: type[BaseException]
) -> None:
    disk = MemoryDisk()
    raised: list[str] = []

    def fails(name: str, session_id: str) -> None:
        if name == "write" and len(raised) < 2:
            raised.append(name)
            raise bad("never mind")

    async with open_bench(disk, write_after_ms=1) as bench:
        session = bench.live()
        disk.on_call = fails
        write_turn(session)
        with pytest.raises(ExceptionGroup) as caught:
            await bench.sessions.flush(session)
        assert isinstance(caught.value.exceptions[0], PersistenceError)
        write_turn(session)
        while len(raised) < 2:
            await anyio.lowlevel.checkpoint()
        await bench.still()
        await bench.sessions.flush(session)
        assert disk.events("s") == session.events[:]
        assert bench.mount.state.value == "active"


async def test_a_flush_of_a_store_reaches_the_other_listeners(open_bench: Any) -> None:
    heard: list[str] = []

    class Other(Plugin):
        @on(SessionFlush)
        async def flush(self, event: SessionFlush) -> None:
            heard.append(event.session.id)

    async with open_bench() as bench:
        await bench.app.mount(Other).settled()
        session = bench.live()
        write_turn(session)
        bench.disk.failures.append(OSError("no space"))
        with pytest.raises(ExceptionGroup):
            await bench.sessions.flush(session)
        assert heard == ["s"]


async def test_a_store_that_is_given_up_still_lets_go(open_bench: Any, gate_of: Any) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with App(teardown_grace_s=0.01) as app:
        await app.mount(LiveSessions).settled()
        mount = app.mount(MemoryPersistence, {"disk": disk})
        await mount.settled()
        session = app[LiveSessions].create(app.ctx, "s")
        write_turn(session)
        gate.hold("write")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mount.dispose)
            await gate.reached()
            with anyio.move_on_after(0.05):
                await anyio.sleep_forever()
            gate.let_go()
        assert disk.events("s") == session.events[:]
        assert disk.owners == {}
        assert gate.calls[-1] == ("close", "*")


@pytest.mark.parametrize("id", ["", "\ud800"], ids=["empty", "lone surrogate"])
async def test_a_session_that_could_not_be_stored_is_refused_at_once(
    open_bench: Any, id: str
) -> None:
    async with open_bench() as bench:
        with pytest.raises(AppendRefused) as caught:
            bench.passing(id)
        assert caught.value.code == AppendRefused.MALFORMED_HEADER
        assert bench.sessions.list() == ()
        with pytest.raises(AppendRefused):
            await bench.store.create(bench.header(id))


async def test_a_store_without_the_settings_of_all_stores_is_told_what_to_derive() -> None:
    class Own(PluginConfig):
        folder: str = ""

    body: dict[str, Any] = {"Config": Own, "config": settings(Own)}
    forgetful = type("Forgetful", (MemoryPersistence,), body)

    async with App() as app:
        await app.mount(LiveSessions).settled()
        with pytest.raises(InvalidPluginError, match="all stores share") as refused:
            await app.mount(forgetful).settled()
        assert "BackedPersistence.Config" in (refused.value.hint or "")
