"""Random lives of sessions against a model made of lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.session import Session, SessionEvent, SessionMeta
from dsh.session.testing import assert_balanced, write_turn
from dsh.session_persistence import PersistenceError, StoredSessionNotFound
from dsh.session_persistence.testing import MemoryDisk

IDS = "ab"
DEEDS = ["create", "resume", "turn", "break_off", "dispose", "load", "flush", "look", "remove"]
ONE = st.tuples(st.sampled_from(DEEDS), st.sampled_from(IDS))
Step = tuple[str, list[tuple[str, str]]]
STILL: Step = ("still", [])
RESTART: Step = ("restart", [])
STEP: st.SearchStrategy[Step] = st.one_of(
    ONE.map(lambda deed: ("one", [deed])),
    st.lists(ONE, min_size=2, max_size=4).map(lambda deeds: ("together", deeds)),
    st.just(RESTART),
    st.integers(1, 3).map(lambda count: ("fail", [("", str(count))])),
    st.just(STILL),
)


class World:
    """What was done so far, and what must be true of it."""

    def __init__(self, bench: Any, open_turn: Callable[[Session], None]) -> None:
        self.bench = bench
        self.open_turn = open_turn
        self.live: dict[str, tuple[Session, Callable[[], None]]] = {}
        self.log: dict[str, tuple[SessionEvent, ...]] = dict.fromkeys(IDS, ())
        """What each id's last session, or its repair, came to when it was last looked at."""
        self.acknowledged = dict.fromkeys(IDS, 0)

    async def take(self, step: tuple[str, list[tuple[str, str]]]) -> None:
        kind, deeds = step
        match kind:
            case "restart":
                await self.bench.mount.restart()
                for id in IDS:
                    if id not in self.live:
                        # what a gone session could not even write now is told, and lost
                        self.log[id] = self.bench.disk.events(id)
            case "fail":
                count = int(deeds[0][1])
                self.bench.disk.failures.extend(OSError("no space") for _ in range(count))
            case "still":
                await self.bench.still()
            case _:
                async with anyio.create_task_group() as tasks:
                    for name, id in deeds:
                        tasks.start_soon(self.do, getattr(self, name), id)
        self.check()

    async def do(self, deed: Callable[[str], Awaitable[None]], id: str) -> None:
        with suppress(PersistenceError, ExceptionGroup):
            await deed(id)

    def check(self) -> None:
        for id in IDS:
            if id in self.live:
                self.log[id] = self.live[id][0].events[:]
            stored = self.bench.disk.events(id)
            assert stored == self.log[id][: len(stored)]
            assert len(stored) >= self.acknowledged[id], "an acknowledged event is lost"

    # --- deeds ----------------------------------------------------------------------------

    async def create(self, id: str) -> None:
        await self.enter(id, ())

    async def resume(self, id: str) -> None:
        await self.load(id)
        await self.enter(id, self.log[id])

    async def enter(self, id: str, seed: tuple[SessionEvent, ...]) -> None:
        if id not in self.live:
            self.live[id] = self.bench.passing(id, seed=seed, meta=SessionMeta(created_at=1))

    async def turn(self, id: str) -> None:
        if id in self.live and self.live[id][0].turn_open is None:
            write_turn(self.live[id][0], tool=False)

    async def break_off(self, id: str) -> None:
        if id in self.live and self.live[id][0].turn_open is None:
            self.open_turn(self.live[id][0])

    async def dispose(self, id: str) -> None:
        if id in self.live:
            session, end = self.live.pop(id)
            self.log[id] = session.events[:]
            end()

    async def load(self, id: str) -> None:
        loaded = await self.bench.store.load(id)
        assert_balanced(loaded.events)
        if id not in self.live:
            self.log[id] = loaded.events
        self.acknowledged[id] = max(self.acknowledged[id], len(loaded.events))

    async def flush(self, id: str) -> None:
        if id in self.live:
            session = self.live[id][0]
            seq = session.seq
            await self.bench.sessions.flush(session)
            self.acknowledged[id] = max(self.acknowledged[id], seq)

    async def look(self, id: str) -> None:
        seen = await self.bench.store.inspect(id)
        assert_balanced(seen.events)
        for shown in await self.bench.store.list_snapshots():
            assert shown.summary.events == len(self.bench.disk.events(shown.header.id))

    async def remove(self, id: str) -> None:
        with suppress(StoredSessionNotFound):
            await self.bench.store.remove(id)
        if id not in self.live:
            self.log[id], self.acknowledged[id] = (), 0


@pytest.fixture
def live_through(open_bench: Any, open_turn: Any) -> Any:
    async def live(steps: list[Any]) -> None:
        disk = MemoryDisk()
        with anyio.fail_after(30):
            async with open_bench(disk, write_after_ms=1, write_chunks_after_ms=1) as bench:
                world = World(bench, open_turn)
                for step in steps:
                    await world.take(step)
                disk.failures.clear()
                for id in tuple(world.live):
                    await world.dispose(id)
                world.check()
            assert disk.owners == {}
            for id in IDS:
                assert disk.events(id) == world.log[id]
            async with open_bench(disk) as later:
                for id in IDS:
                    if disk.events(id):
                        assert_balanced((await later.store.load(id)).events)

    return live


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_nothing_acknowledged_is_ever_lost(live_through: Any, backend: str) -> None:
    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(STEP, max_size=14))
    def live(steps: list[Any]) -> None:
        anyio.run(live_through, steps, backend=backend)

    live()
