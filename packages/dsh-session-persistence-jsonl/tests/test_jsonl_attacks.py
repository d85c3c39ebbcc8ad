"""Logs that were damaged anywhere, or edited by something that does not know the format.

Whatever is read is the beginning of what was written, told as such, or a refusal that names the
place. By default a sample of the bytes is tried; `DSH_EXHAUSTIVE=1` tries every one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dsh.llm import BlockEnd, BlockStart, TextBlock, TextDelta
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    MessageTrigger,
    PluginSource,
    Session,
    SessionEvent,
    SessionHeader,
    SteeringMessage,
    StepEnd,
    StepStart,
    TurnStart,
    UserSource,
    event_from_wire,
)
from dsh.session.testing import write_turn
from dsh.session_persistence import (
    FormatUnsupported,
    PersistenceError,
    SessionCorrupt,
    StoredSessionNotFound,
)
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_jsonl import JsonlBackend

Events = tuple[SessionEvent, ...]
STRIDE = 1 if os.environ.get("DSH_EXHAUSTIVE") else 61
STORES: dict[str, dict[str, Any]] = {
    "plain": {"packed": False},
    "packed": {},
    "zstd": {"compressed": True},
}


def written(name: str) -> Events:
    """Return a log with every row of the format, whose texts say whose it is; a step is open."""
    session = Session(name)
    write_turn(session, f"{name} asks")
    write_turn(session, f"{name} again", tool=False)
    note = event_from_wire(
        {"type": "acme/note", "seq": 0, "time": 1, "data": {"of": name}, "ignorable": True}
    )
    session.append(TurnStart(3, MessageTrigger(UserSource())))
    session.append(note.data)
    session.append(SteeringMessage(3, (TextBlock(name),), PluginSource("p")), APPEND)
    text = f"{name} answers at length. " * 5
    for step in (1, 2):
        session.append(StepStart(3, step))
        chunks = [
            BlockStart(0, "text"),
            *(TextDelta(0, text[at : at + 9]) for at in range(0, len(text), 9)),
            BlockEnd(0, TextBlock(text)),
        ]
        seqs = [session.append(AssistantChunk(3, step, chunk)).seq for chunk in chunks]
        session.append(AssistantMessage(3, step, (TextBlock(text),), None), APPEND, seqs)
        if step == 1:
            session.append(StepEnd(3, step))
    return session.events[:]


@pytest.fixture(scope="module")
def log() -> Events:
    return written("mine")


class Attacked:
    """One stored session, and its file with other bytes."""

    def __init__(self, root: Path, log: Events, name: str = "s", **options: Any) -> None:
        self.root, self.log, self.options = root, log, options
        self.header = SessionHeader(id=name, created_at=1_700_000_000_000, cwd="/w")
        self.committed = 1 + max(event.seq for event in log if event.type == "turn/end")
        backend = JsonlBackend(root, **options)
        self.path = Path(str(backend.locate(self.header)))
        self.ends: list[tuple[int, int]] = []
        """How long the file was when how many events had been acknowledged."""
        for at in range(0, len(log), 8):
            backend.write(self.header, log[at : at + 8], summarize(log[: at + 8]))
            self.ends.append((self.path.stat().st_size, len(log[: at + 8])))
        backend.close()
        self.whole = self.path.read_bytes()

    def records(self) -> list[bytes]:
        """Return the lines of the file, or the frames with their marks; the header first."""
        if not self.options.get("compressed"):
            return self.whole.splitlines(keepends=True)
        mark = b"\x50\x2a\x4d\x18\x0c\0\0\0"
        return [mark + part for part in self.whole.split(mark)[1:]]

    def outcome(self, data: bytes, *, cut: bool = False) -> str:
        """Read, verify, mend and read again; fail if anything of it is not as it should be."""
        self.path.write_bytes(data)
        backend = JsonlBackend(self.root, **self.options)
        try:
            return self._read(backend, data, cut)
        finally:
            backend.close()
            for item in self.path.parent.iterdir():
                if item != self.path:
                    item.unlink()

    def _read(self, backend: JsonlBackend, data: bytes, cut: bool) -> str:
        session_id = self.header.id
        try:
            stored = backend.read(session_id)
        except StoredSessionNotFound:
            least = max((count for end, count in self.ends if end <= len(data)), default=0)
            assert cut
            assert least == 0
            return "nothing"
        except (SessionCorrupt, FormatUnsupported) as error:
            return self._salvaged(backend, error)
        events = stored.events
        assert events == self.log[: len(events)], "other events than were written"
        assert stored.header == self.header
        if cut:
            least = max((count for end, count in self.ends if end <= len(data)), default=0)
            assert len(events) >= least, "acknowledged events are gone"
        else:
            assert len(events) >= self.committed, "what a turn committed is gone"
            assert stored.rest is not None or events == self.log, "the loss is not told"
        if stored.rest is None:
            return "whole"
        report = backend.verify(session_id)
        assert report.damage or report.torn
        backend.acquire(session_id)
        backend.cut(stored)
        self._clean(backend, events)
        return "cut"

    def _salvaged(self, backend: JsonlBackend, error: PersistenceError) -> str:
        session_id = self.header.id
        assert str(self.path) in str(error.location)
        before = self.path.read_bytes()
        try:
            report = backend.verify(session_id)
        except FormatUnsupported:
            return "unsupported"
        assert report.damage
        backend.acquire(session_id)
        try:
            report = backend.salvage(session_id)
        except PersistenceError as refusal:
            return self._refused(refusal, before)
        assert report.copy is not None
        assert Path(report.copy).read_bytes() == before
        self._clean(backend, self.log[: report.events])
        return "salvaged"

    def _refused(self, refusal: PersistenceError, before: bytes) -> str:
        assert str(self.path) in str(refusal.location)
        assert self.path.read_bytes() == before
        return "refused"

    def _clean(self, backend: JsonlBackend, expected: Events) -> None:
        """The log can be read, is sound, and can be continued."""
        session_id = self.header.id
        again = backend.read(session_id)
        assert (again.events, again.rest) == (expected, None)
        assert backend.verify(session_id).sound
        more = SessionEvent(len(expected), 1, self.log[0].data)
        backend.write(again.header, (more,), summarize((*expected, more)))
        assert backend.read(session_id).events == (*expected, more)


@pytest.fixture(params=STORES)
def attacked(request: pytest.FixtureRequest, quick_path: Path, log: Events) -> Attacked:
    return Attacked(quick_path, log, **STORES[request.param])


def test_a_log_cut_at_any_byte(attacked: Attacked) -> None:
    outcomes = {
        attacked.outcome(attacked.whole[:size], cut=True)
        for size in range(0, len(attacked.whole), STRIDE)
    }
    assert outcomes <= {"nothing", "cut", "whole", "refused"}
    assert "cut" in outcomes


@pytest.mark.parametrize("how", ["bit", b"\n", b'"', b"\0", b"}"], ids=str)
def test_a_log_with_any_byte_changed(attacked: Attacked, how: str | bytes) -> None:
    whole = attacked.whole
    outcomes: set[str] = set()
    for at in range(0, len(whole), STRIDE):
        byte = bytes([whole[at] ^ 1 << at % 8]) if isinstance(how, str) else how
        if byte != whole[at : at + 1]:
            outcomes.add(attacked.outcome(whole[:at] + byte + whole[at + 1 :]))
    assert "salvaged" in outcomes
    assert outcomes <= {"salvaged", "cut", "refused", "unsupported"}


Records = Sequence[bytes]
Edit = Callable[[Records, Records], Iterator[list[bytes]]]


def _deleted(mine: Records, other: Records) -> Iterator[list[bytes]]:
    for at in range(1, len(mine) - 1):
        yield [*mine[:at], *mine[at + 1 :]]


def _doubled(mine: Records, other: Records) -> Iterator[list[bytes]]:
    for at in range(len(mine)):
        yield [*mine[: at + 1], mine[at], *mine[at + 1 :]]


def _swapped(mine: Records, other: Records) -> Iterator[list[bytes]]:
    for at in range(1, len(mine) - 1):
        yield [*mine[:at], mine[at + 1], mine[at], *mine[at + 2 :]]


def _moved_to_the_end(mine: Records, other: Records) -> Iterator[list[bytes]]:
    for at in range(1, len(mine) - 1):
        yield [*mine[:at], *mine[at + 1 :], mine[at]]


def _inserted(mine: Records, other: Records) -> Iterator[list[bytes]]:
    for at in range(1, len(mine)):
        for line in (*other[at - 1 : at + 2], b"\n", b"{}\n", b"\xff\xfe\n", b"x" * 99):
            yield [*mine[:at], line, *mine[at:]]


def _replaced(mine: Records, other: Records) -> Iterator[list[bytes]]:
    for at in range(1, len(mine)):
        yield [*mine[:at], other[at], *mine[at + 1 :]]


def _joined(mine: Records, other: Records) -> Iterator[list[bytes]]:
    yield [*mine, *other]
    yield [*mine, *other[1:]]
    yield [*mine, *mine]
    yield [*other, *mine]


def _other_header(mine: Records, other: Records) -> Iterator[list[bytes]]:
    yield [other[0], *mine[1:]]
    yield [*mine[1:]]
    yield [mine[0][:-2] + b"\n", *mine[1:]]
    yield [mine[0].replace(b"1700", b"1701"), *mine[1:]]
    yield [b"\n", *mine]
    yield [b"\xef\xbb\xbf" + mine[0], *mine[1:]]


@pytest.mark.parametrize(
    "edit",
    [_deleted, _doubled, _swapped, _moved_to_the_end, _inserted, _replaced, _joined, _other_header],
)
def test_a_log_whose_records_were_edited(attacked: Attacked, tmp_path: Path, edit: Edit) -> None:
    other = Attacked(tmp_path / "other", written("other"), "other", **attacked.options)
    for records in edit(attacked.records(), other.records()):
        data = b"".join(records)
        if data != attacked.whole:
            assert attacked.outcome(data) != "whole"


def test_a_log_with_windows_line_ends(attacked: Attacked) -> None:
    data = attacked.whole.replace(b"\n", b"\r\n")
    assert attacked.outcome(data) in {"refused", "salvaged"}
