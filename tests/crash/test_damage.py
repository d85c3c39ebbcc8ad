"""Files that were cut, or in which a bit has flipped, as a program meets them.

A log is loaded up to a place before the damage, at least as far as it had been committed, or it is
refused with the place; it never has a wrong event. The tests of the stores go through every byte;
here it is a choice, and all that is offered for it is tried: verify, load, salvage.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from dsh.core import App
from dsh.session import (
    AssistantChunk,
    LiveSessions,
    Session,
    SessionEvent,
    SessionHeader,
    interrupted_turn_closers,
)
from dsh.session.testing import assert_balanced, write_turn
from dsh.session_persistence import (
    FormatUnsupported,
    IntegrityReport,
    PersistenceError,
    SessionCorrupt,
    SessionPersistence,
    StoredSessionNotFound,
)
from dsh.session_persistence_jsonl import JsonlPersistence
from dsh.session_persistence_sqlite import SqlitePersistence

Events = tuple[SessionEvent, ...]
Choose = Callable[[int, int], list[int]]

HEADER: Final = SessionHeader(id="s", created_at=1_700_000_000_000, cwd="/w")
SEED: Final = 11
FINE: Final = {"whole", "cut", "nothing", "refused", "salvaged", "unreadable"}


@pytest.fixture(scope="module")
def log() -> Events:
    """Two turns, and one that breaks off in the middle of an answer."""
    session = Session("s")
    for prompt in ("one", "two ü\u2028"):
        write_turn(session, prompt)
    end = session.seq
    write_turn(session, "three")
    rest = session.events[end:]
    last = max(
        number for number, event in enumerate(rest) if isinstance(event.data, AssistantChunk)
    )
    return (*session.events[:end], *rest[: last - 1])


@dataclass(frozen=True, slots=True)
class Shelf:
    """One stored session, and how much was acknowledged when its file had which length."""

    store: str
    folder: Path
    file: Path
    """The file that is damaged."""
    log: Events
    lengths: list[tuple[int, int]]

    def mount(self, folder: Path) -> tuple[Any, dict[str, object]]:
        """Return the plugin and its configuration."""
        if self.store.startswith("sqlite"):
            return SqlitePersistence, {"file": str(folder / "sessions.sqlite")}
        kind = "zstd" if self.store == "zstd" else "none"
        return JsonlPersistence, {"folder": str(folder), "compression": kind}

    def durable(self, length: int) -> int:
        """Return how many events had been acknowledged by the time the file was so long."""
        return max((count for end, count in self.lengths if end <= length), default=0)

    def copied(self, folder: Path, data: bytes) -> Path:
        """Make a copy with other bytes in the file; return that file."""
        shutil.copytree(self.folder, folder)
        file = folder / self.file.relative_to(self.folder)
        file.write_bytes(data)
        return file


async def put(store: str, folder: Path, log: Events) -> Shelf:
    """Store a log, batch by batch."""
    shelf = Shelf(store, folder, folder / "sessions.sqlite", log, [])
    if store == "sqlite-wal":
        shelf = Shelf(
            store, folder / "crashed", folder / "crashed" / "sessions.sqlite-wal", log, []
        )
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(*shelf.mount(folder)).settled()
        service = app[SessionPersistence]
        await service.create(HEADER)
        for start in range(0, len(log), 7):
            batch = log[start : start + 7]
            await service.append("s", batch)
            grown = folder / "sessions.sqlite-wal"
            if not store.startswith("sqlite"):
                grown = Path(service.locate(HEADER) or "")
                shelf = Shelf(store, folder, grown, log, shelf.lengths)
            shelf.lengths.append((grown.stat().st_size, batch[-1].seq + 1))
        if store == "sqlite-wal":
            shelf.folder.mkdir()
            for name in ("sessions.sqlite", "sessions.sqlite-wal"):
                shutil.copyfile(folder / name, shelf.folder / name)
    if store == "sqlite":
        shelf.lengths[:] = [(shelf.file.stat().st_size, len(log))]
    return shelf


class Examined:
    """What became of a damaged session.

    Args:
        shelf: The session as it was.
        folder: A copy of the store.
        file: The damaged file in it.
        least: How many events have to be there if it can be loaded.
        grown: Whether it is as long as it was; nobody can tell one that ends behind a batch.
    """

    def __init__(self, shelf: Shelf, folder: Path, file: Path, least: int, grown: bool) -> None:
        self._shelf = shelf
        self._folder = folder
        self._file = file
        self._least = least
        self._grown = grown

    async def outcome(self) -> str:
        """Try all that is offered, and return what the session came to.

        Raises:
            PersistenceError: The store as a whole cannot be used.
        """
        before = self._file.read_bytes()
        async with App() as app:
            await app.mount(LiveSessions).settled()
            await app.mount(*self._shelf.mount(self._folder)).settled()
            store = app[SessionPersistence]
            try:
                report = await store.verify("s")
            except (FormatUnsupported, StoredSessionNotFound):
                report = None
            try:
                loaded = (await store.load("s")).events
            except StoredSessionNotFound:
                assert self._least == 0, "it is said to be not there"
                return "nothing"
            except (SessionCorrupt, FormatUnsupported) as error:
                refusal = error
            else:
                return await self._loaded(store, loaded, report)
            assert str(self._file.parent) in str(refusal.location)
            assert report is None or report.damage
            if self._shelf.store in ("jsonl", "zstd"):
                assert self._file.read_bytes() == before, "it was changed"
            return await self._salvaged(store, before)

    async def _loaded(
        self, store: SessionPersistence, loaded: Events, report: IntegrityReport | None
    ) -> str:
        count = self._check(loaded)
        assert count >= self._least, f"{count} of {self._least} acknowledged events are left"
        assert (await store.load("s")).events == loaded
        assert await store.read_from("s", 0) == loaded
        if count == len(self._shelf.log):
            return "whole"
        if self._grown:
            self._told(report)
        return "cut"

    def _check(self, loaded: Events) -> int:
        """Return how many events of the log are left; fail if there are others."""
        log, count = self._shelf.log, 0
        while count < min(len(log), len(loaded)) and log[count] == loaded[count]:
            count += 1
        assert loaded[count:] in (
            interrupted_turn_closers(log[:count]),
            interrupted_turn_closers(log[:count], more_was_lost=True),  # a line without its end
        )
        assert_balanced(loaded)
        return count

    def _told(self, report: IntegrityReport | None) -> None:
        """What was cut was told before, and is kept if it was more than a line that broke off."""
        if report is None or report.torn:
            return
        assert report.damage
        if self._shelf.store in ("jsonl", "zstd"):
            assert [path for path in self._file.parent.iterdir() if path.name.startswith("cut-")]

    def _kept(self, report: IntegrityReport, before: bytes) -> None:
        assert report.copy is not None
        copy = Path(report.copy).read_bytes()
        assert copy
        if self._shelf.store in ("jsonl", "zstd"):
            assert copy == before

    async def _salvaged(self, store: SessionPersistence, before: bytes) -> str:
        try:
            report = await store.salvage("s")
        except PersistenceError as error:
            return "refused" if error.location else f"refused without a place: {error}"
        self._kept(report, before)
        kept = self._shelf.log[: report.events]
        lost = bool(report.damage)
        closed = (*kept, *interrupted_turn_closers(kept, more_was_lost=lost))
        assert (await store.load("s")).events == closed
        assert await store.read_from("s", 0) == closed
        after = await store.verify("s")
        # damage of the whole database is not the session's, and stays
        assert [item for item in after.damage if item.seq is not None] == []
        assert after.sound or self._shelf.store == "sqlite"
        return "salvaged"


def examined(shelf: Shelf, place: Path, data: bytes, least: int, where: str, grown: bool) -> str:
    """Examine a copy with other bytes; what fails says where they differ."""
    folder = place / where
    file = shelf.copied(folder, data)
    try:
        return anyio.run(Examined(shelf, folder, file, least, grown).outcome)
    except PersistenceError as error:
        if shelf.store.startswith("sqlite") and error.location:
            return "unreadable"
        raise
    except BaseException as error:
        error.add_note(f"{shelf.store}: {where}")
        raise
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("store", ["jsonl", "zstd", "sqlite", "sqlite-wal"])
def test_a_file_that_was_cut(place: Path, log: Events, chosen: Choose, store: str) -> None:
    shelf = anyio.run(put, store, place / "whole", log)
    whole = shelf.file.read_bytes()
    outcomes: Counter[str] = Counter()
    assert len(whole) > 3000
    for length in chosen(len(whole), 60):
        where = f"cut-at-{length}"
        outcomes[
            examined(shelf, place, whole[:length], shelf.durable(length), where, grown=False)
        ] += 1
    assert outcomes["cut"] or outcomes["unreadable"], outcomes
    assert set(outcomes) <= FINE, outcomes


@pytest.mark.parametrize("store", ["jsonl", "zstd", "sqlite"])
def test_a_bit_that_has_flipped(place: Path, log: Events, chosen: Choose, store: str) -> None:
    shelf = anyio.run(put, store, place / "whole", log)
    whole = shelf.file.read_bytes()
    committed = 1 + max(event.seq for event in log if event.type == "turn/end")
    chance = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    for at in chosen(len(whole), 100):
        data, bit = bytearray(whole), chance.randrange(8)
        data[at] ^= 1 << bit
        outcomes[
            examined(shelf, place, bytes(data), committed, f"byte-{at}-bit-{bit}", grown=True)
        ] += 1
    assert outcomes["salvaged"], outcomes
    assert set(outcomes) <= FINE, outcomes
