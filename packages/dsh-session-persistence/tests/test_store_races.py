"""Calls from outside, live sessions and cancelling, all at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from dsh.session import (
    SessionEvent,
    UnknownData,
)
from dsh.session.testing import types_of, write_turn
from dsh.session_persistence import (
    PersistenceError,
    SessionInUse,
    StoredSession,
    StoredSessionExists,
    StoredSessionNotFound,
)
from dsh.session_persistence.testing import MemoryDisk

# --- races with calls from outside ---------------------------------------------------------------


async def test_a_session_that_becomes_live_before_a_load_runs_is_seen(
    open_bench: Any, gate_of: Any, open_turn: Any, log: Any
) -> None:
    # case: PS-28
    disk = MemoryDisk()
    gate = gate_of(disk)
    refused: list[SessionInUse] = []
    async with open_bench(disk) as bench:
        await bench.fill()

        async def load() -> None:
            try:
                await bench.store.load("s")
            except SessionInUse as error:
                refused.append(error)

        gate.hold("list")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.store.list)
            await gate.reached()
            tasks.start_soon(load)
            await anyio.wait_all_tasks_blocked()
            threading.Thread(target=gate.let_go).start()
            bench.passing(seed=log)
            session = bench.sessions.get("s")
            open_turn(session)
        session = bench.sessions.get("s")
        assert [error.code for error in refused] == ["SESSION_IN_USE"]
        await bench.sessions.flush(session)
        assert disk.events("s") == session.events[:]
        assert types_of(disk.events("s"))[-1] == "turn/start"


async def test_a_session_that_becomes_live_before_an_append_runs_is_left_alone(
    open_bench: Any, gate_of: Any, log: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        await bench.store.create(bench.header("new"))
        await bench.fill("old")
        event = SessionEvent(len(log), 0, UnknownData("x/y", {}))
        failed: list[type[Exception]] = []

        async def append(id: str, batch: tuple[SessionEvent, ...]) -> None:
            try:
                await bench.store.append(id, batch)
            except PersistenceError as error:
                failed.append(type(error))

        gate.hold("list")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.store.list)
            await gate.reached()
            tasks.start_soon(append, "old", (event,))
            tasks.start_soon(append, "new", log)
            await anyio.wait_all_tasks_blocked()
            threading.Thread(target=gate.let_go).start()
            bench.passing("old", seed=log)
            bench.passing("new")
        assert failed == [SessionInUse, SessionInUse]
        for session in bench.sessions.list():
            write_turn(session)
            await bench.sessions.flush(session)
            assert disk.events(session.id) == session.events[:]
        assert disk.owners.keys() == {"old", "new"}


async def test_a_session_that_is_disposed_of_while_it_is_loaded_is_loaded(
    open_bench: Any, gate_of: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    loaded: list[StoredSession] = []
    async with open_bench(disk) as bench:
        session, end = bench.passing()
        write_turn(session)

        async def load() -> None:
            loaded.append(await bench.store.load("s"))

        gate.hold("write")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            await gate.reached()
            end()
            gate.let_go()
        assert loaded[0].events == session.events[:]
        await bench.still()
        assert disk.owners == {}


async def test_a_live_session_that_was_never_written_is_not_there(open_bench: Any) -> None:
    # case: PS-27
    async with open_bench() as bench:
        bench.live()
        with pytest.raises(StoredSessionNotFound):
            await bench.store.load("s")


async def test_a_turn_that_opens_during_a_load_is_seen(
    open_bench: Any, gate_of: Any, open_turn: Any
) -> None:
    # case: PS-27
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session = bench.live()
        write_turn(session)
        gate.hold("write")
        async with anyio.create_task_group() as tasks:

            async def load() -> None:
                with pytest.raises(SessionInUse, match="turn 2 open"):
                    await bench.store.load("s")

            tasks.start_soon(load)
            await gate.reached()
            open_turn(session)
            gate.let_go()


async def test_remove_drops_what_a_gone_session_could_not_write(open_bench: Any) -> None:
    async with open_bench() as bench:
        session, end = bench.passing()
        write_turn(session)
        await bench.sessions.flush(session)
        write_turn(session)
        bench.disk.failures.extend(OSError("no space") for _ in range(9))
        end()
        await bench.still()
        await bench.store.remove("s")
        assert bench.disk.files == {}
        assert bench.disk.owners == {}
        bench.disk.failures.clear()
    assert bench.disk.files == {}


# --- cancelling ----------------------------------------------------------------------------------


async def cancelled_while(step: Callable[[], Any], gate: Any, call: str) -> None:
    """Cancel a call while the backend does its work, by its scope."""
    gate.hold(call)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(step)
        await gate.reached()
        tasks.cancel_scope.cancel()
        gate.let_go()


@pytest.mark.parametrize("call", ["acquire", "read", "write", "release"])
async def test_a_load_that_is_cancelled_ends_as_a_whole(
    open_bench: Any, gate_of: Any, open_turn: Any, call: str
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session, end = bench.passing()
        open_turn(session)
        end()
        await bench.still()
        bench.store._ownership._loaded.clear()
        await cancelled_while(lambda: bench.store.load("s"), gate, call)
        assert disk.owners == {}
        assert types_of(disk.events("s")) == ["turn/start", "turn/end"]
        assert (await bench.store.load("s")).events == disk.events("s")
        assert disk.writes == 2


async def test_a_flush_that_is_cancelled_has_written(open_bench: Any, gate_of: Any) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session = bench.live()
        write_turn(session)
        await cancelled_while(lambda: bench.sessions.flush(session), gate, "write")
        assert disk.events("s") == session.events[:]
        write_turn(session)
        await bench.sessions.flush(session)
        assert disk.writes == 2
        assert disk.events("s") == session.events[:]


async def test_a_call_that_is_cancelled_while_it_waits_does_nothing(
    open_bench: Any, gate_of: Any, log: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        await bench.fill()
        await bench.store.create(bench.header("new"))
        gate.hold("list")
        async with anyio.create_task_group() as outer:
            outer.start_soon(bench.store.list)
            await gate.reached()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bench.store.load, "s")
                tasks.start_soon(bench.store.append, "new", log)
                tasks.start_soon(bench.store.remove, "s")
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            gate.let_go()
        assert disk.events("s") == log
        assert disk.events("new") == ()
        await bench.store.append("new", log)
        assert disk.events("new") == log


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_asyncio_cancels_parts_nothing(
    open_bench: Any, gate_of: Any, open_turn: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        session = bench.live()
        open_turn(session)
        for step in range(4):
            session.append(UnknownData("x/y", {"before": step}))
            gate.hold("write")
            task = asyncio.get_running_loop().create_task(bench.sessions.flush(session))
            await gate.reached()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            session.append(UnknownData("x/y", {"after": step}))
            other = asyncio.get_running_loop().create_task(bench.sessions.flush(session))
            await anyio.lowlevel.checkpoint()
            gate.let_go()
            await other
            assert disk.events("s") == session.events[:]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_append_that_asyncio_cancels_leaves_a_live_session_alone(
    open_bench: Any, gate_of: Any, log: Any
) -> None:
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        await bench.fill()
        event = SessionEvent(len(log), 0, UnknownData("x/y", {}))
        gate.hold("write")
        task = asyncio.get_running_loop().create_task(bench.store.append("s", [event]))
        await gate.reached()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        threading.Thread(target=gate.let_go).start()
        with pytest.raises(StoredSessionExists):
            bench.passing(seed=log)
        session, _ = bench.passing(seed=(*log, event))
        write_turn(session)
        await bench.sessions.flush(session)
        assert disk.events("s") == session.events[:]
        assert disk.owners.keys() == {"s"}
