"""A backend written from the documentation alone, as awkward as that allows."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from pydantic import ConfigDict

from dsh.core import settings
from dsh.session import Session, SessionEvent, SessionHeader, event_from_wire, event_to_wire
from dsh.session.testing import assert_balanced, write_turn
from dsh.session_persistence import (
    AppendRefused,
    IntegrityReport,
    PersistenceError,
    SessionInUse,
    SessionSnapshot,
    SessionSummary,
    StoredSessionExists,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import BackedPersistence, Backend, StoredLog
from dsh.testkit.persistence_contract import PersistenceContract

T = TypeVar("T")


@dataclass(eq=False)
class Record:
    header: SessionHeader
    rows: list[Any]
    summary: SessionSummary
    revision: str
    archived: bool = False
    torn: bool = False


@dataclass(eq=False)
class Cupboard:
    """What outlives the processes: rows in wire form, and who holds which session."""

    records: dict[str, Record] = field(default_factory=dict[str, Record])
    holders: dict[str, object] = field(default_factory=dict[str, object])
    tears: bool = True
    """Whether a process that ends leaves half a row behind every log."""
    fails_every: int = 0
    """One in so many calls fails, before it has done anything."""
    chance: random.Random = field(default_factory=lambda: random.Random(4))


class AwkwardBackend(Backend):
    """Lists where tuples are usual, random revisions, torn ends, and rude errors."""

    def __init__(self, cupboard: Cupboard) -> None:
        self.cupboard = cupboard
        self.is_open = False
        self.busy = False

    def called(self) -> None:
        assert self.is_open, "a call before open, or after close"
        assert not self.busy, "two calls at a time"
        self.busy = True
        chance = self.cupboard.chance
        try:
            for _ in range(chance.randrange(200)):
                pass  # takes its time, so that threads meet here
            every = self.cupboard.fails_every
            if every and chance.randrange(every) == 0:
                raise chance.choice((OSError(5, "hiccup"), KeyError("hiccup"), SystemExit(3)))
        finally:
            self.busy = False

    def open(self) -> None:
        assert not self.is_open
        self.is_open = True

    def close(self) -> None:
        assert self.is_open
        self.is_open = False
        holders = self.cupboard.holders
        for session_id in [key for key, holder in holders.items() if holder is self]:
            del holders[session_id]
            if self.cupboard.tears and session_id in self.cupboard.records:
                record = self.cupboard.records[session_id]
                record.torn = True
                record.revision = str(uuid.uuid4())

    def acquire(self, session_id: str) -> None:
        self.called()
        self.hold(session_id)

    def hold(self, session_id: str) -> None:
        if self.cupboard.holders.setdefault(session_id, self) is not self:
            raise SessionInUse(f"somebody else has {session_id!r}")

    def release(self, session_id: str) -> None:
        assert self.is_open
        if self.cupboard.holders.get(session_id) is self:
            del self.cupboard.holders[session_id]

    def revision(self, session_id: str) -> str | None:
        self.called()
        record = self.cupboard.records.get(session_id)
        return None if record is None else record.revision

    def read(self, session_id: str) -> StoredLog:
        self.called()
        record = self.record(session_id)
        events = [event_from_wire(row) for row in record.rows]
        rest = ["half a row"] if record.torn else None
        return StoredLog(record.header, cast("Any", events), record.revision, rest)

    def read_from(self, session_id: str, from_seq: int) -> Any:
        return list(super().read_from(session_id, from_seq))

    def list(self, archived: bool) -> Generator[SessionSnapshot, None, None]:
        self.called()
        for record in self.cupboard.records.values():
            if record.archived == archived:
                size = sum(len(str(row)) for row in record.rows)
                yield SessionSnapshot(
                    record.header, record.revision, archived, record.summary, size
                )

    def write(
        self, header: SessionHeader, events: Sequence[SessionEvent], summary: SessionSummary
    ) -> None:
        self.called()
        rows = [event_to_wire(event) for event in events]
        record = self.cupboard.records.get(header.id)
        start = events[0].seq
        if record is None and start:
            raise AppendRefused(f"{header.id!r} does not begin at {start}")
        if record is not None and not start:
            raise StoredSessionExists(header.id)
        if record is not None and len(record.rows) != start:
            raise AppendRefused(f"{header.id!r} does not go on at {start}")
        self.hold(header.id)
        if record is None:
            record = self.cupboard.records[header.id] = Record(header, [], summary, "")
        assert not record.torn, "written behind half a row"
        record.rows.extend(rows)
        record.summary = summary
        record.revision = str(uuid.uuid4())

    def cut(self, log: StoredLog) -> None:
        self.called()
        assert log.rest == ["half a row"]
        record = self.record(log.header.id)
        assert self.cupboard.holders.get(log.header.id) is self, "cut without the right to"
        if record.revision != log.revision:
            raise AppendRefused("it has changed since")
        record.torn = False
        record.revision = str(uuid.uuid4())

    def set_archived(self, session_id: str, archived: bool) -> None:
        self.called()
        self.record(session_id).archived = archived

    def remove(self, session_id: str) -> None:
        self.called()
        self.record(session_id)
        del self.cupboard.records[session_id]

    def verify(self, session_id: str) -> IntegrityReport:
        self.called()
        record = self.record(session_id)
        kinds = [row["type"] for row in record.rows if row["type"].startswith("turn/")]
        open_turn = kinds[-1:] == ["turn/start"]
        return IntegrityReport(
            session_id, None, len(record.rows), torn=record.torn, interrupted=open_turn
        )

    def salvage(self, session_id: str) -> IntegrityReport:
        return self.verify(session_id)

    def record(self, session_id: str) -> Record:
        if session_id not in self.cupboard.records:
            raise StoredSessionNotFound(session_id)
        return self.cupboard.records[session_id]


class AwkwardPersistence(BackedPersistence):
    class Config(BackedPersistence.Config):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        cupboard: Cupboard

    config = settings(Config)

    def make_backend(self) -> Backend:
        return AwkwardBackend(self.config.cupboard)


class TestAwkward(PersistenceContract):
    provider = AwkwardPersistence

    def config(self, folder: Path) -> dict[str, Cupboard]:
        return {"cupboard": Cupboard(tears=False)}


class TestTornAtEveryEnd(PersistenceContract):
    """A process that ends leaves half a row: only what looks at revisions minds."""

    provider = AwkwardPersistence

    def config(self, folder: Path) -> dict[str, Cupboard]:
        return {"cupboard": Cupboard()}


def is_hiccup(error: BaseException) -> bool:
    """Tell a failure of the backend from a refusal."""
    return type(error) is PersistenceError


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return what a group comes down to."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [leaf for each in inner for leaf in leaves_of(each)]


async def again(step: Callable[[], Awaitable[T]], tries: int = 50) -> T:
    """Do what fails now and then until it works."""
    for _ in range(tries):
        result: list[T] = []
        refusals: list[BaseException] = []
        try:
            result.append(await step())
        except* PersistenceError as group:
            leaves = [leaf for error in group.exceptions for leaf in leaves_of(error)]
            refusals.extend(leaf for leaf in leaves if not is_hiccup(leaf))
        assert refusals == []
        if result:
            return result[0]
    raise AssertionError("it never worked")


def resumed(bench: Any, seed: tuple[SessionEvent, ...]) -> Session:
    """Make a session live, which fails now and then, too."""
    while True:
        try:
            session, _ = bench.passing("s", seed=seed)
        except SystemExit:
            continue  # on the event loop's thread it is not told from a real one
        except PersistenceError as error:
            if not is_hiccup(error):
                raise
        else:
            return session


@pytest.mark.parametrize("every", [2, 3, 5])
async def test_a_backend_that_fails_now_and_then_loses_nothing(open_bench: Any, every: int) -> None:
    cupboard = Cupboard(fails_every=every)
    seed: tuple[SessionEvent, ...] = ()
    for life in range(5):
        async with open_bench(store=False) as bench:
            await bench.app.mount(AwkwardPersistence, {"cupboard": cupboard}).settled()
            if life:
                seed = (await again(lambda: bench.store.load("s"))).events
                assert_balanced(seed)
            session = resumed(bench, seed)
            write_turn(session)
            await again(partial(bench.sessions.flush, session))
            acknowledged = session.seq
            write_turn(session)
            await again(bench.store.list)
        assert cupboard.holders == {}
        stored = tuple(event_from_wire(row) for row in cupboard.records["s"].rows)
        assert len(stored) >= acknowledged
        assert stored == session.events[: len(stored)]
