"""Cancel, dispose and unload at every backend call and every step of the scheduler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
import trio

from dsh.core import InactiveContextError, MissingServiceError
from dsh.session import MessageTrigger, Session, StepStart, TurnStart, UserSource
from dsh.session.errors import LiveSessionError
from dsh.session.testing import assert_balanced, worked_turn, write_turn
from dsh.session_persistence import PersistenceError, StoredSession
from dsh.session_persistence.testing import MemoryDisk

LOG = worked_turn()
INTERRUPTED = Session("seed", LOG)
INTERRUPTED.append(TurnStart(2, MessageTrigger(UserSource())))
INTERRUPTED.append(StepStart(2, 1))


class Scene:
    """A stored session "old" that breaks off in a turn, a live one "s" with events that wait."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.session: Session
        self.end: Callable[[], None]
        self.resumed: list[Session] = []
        self.acknowledged: list[int] = []
        self.loaded: list[StoredSession] = []

    async def prepare(self) -> None:
        before, end = self.bench.passing("old", seed=INTERRUPTED.events[:])
        end()
        await self.bench.still()
        assert self.bench.disk.events("old") == before.events[:]
        self.session, self.end = self.bench.passing("s")
        write_turn(self.session)

    # what is swept

    async def flush(self) -> None:
        seq = self.session.seq
        await self.bench.sessions.flush(self.session)
        self.acknowledged.append(seq)

    async def load(self) -> None:
        self.loaded.append(await self.bench.store.load("old"))

    async def resume(self) -> None:
        loaded = await self.bench.store.load("old")
        session, _ = self.bench.passing("old", seed=loaded.events)
        self.resumed.append(session)
        write_turn(session)
        await self.bench.sessions.flush(session)

    async def load_live(self) -> None:
        loaded = await self.bench.store.load("s")
        self.acknowledged.append(len(loaded.events))

    async def restart(self) -> None:
        await self.bench.mount.restart()

    # what is done to it

    def cancel(self, scope: anyio.CancelScope) -> None:
        scope.cancel()

    def dispose(self, scope: anyio.CancelScope) -> None:
        if self.bench.sessions.get("s") is self.session:
            self.end()

    def unload(self, scope: anyio.CancelScope) -> None:
        self.bench.mount.request_dispose()

    def append(self, scope: anyio.CancelScope) -> None:
        write_turn(self.session)

    async def check(self) -> None:
        """Whatever happened: nothing acknowledged is lost, and nobody holds what is over."""
        bench, disk = self.bench, self.bench.disk
        if not bench.mount.ending:
            await bench.mount.settled()
            await bench.still()
            if bench.sessions.get("s") is self.session:
                await bench.sessions.flush(self.session)
                assert disk.events("s") == self.session.events[:]
            expected = {session.id for session in bench.sessions.list()}
            assert disk.owners.keys() <= expected
        else:
            await bench.mount.dispose()
            assert disk.owners == {}
        stored, log = disk.events("s"), self.session.events[:]
        assert stored == log[: len(stored)], "what is stored is no beginning of the log"
        assert len(stored) >= max(self.acknowledged, default=0), "an acknowledged event is lost"
        self.check_old(disk.events("old"))

    def check_old(self, stored: Any) -> None:
        head = INTERRUPTED.events[:]
        assert stored[: len(head)] == head
        assert_balanced(stored[: len(head) + 2] if len(stored) > len(head) else LOG)
        for session in self.resumed:
            assert stored == session.events[: len(stored)]
        for loaded in self.loaded:
            assert stored == loaded.events


DEEDS = ["flush", "load", "resume", "load_live", "restart"]
AWAY = (InactiveContextError, MissingServiceError, LiveSessionError)
"""What is raised where the store, or the session, has been taken away."""
BLOWS = ["cancel", "dispose", "unload", "append"]


async def run(deed: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
    with scope, suppress(PersistenceError, ExceptionGroup, *AWAY):
        await deed()


@pytest.mark.parametrize("blow", BLOWS)
@pytest.mark.parametrize("deed", DEEDS)
async def test_at_every_backend_call(open_bench: Any, gate_of: Any, deed: str, blow: str) -> None:
    place = 0
    with anyio.fail_after(60):
        while await swept(open_bench, gate_of, deed, blow, place):
            place += 1
    assert place >= 1


async def swept(open_bench: Any, gate_of: Any, deed: str, blow: str, place: int) -> bool:
    """Strike at one backend call of a deed; False if it makes fewer."""
    disk = MemoryDisk()
    gate = gate_of(disk)
    async with open_bench(disk) as bench:
        scene = Scene(bench)
        await scene.prepare()
        gate.hold_call(place)
        over = anyio.Event()
        struck = False

        async def act() -> None:
            await run(getattr(scene, deed), scope)
            over.set()
            gate.give_up()

        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act)
            await gate.reached()
            struck = not over.is_set()
            if struck:
                getattr(scene, blow)(scope)
            gate.let_go()
            with anyio.fail_after(20):
                await over.wait()
        await scene.check()
    return struck


class Steps(trio.abc.Instrument):
    """Does something before the n-th time a task of the app runs."""

    def __init__(self, number: int, strike: Callable[[], None]) -> None:
        self.left = number
        self.strike = strike

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.left == 0:
            # not from inside the scheduler
            trio.lowlevel.current_trio_token().run_sync_soon(self.strike)
        self.left -= 1


@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("blow", BLOWS)
@pytest.mark.parametrize("deed", DEEDS)
async def test_at_every_step_of_the_scheduler(open_bench: Any, deed: str, blow: str) -> None:
    for number in range(400):
        async with open_bench() as bench:
            scene = Scene(bench)
            await scene.prepare()
            scope = anyio.CancelScope()
            struck = False

            def strike(scene: Scene = scene, scope: anyio.CancelScope = scope) -> None:
                getattr(scene, blow)(scope)

            steps = Steps(number, strike)
            trio.lowlevel.add_instrument(steps)
            await run(getattr(scene, deed), scope)
            struck = steps.left < 0
            steps.left = -1
            trio.lowlevel.remove_instrument(steps)
            await anyio.wait_all_tasks_blocked()  # a late blow falls
            await scene.check()
        if not struck:
            return
    raise AssertionError("the sweep did not come to an end")
