"""Logs that broke off or were damaged: what is read, what is refused, what is kept aside."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.llm import TextDelta
from dsh.session import (
    AssistantChunk,
    Session,
    SessionEvent,
    SessionHeader,
    UnknownData,
    interrupted_turn_closers,
)
from dsh.session.testing import write_turn
from dsh.session_persistence import (
    AppendRefused,
    FormatUnsupported,
    PersistenceError,
    SessionCorrupt,
    SessionSummary,
    StoredSessionNotFound,
)
from dsh.session_persistence_jsonl import JsonlBackend

Events = tuple[SessionEvent, ...]
HEADER = SessionHeader(id="s", created_at=1_700_000_000_000, cwd="/w")


def repair(disk: Any) -> Events:
    """Cut what a load cuts, and read again."""
    backend = disk.open()
    backend.acquire("s")
    log = backend.read("s")
    if log.rest is not None:
        backend.cut(log)
    again = backend.read("s")
    assert again.events == log.events
    assert again.rest is None
    backend.release("s")
    return again.events


def spoil(path: Path, line: int, at: int = 20) -> None:
    """Flip one bit of a line; lines are counted from 1."""
    lines = path.read_bytes().split(b"\n")
    found = bytearray(lines[line - 1])
    found[at] ^= 1
    lines[line - 1] = bytes(found)
    path.write_bytes(b"\n".join(lines))


def places_of_marks(data: bytes | bytearray) -> list[int]:
    """Return where the marks in front of the frames of a compressed log are."""
    return [found.start() for found in re.finditer(re.escape(b"\x50\x2a\x4d\x18"), data)]


# --- breaking off -------------------------------------------------------------------------


def test_a_line_without_an_end_is_cut(disk: Any, open_turn: Events) -> None:
    # case: JL-04
    path = disk.fill("s", open_turn)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"step/end","seq":')
    assert repair(disk) == open_turn
    assert path.read_bytes() == whole
    assert sorted(item.name for item in path.parent.iterdir()) == ["lock", "session.jsonl"]


@pytest.fixture(scope="module")
def long_log() -> Events:
    """Two turns, the second with a row of deltas, broken off inside its step."""
    session = Session("s")
    write_turn(session, tool=False)
    write_turn(session, "ü\u2028", tool=False)
    log = session.events[:-2]
    return (
        *log,
        *(
            SessionEvent(len(log) + at, at, AssistantChunk(2, 1, TextDelta(0, f"{at}ü")))
            for at in range(5)
        ),
    )


@pytest.mark.parametrize("options", [{}, {"packed": False}, {"compressed": True}], ids=str)
def test_a_file_cut_anywhere_keeps_all_before_the_cut(
    quick_path: Path, long_log: Events, options: dict[str, Any]
) -> None:
    batches = [long_log[start : start + 7] for start in range(0, len(long_log), 7)]
    backend = JsonlBackend(quick_path / "grown", **options)
    path = Path(str(backend.locate(HEADER)))
    acknowledged: list[tuple[int, int]] = []
    for batch in batches:
        backend.write(HEADER, batch, SessionSummary())
        acknowledged.append((path.stat().st_size, batch[-1].seq + 1))
    backend.close()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        durable = max((count for end, count in acknowledged if end <= size), default=0)
        reader = JsonlBackend(quick_path / "grown")
        try:
            events = reader.read("s").events
        except StoredSessionNotFound:
            events = ()
        except SessionCorrupt:
            assert durable == 0, f"nothing of {durable} events is read when cut at {size}"
            continue
        assert events == long_log[: len(events)]
        assert len(events) >= durable, f"cut at {size}"


def test_a_cut_of_a_compressed_log_keeps_what_came_through(zdisk: Any, turn: Events) -> None:
    # case: JL-17
    noise = random.Random(1)
    big = tuple(
        SessionEvent(len(turn) + at, at, UnknownData("a/b", {"x": noise.randbytes(40_000).hex()}))
        for at in range(12)
    )
    path = zdisk.fill("s", turn, big)
    whole = path.read_bytes()
    counts: set[int] = set()
    for size in range(len(whole) - 400_000, len(whole), 40_000):
        path.write_bytes(whole[:size])
        counts.add(len(repair(zdisk)))
    assert len(counts) > 3
    assert min(counts) >= len(turn)
    assert max(counts) < len(turn) + len(big)
    assert any(item.name.startswith("cut-") for item in path.parent.iterdir())


def test_zeros_behind_the_last_line_are_no_damage(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert repair(disk) == turn


def test_zeros_behind_the_last_frame_are_no_damage(zdisk: Any, turn: Events) -> None:
    path = zdisk.fill("s", turn)
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert repair(zdisk) == turn


@pytest.mark.parametrize("behind", [0, 4096])
def test_zeros_from_anywhere_in_the_last_frame_on_are_no_damage(
    zdisk: Any, quick_path: Path, open_turn: Events, behind: int
) -> None:
    zdisk.root = quick_path
    path = zdisk.fill("s", open_turn[:9], open_turn[9:-2], open_turn[-2:])
    whole = path.read_bytes()
    for kept in range(places_of_marks(whole)[-1], len(whole) - 4):
        path.write_bytes(whole[:kept] + bytes(len(whole) - kept + behind))
        stored = zdisk.read()
        assert stored.rest is not None
        assert len(stored.events) >= len(open_turn) - 2, f"zeros from {kept} on"
    path.write_bytes(whole[:-4] + bytes(4 + behind))
    assert repair(zdisk) == open_turn
    assert (path.parent / "cut-1.jsonl.zst").exists()


@pytest.mark.parametrize("part", ["mark", "frame", "both"])
def test_zeros_in_front_of_a_frame_refuse_the_log(zdisk: Any, two_turns: Events, part: str) -> None:
    path = zdisk.fill("s", two_turns[:9], two_turns[9:14], two_turns[14:])
    data = bytearray(path.read_bytes())
    _, _, second, third = places_of_marks(data)
    start = second + 20 if part == "frame" else second
    end = second + 20 if part == "mark" else third
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    with pytest.raises(SessionCorrupt, match="frame"):
        zdisk.read()


# --- flipped bits -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"compressed": True}], ids=str)
def test_no_flipped_bit_goes_unnoticed(
    quick_path: Path, long_log: Events, options: dict[str, Any]
) -> None:
    backend = JsonlBackend(quick_path / "flipped", **options)
    for start in range(0, len(long_log), 9):
        backend.write(HEADER, long_log[start : start + 9], SessionSummary())
    backend.close()
    path = Path(str(backend.locate(HEADER)))
    whole = path.read_bytes()
    last_turn_end = max(event.seq for event in long_log if event.type == "turn/end")
    refused: list[str] = []
    damaged: list[bool] = []
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        reader = JsonlBackend(quick_path / "flipped")
        try:
            stored = reader.read("s")
        except (SessionCorrupt, FormatUnsupported) as error:
            refused.append(str(error))
            damaged.append(bool(reader.verify("s").damage))
            continue
        assert stored.rest is not None, f"byte {at} was not missed"
        assert stored.events == long_log[: len(stored.events)]
        assert len(stored.events) > last_turn_end, f"byte {at} lost what was committed"
    assert all(str(path) in told for told in refused)
    assert all(damaged)


def test_a_damaged_length_is_not_taken_for_the_end(
    zdisk: Any, quick_path: Path, two_turns: Events
) -> None:
    zdisk.root = quick_path
    path = zdisk.fill("s", two_turns[:5], two_turns[5:10], two_turns[10:])
    whole = path.read_bytes()
    refused = 0
    for at in range(len(whole) // 4, len(whole) // 2):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            path.write_bytes(flipped)
            try:
                assert zdisk.read().events == two_turns
            except SessionCorrupt:
                refused += 1
    assert refused > 100


# --- where damage is ----------------------------------------------------------------------


def test_a_damaged_last_line_is_cut_and_kept_aside(disk: Any, open_turn: Events) -> None:
    # case: JL-05
    path = disk.fill("s", open_turn)
    lines = path.read_bytes().splitlines(keepends=True)
    spoil(path, len(lines))
    assert disk.read().lost
    assert repair(disk) == open_turn[:-1]
    assert not disk.read().lost
    assert path.read_bytes() == b"".join(lines[:-1])
    kept = (path.parent / "cut-1.jsonl").read_bytes()
    assert len(kept) == len(lines[-1])


def test_a_line_that_only_breaks_off_is_not_lost(disk: Any, open_turn: Events) -> None:
    path = disk.fill("s", open_turn)
    path.write_bytes(path.read_bytes()[:-9])
    stored = disk.read()
    assert (stored.events, stored.lost) == (open_turn[:-1], False)


def test_damage_that_a_whole_line_follows_refuses_an_open_turn(
    disk: Any, open_turn: Events
) -> None:
    # case: JL-06
    path = disk.fill("s", open_turn)
    whole = path.read_bytes()
    for line in range(2, whole.count(b"\n")):
        spoil(path, line)
        with pytest.raises(SessionCorrupt) as caught:
            disk.read()
        assert f"{path}:{line}" in str(caught.value)
        path.write_bytes(whole)


@pytest.mark.parametrize("line", [2, 7, 12])
def test_damage_before_a_turn_end_refuses_the_log(disk: Any, two_turns: Events, line: int) -> None:
    # case: JL-06
    path = disk.fill("s", two_turns)
    spoil(path, line)
    before = path.read_bytes()
    with pytest.raises(SessionCorrupt) as caught:
        disk.read()
    assert f"{path}:{line}" in str(caught.value)
    assert "seq" in caught.value.message
    backend = disk.open()
    backend.acquire("s")
    with pytest.raises(SessionCorrupt):
        backend.write(HEADER, interrupted_turn_closers(two_turns[:-1]), SessionSummary())
    assert path.read_bytes() == before


def test_a_missing_line_refuses_the_log(disk: Any, two_turns: Events) -> None:
    # case: JL-06
    path = disk.fill("s", two_turns, packed=False)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5] + lines[6:]))
    with pytest.raises(SessionCorrupt, match="at seq 4: seq 5 stands where seq 4 should"):
        disk.read()


def test_a_missing_line_behind_the_last_turn_is_cut(disk: Any, open_turn: Events) -> None:
    # case: JL-05
    path = disk.fill("s", open_turn, packed=False)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2] + lines[-1:]))
    assert repair(disk) == open_turn[:-2]
    assert (path.parent / "cut-1.jsonl").read_bytes() == lines[-1]


def test_a_lost_line_end_loses_nothing_for_good(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\x0b")
    assert repair(disk) == turn[:-1]
    assert (path.parent / "cut-1.jsonl").read_bytes()[:-1] == whole.splitlines()[-1]


def test_a_damaged_turn_end_is_one_that_was_committed(disk: Any, turn: Events) -> None:
    # case: JL-06
    path = disk.fill("s", turn)
    lines = path.read_bytes().splitlines()
    spoil(path, len(lines), at=30)
    with pytest.raises(SessionCorrupt):
        disk.read()
    spoil(path, len(lines), at=30)
    spoil(path, len(lines), at=12)
    assert repair(disk) == turn[:-1]
    assert (path.parent / "cut-1.jsonl").exists()


def test_a_turn_that_follows_says_that_one_has_ended(disk: Any, open_turn: Events) -> None:
    # case: JL-06
    path = disk.fill("s", open_turn)
    lines = path.read_bytes().splitlines()
    spoil(path, len(lines) - 2, at=12)
    with pytest.raises(SessionCorrupt):
        disk.read()


def test_an_open_turn_is_kept_whole(disk: Any, open_turn: Events) -> None:
    # case: JL-07
    disk.fill("s", open_turn[:3])
    assert repair(disk) == open_turn[:3]


def test_a_header_alone_is_no_session(disk: Any, turn: Events) -> None:
    # case: JL-07
    path = disk.fill("s", turn)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(StoredSessionNotFound):
        disk.read()
    assert list(disk.open().list(False)) == []


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"", "it is empty"),
        (b'{"type":"session"', "no complete first line"),
        (b"nonsense\n", "no JSON object"),
        (b"[1]\n", "no JSON object"),
        (b"\xff\n", "no JSON object"),
        ({"type": "turn/start", "seq": 0}, "no session header"),
        ({"type": "session", "version": 0, "id": "s", "createdAt": 1.5}, "createdAt"),
        ({"type": "session", "version": 0, "id": "s", "createdAt": -1}, "createdAt"),
        ({"type": "session", "version": 0, "id": "s"}, "createdAt"),
        (
            {"type": "session", "version": 0, "id": "s", "createdAt": 1, "delegationDepth": "x"},
            "delegationDepth",
        ),
        ({"type": "session", "version": 0, "id": "s", "createdAt": 1, "later": 1}, "later"),
        ({"type": "session", "id": "s", "createdAt": 1}, "version"),
        (b'{"type":"session","version":0,"id":"s","createdAt":1}\n', "no checksum"),
        (
            b'{"type":"session","version":1,"id":"s","createdAt":1,"crc":"00000000"}\n',
            "checksum",
        ),
    ],
)
def test_a_first_line_that_is_no_header_is_told(
    disk: Any, turn: Events, sealed: Callable[[object], bytes], first: object, told: str
) -> None:
    # case: JL-08
    path = disk.fill("s", turn)
    rest = path.read_bytes().partition(b"\n")[2]
    line = first if isinstance(first, bytes) else sealed(first)
    path.write_bytes(line + (rest if line.endswith(b"\n") else b""))
    with pytest.raises(SessionCorrupt, match=told) as caught:
        disk.read()
    assert f"{path}:1" in str(caught.value)
    assert list(disk.open().list(False)) == []


@pytest.mark.parametrize(
    "first",
    [b'{"type":"session","version":7,"id":"s","whatever":[]}\n', {"type": "session", "version": 7}],
)
def test_a_later_format_is_left_as_it_is(
    disk: Any, turn: Events, sealed: Callable[[object], bytes], first: object
) -> None:
    # case: F-24
    path = disk.fill("s", turn)
    line = first if isinstance(first, bytes) else sealed(first)
    path.write_bytes(line + b"\x00\x01\n")
    for call in (lambda: disk.read(), lambda: disk.open().verify("s")):
        with pytest.raises(FormatUnsupported, match="upgrade"):
            call()
    assert path.read_bytes() == line + b"\x00\x01\n"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "image/message", "surfaceOp": "append", "data": {}},
        {"type": "step/end", "data": {"turn": 1, "step": 1, "laterField": 1}},
        {"type": "turn/start", "data": {}, "laterField": 1},
        {"type": "some-chunks", "data": {}, "surfaceOp": "append"},
    ],
    ids=json.dumps,
)
def test_what_a_later_version_wrote_is_never_cut(
    disk: Any, turn: Events, sealed: Callable[[object], bytes], event: dict[str, Any]
) -> None:
    path = disk.fill("s", turn)
    line = sealed({"type": event["type"], "seq": len(turn), "time": 1, **event})
    path.write_bytes(path.read_bytes() + line)
    before = path.read_bytes()
    backend = disk.open()
    backend.acquire("s")
    for look in (backend.read, backend.salvage):
        with pytest.raises(FormatUnsupported, match="version") as caught:
            look("s")
        assert f"{path}:" in str(caught.value.location)
    assert [item.seq for item in backend.verify("s").damage] == [len(turn)]
    backend.release("s")
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == ["lock", "session.jsonl"]


def test_damage_before_what_a_later_version_wrote_is_salvaged(
    disk: Any, turn: Events, sealed: Callable[[object], bytes]
) -> None:
    path = disk.fill("s", turn, packed=False)
    line = sealed({"type": "image/message", "seq": len(turn), "time": 1, "surfaceOp": "append"})
    path.write_bytes(path.read_bytes() + line)
    spoil(path, 6)
    before = path.read_bytes()
    report = disk.open().salvage("s")
    assert [item.seq for item in report.damage] == [4, len(turn)]
    assert Path(str(report.copy)).read_bytes() == before
    assert disk.read().events == turn[:4]


def test_an_unknown_log_only_type_is_kept(
    disk: Any, turn: Events, sealed: Callable[[object], bytes]
) -> None:
    path = disk.fill("s", turn)
    line = sealed({"type": "far-away/thing", "seq": len(turn), "time": 1, "data": {"a": None}})
    path.write_bytes(path.read_bytes() + line)
    assert disk.read().events[-1].type == "far-away/thing"


def test_the_log_of_another_session_is_not_taken_for_this_one(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    path.parent.rename(path.parent.with_name("t"))
    with pytest.raises(SessionCorrupt, match="'s'"):
        disk.read("t")


def test_a_cut_needs_the_log_it_was_read_from(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    path.write_bytes(path.read_bytes() + b"{")
    backend = disk.open()
    backend.acquire("s")
    log = backend.read("s")
    path.write_bytes(path.read_bytes() + b"{")
    with pytest.raises(AppendRefused, match="changed"):
        backend.cut(log)


# --- compressed logs ----------------------------------------------------------------------


def test_a_batch_is_a_frame(zdisk: Any, two_turns: Events) -> None:
    # case: JL-17
    path = zdisk.fill("s", two_turns[:9], two_turns[9:])
    data = path.read_bytes()
    assert data.count(b"\x28\xb5\x2f\xfd") == 3
    assert path.name == "session.jsonl.zst"
    assert zdisk.read().events == two_turns


def test_a_frame_that_is_damaged_refuses_the_log(zdisk: Any, two_turns: Events) -> None:
    # case: JL-17
    path = zdisk.fill("s", two_turns[:9], two_turns[9:])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SessionCorrupt, match="frame"):
        zdisk.read()
    data[-1] ^= 1
    data[10] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SessionCorrupt, match="first"):
        zdisk.read()


def test_all_frames_that_a_cut_removes_are_kept_aside(zdisk: Any, open_turn: Events) -> None:
    path = zdisk.fill("s", open_turn[:-2], open_turn[-2:-1], open_turn[-1:])
    end = open_turn[-1].seq + 1
    more = tuple(SessionEvent(end + at, 1, UnknownData("a/b", {"at": at})) for at in range(2))
    backend = zdisk.open()
    for event in more:
        backend.write(HEADER, (event,), SessionSummary())
    backend.close()
    data = path.read_bytes()
    marks = places_of_marks(data)
    # the frame of the last event of the turn is lost, and the last one broke off
    path.write_bytes(data[: marks[3]] + data[marks[4] : -5])
    assert repair(zdisk) == open_turn[:-1]
    assert (path.parent / "cut-1.jsonl.zst").read_bytes() == data[marks[4] : -5]


@pytest.mark.parametrize("compressed", [False, True])
def test_either_form_is_read_and_continued_whatever_is_configured(
    disk: Any, two_turns: Events, compressed: bool
) -> None:
    # case: JL-17
    path = disk.fill("s", two_turns[:9], compressed=compressed)
    backend = disk.open(compressed=not compressed)
    backend.write(HEADER, two_turns[9:], SessionSummary())
    backend.close()
    assert disk.read().events == two_turns
    assert [item.name for item in path.parent.glob("session*")] == [path.name]


def test_two_logs_of_one_session_are_refused(disk: Any, turn: Events) -> None:
    # case: JL-17
    path = disk.fill("s", turn)
    other = path.with_name("session.jsonl.zst")
    other.write_bytes(b"")
    with pytest.raises(SessionCorrupt, match="more than once") as caught:
        disk.read()
    assert str(other) in str(caught.value)


# --- verifying and salvaging --------------------------------------------------------------


def test_all_damage_is_told(disk: Any, two_turns: Events) -> None:
    path = disk.fill("s", two_turns, packed=False)
    spoil(path, 4)
    spoil(path, 9)
    report = disk.open().verify("s")
    assert [item.where for item in report.damage] == [f"{path}:4", f"{path}:9"]
    assert report.damage[0].seq == 2
    assert (report.events, report.sound, report.torn) == (2, False, False)
    assert report.location == str(path)


def test_a_log_that_broke_off_is_sound(disk: Any, open_turn: Events) -> None:
    path = disk.fill("s", open_turn)
    path.write_bytes(path.read_bytes() + b"{")
    report = disk.open().verify("s")
    assert report.sound
    assert report.torn
    assert report.interrupted
    assert report.events == len(open_turn)


def test_a_damaged_header_is_told(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    spoil(path, 1)
    report = disk.open().verify("s")
    assert report.events == len(turn)
    (damage,) = report.damage
    assert damage.where == f"{path}:1"
    assert str(path) not in damage.what


@pytest.mark.parametrize("compressed", [False, True])
def test_salvaging_keeps_a_copy_and_what_is_sound(
    disk: Any, two_turns: Events, compressed: bool
) -> None:
    path = disk.fill("s", two_turns[:9], two_turns[9:14], two_turns[14:], compressed=compressed)
    data = bytearray(path.read_bytes())
    if compressed:
        third = [found.start() for found in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), data)][2]
        data[third + 20] ^= 1
        expected = two_turns[:9]
    else:
        lines = bytes(data).splitlines(keepends=True)
        data[len(b"".join(lines[:12])) + 30] ^= 1
        expected = two_turns[: disk.open().verify("s").events]
    path.write_bytes(data)
    backend = disk.open()
    backend.acquire("s")
    report = backend.salvage("s")
    assert not report.sound
    assert report.copy is not None
    assert Path(report.copy).read_bytes() == data
    events = backend.read("s").events
    assert events == two_turns[: len(events)]
    assert len(events) == report.events
    if compressed:
        assert events == expected
    assert backend.verify("s").sound
    assert backend.salvage("s").copy is None
    assert backend.salvage("s").sound


def test_nothing_can_be_salvaged_without_an_event(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    spoil(path, 2)
    before = path.read_bytes()
    for line in (2, 1):
        spoil(path, line)
        if line == 2:
            spoil(path, 2)
        with pytest.raises(PersistenceError):
            disk.open().salvage("s")
    assert sorted(item.name for item in path.parent.iterdir()) == ["lock", "session.jsonl"]
    assert len(path.read_bytes()) == len(before)
