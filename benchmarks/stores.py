"""What it costs to keep sessions, against the least that keeps or reads the same bytes.

Usage: `python -m benchmarks.stores SUBJECT COUNT`, the subjects being:

    flush       COUNT tool rounds with a flush after each, in a file of JSON lines: milliseconds of
                a flush (`dsh`), of one with the appends before it (`whole`), of writing and
                syncing the same bytes to an open file (`floor`), and of that in a worker thread
                (`thread`)
    commit      the same in SQLite, against inserting the same rows and committing
    load        a log of COUNT events, one a line: seconds to load it (`dsh`), and to parse its
                lines with pydantic-core alone, into events (`floor`) and into dictionaries
                (`untyped`); and to load it as it is stored by default (`packed`)
    listing     COUNT sessions: milliseconds until an app that has just started has listed them,
                from JSON lines (`files`) and from SQLite (`database`)
    stored      an answer of COUNT deltas at the pace of a provider, written as often as it is by
                default: bytes for each byte of its text, plain (`plain`) and compressed (`zstd`)

Everything is kept in a temporary folder: TMPDIR says on which disk.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread
from pydantic_core import from_json

from benchmarks.logs import STARTED, Answers, begin_turn, prose, write_round
from benchmarks.meter import report
from dsh.core import App
from dsh.session import AssistantChunk, LiveSessions, SessionEvent, SessionHeader, decode_event
from dsh.session.testing import worked_turn
from dsh.session_persistence import SessionPersistence
from dsh.session_persistence.backend import BackedPersistence, SummaryFold
from dsh.session_persistence_jsonl import JsonlBackend, JsonlPersistence
from dsh.session_persistence_sqlite import SqlitePersistence

T = TypeVar("T")

TIMES = 5
"""So often something long is measured."""

DELTAS_A_TURN = 200
"""Deltas in each answer of a long log."""

SEAL_BYTES = len(b',"crc":"00000000"}\n')
"""What the checksum takes at the end of a line."""

PROJECTS = 100
"""Working directories that many sessions are spread over."""


@asynccontextmanager
async def opened(provider: type[BackedPersistence], **config: object) -> AsyncGenerator[App]:
    """Run an app with a store of sessions."""
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(provider, config).settled()
        yield app


# --- writing ------------------------------------------------------------------------------


class Floor(ABC, Generic[T]):
    """Writes again what a store has just written, and nothing else."""

    @abstractmethod
    def written(self) -> T:
        """Return what the store has written since this was last asked."""

    @abstractmethod
    def write(self, data: T) -> None:
        """Write it; it is durable when this returns."""


class Lines(Floor[bytes]):
    """Bytes of a file."""

    def __init__(self, log: Path, folder: Path) -> None:
        self._log = log.open("rb")
        self._file = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT, 0o600)

    def written(self) -> bytes:
        """Return the bytes that have been added."""
        return self._log.read()

    def write(self, data: bytes) -> None:
        """Add them to another file."""
        os.write(self._file, data)
        os.fsync(self._file)


class Rows(Floor[list[Any]]):
    """Rows of a table."""

    def __init__(self, database: Path, folder: Path) -> None:
        self._database = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        self._count = 0
        self._floor = sqlite3.connect(folder / "floor", isolation_level=None)
        self._floor.execute("PRAGMA journal_mode = WAL")
        self._floor.execute("PRAGMA synchronous = FULL")
        query = "SELECT sql FROM sqlite_master WHERE name = 'events'"
        (table,) = self._database.execute(query).fetchone()
        self._floor.execute(table.replace(" REFERENCES sessions (id) ON DELETE CASCADE", ""))

    def written(self) -> list[Any]:
        """Return the rows that have been added."""
        query = "SELECT * FROM events WHERE session_id = 's' AND seq >= ?"
        rows = self._database.execute(query, (self._count,)).fetchall()
        self._count += len(rows)
        return rows

    def write(self, data: list[Any]) -> None:
        """Insert them in another database."""
        self._floor.execute("BEGIN IMMEDIATE")
        self._floor.executemany(f"INSERT INTO events VALUES ({', '.join('?' * 9)})", data)
        self._floor.execute("COMMIT")


async def flush(count: int, folder: Path) -> None:
    """Measure a flush of JSON lines."""
    config = {"folder": str(folder / "sessions")}
    await _rounds(count, JsonlPersistence, config, lambda log: Lines(log, folder))


async def commit(count: int, folder: Path) -> None:
    """Measure a flush to SQLite."""
    config = {"file": str(folder / "sessions.sqlite")}
    await _rounds(count, SqlitePersistence, config, lambda file: Rows(file, folder))


async def _rounds(
    count: int,
    provider: type[BackedPersistence],
    config: Mapping[str, object],
    make_floor: Callable[[Path], Floor[Any]],
) -> None:
    taken: dict[str, list[float]] = {name: [] for name in ("dsh", "whole", "floor", "thread")}
    async with opened(provider, **config) as app:
        sessions, clock = app[LiveSessions], time.perf_counter
        session = sessions.create(app.ctx, "s")
        begin_turn(session)
        await sessions.flush(session)
        floor = make_floor(Path(app[SessionPersistence].locate(session.header) or ""))
        floor.written()
        for step in range(1, count + 1):
            start = clock()
            write_round(session, step)
            appended = clock()
            await sessions.flush(session)
            end = clock()
            taken["whole"].append(end - start)
            taken["dsh"].append(end - appended)
            data = floor.written()
            start = clock()
            floor.write(data)
            taken["floor"].append(clock() - start)
            # the rows are there already
            if isinstance(floor, Lines):
                start = clock()
                await anyio.to_thread.run_sync(floor.write, data)
                taken["thread"].append(clock() - start)
    report(**{name: 1000 * statistics.median(found) for name, found in taken.items() if found})


# --- reading ------------------------------------------------------------------------------


async def load(count: int, folder: Path) -> None:
    """Measure loading a long log."""
    answers = Answers(prose())
    while len(answers.events) < count:
        answers.turn(DELTAS_A_TURN)
    log = answers.events
    places = {packed: folder / f"packed-{packed}" for packed in (False, True)}
    files = {packed: _write(place, [log], packed=packed) for packed, place in places.items()}
    with files[False].open("rb") as file:
        next(file)  # the header
        lines = [line[:-SEAL_BYTES] + b"}" for line in file]
    taken: dict[str, list[float]] = {"dsh": [], "floor": [], "untyped": [], "packed": []}
    for _ in range(1 + TIMES):
        taken["dsh"].append(await _load(places[False], len(log)))
        taken["floor"].append(_parse(decode_event, lines))
        taken["untyped"].append(_parse(from_json, lines))
        taken["packed"].append(await _load(places[True], len(log)))
    report(events=len(log), **{name: statistics.median(found[1:]) for name, found in taken.items()})


async def _load(place: Path, count: int) -> float:
    async with opened(JsonlPersistence, folder=str(place)) as app:
        gc.collect()
        start = time.perf_counter()
        stored = await app[SessionPersistence].load("s")
        end = time.perf_counter()
        assert len(stored.events) == count
    return end - start


def _parse(parse: Callable[[bytes], object], lines: Sequence[bytes]) -> float:
    gc.collect()
    start = time.perf_counter()
    parsed = [parse(line) for line in lines]
    end = time.perf_counter()
    assert len(parsed) == len(lines)
    return end - start


async def listing(count: int, folder: Path) -> None:
    """Measure listing many sessions."""
    files = {"folder": str(folder / "sessions")}
    database = {"file": str(folder / "sessions.sqlite")}
    report(
        files=await _list(JsonlPersistence, files, count),
        database=await _list(SqlitePersistence, database, count),
    )


async def _list(
    provider: type[BackedPersistence], config: Mapping[str, object], count: int
) -> float:
    turn = worked_turn()
    async with opened(provider, **config) as app:
        store = app[SessionPersistence]
        for number in range(count):
            header = SessionHeader(
                id=f"session-{number}", created_at=STARTED, cwd=f"/home/me/{number % PROJECTS}"
            )
            await store.create(header)
            await store.append(header.id, turn)
    taken: list[float] = []
    for _ in range(TIMES):
        async with opened(provider, **config) as app:
            gc.collect()
            start = time.perf_counter()
            shown = await app[SessionPersistence].list_snapshots()
            taken.append(time.perf_counter() - start)
            assert len(shown) == count
            assert all(item.summary.turns == 1 for item in shown)
    return 1000 * statistics.median(taken)


# --- room ---------------------------------------------------------------------------------


async def stored(count: int, folder: Path) -> None:
    """Measure the room that an answer takes."""
    answers = Answers(prose())
    text = answers.turn(count)
    batches = list(_batches(answers.events, JsonlPersistence.Config()))
    sizes: dict[str, int] = {}
    for name in ("plain", "zstd"):
        file = _write(folder / name, batches, compressed=name == "zstd")
        sizes[name] = file.stat().st_size
    whole = len(text.encode())
    report(
        text=whole,
        batches=len(batches),
        plain=sizes["plain"] / whole,
        zstd=sizes["zstd"] / whole,
    )


def _batches(
    events: Sequence[SessionEvent], config: BackedPersistence.Config
) -> Generator[Sequence[SessionEvent]]:
    """Cut a log where a store writes in the background, if the clock is that of the log."""
    start, due = 0, float("inf")
    for at, event in enumerate(events):
        if event.time >= due or at - start >= config.max_unwritten // 2:
            yield events[start:at]
            start, due = at, float("inf")
        chunk = isinstance(event.data, AssistantChunk)
        window = config.write_chunks_after_ms if chunk else config.write_after_ms
        due = min(due, event.time + window)
    yield events[start:]


def _write(
    folder: Path,
    batches: Sequence[Sequence[SessionEvent]],
    *,
    compressed: bool = False,
    packed: bool = True,
) -> Path:
    """Write a session in batches, as if it were live; return its file."""
    header = SessionHeader(id="s", created_at=STARTED)
    with closing(JsonlBackend(folder, compressed=compressed, packed=packed)) as backend:
        fold = SummaryFold()
        for batch in batches:
            fold.add(batch)
            backend.write(header, batch, fold.summary)
        return Path(backend.locate(header) or "")


async def _main(subject: str, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await SUBJECTS[subject](count, Path(folder))


SUBJECTS = {
    "flush": flush,
    "commit": commit,
    "load": load,
    "listing": listing,
    "stored": stored,
}

if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], int(sys.argv[2]))
