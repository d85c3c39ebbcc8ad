"""Where sessions are kept, who may see them, and what becomes of them there."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.core import NotJsonError
from dsh.llm import TextBlock
from dsh.session import (
    SessionEvent,
    SessionHeader,
    UnknownData,
    UserMessage,
    UserSource,
)
from dsh.session.errors import SessionError
from dsh.session_persistence import (
    AppendRefused,
    PersistenceError,
    SessionCorrupt,
    SessionSummary,
    StoredSessionExists,
    StoredSessionNotFound,
)

Events = tuple[SessionEvent, ...]
HEADER = SessionHeader(id="s", created_at=1_700_000_000_000, cwd="/w")


def test_nothing_is_made_before_something_is_written(disk: Any, turn: Events) -> None:
    # case: JL-01
    backend = disk.open()
    assert backend.revision("s") is None
    assert list(backend.list(False)) == []
    assert not disk.root.exists()
    backend.write(HEADER, turn, SessionSummary())
    lines = disk.root.joinpath("--w--/s/session.jsonl").read_bytes().splitlines()
    first = json.loads(lines[0])
    assert [first["type"], first["version"], first["id"], first["cwd"]] == ["session", 0, "s", "/w"]
    assert json.loads(lines[1])["type"] == "turn/start"
    assert all(list(json.loads(line))[-1] == "crc" for line in lines)


def test_a_session_without_a_directory_has_its_own_folder(disk: Any, turn: Events) -> None:
    assert disk.fill("s", turn, cwd=None) == disk.root / "_no-cwd" / "s" / "session.jsonl"


def test_two_directories_may_share_a_folder(disk: Any, turn: Events) -> None:
    # case: JL-03
    one, other = disk.fill("a", turn, cwd="/w/x"), disk.fill("b", turn, cwd="/w-x")
    assert one.parent.parent == other.parent.parent
    shown = {item.header.id: item.header.cwd for item in disk.open().list(False)}
    assert shown == {"a": "/w/x", "b": "/w-x"}


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_only_the_owner_may_look(disk: Any, turn: Events) -> None:
    # case: JL-14
    old = os.umask(0)
    try:
        backend = disk.open()
        backend.write(HEADER, turn, SessionSummary())
        backend.release("s")
        list(backend.list(False))
        backend.close()
    finally:
        os.umask(old)
    modes: dict[bool, set[int]] = {True: set(), False: set()}
    for path in (disk.root, *disk.root.rglob("*")):
        modes[path.is_dir()].add(stat.S_IMODE(path.stat().st_mode))
    assert modes == {True: {0o700}, False: {0o600}}


def test_a_file_that_appears_meanwhile_is_not_overwritten(disk: Any, turn: Events) -> None:
    # case: JL-11
    backend = disk.open()
    assert backend.revision("s") is None
    path = Path(str(backend.locate(HEADER)))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"precious")
    with pytest.raises(StoredSessionExists):
        backend.write(HEADER, turn, SessionSummary())
    assert path.read_bytes() == b"precious"
    assert [item.name for item in path.parent.glob("*.tmp")] == []


def test_what_a_dead_process_left_is_tidied(disk: Any, turn: Events) -> None:
    path = Path(str(disk.open().locate(HEADER)))
    path.parent.mkdir(parents=True)
    (path.parent / "session.jsonl.0123456789ab.tmp").write_bytes(b"half")
    disk.fill("s", turn)
    assert sorted(item.name for item in path.parent.iterdir()) == ["lock", "session.jsonl"]


def test_line_ends_of_other_alphabets_are_text(disk: Any) -> None:
    # case: JL-18
    odd = "".join(map(chr, (0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029)))
    log = (
        SessionEvent(0, 1, UnknownData("a/b", {odd: odd, "cr": "\r\n"})),
        SessionEvent(1, 1, UnknownData("a/b", {"x": odd})),
    )
    path = disk.fill("s", log)
    assert disk.read().events == log
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1}, "\ud800", object()],
    ids=["nan", "inf", "set", "surrogate", "object"],
)
def test_what_is_no_json_leaves_nothing_behind(disk: Any, turn: Events, value: object) -> None:
    # case: JL-19
    bad = SessionEvent(len(turn), 0, UnknownData("a/b", {"x": value}))
    backend = disk.open()
    with pytest.raises((NotJsonError, SessionError)):
        backend.write(HEADER, (*turn, bad), SessionSummary())
    assert not disk.root.exists()
    backend.write(HEADER, turn, SessionSummary())
    before = disk.read()
    with pytest.raises((NotJsonError, SessionError)):
        backend.write(HEADER, (bad,), SessionSummary())
    assert disk.read() == before
    fine = SessionEvent(len(turn), 0, UnknownData("a/b", {"x": 1}))
    backend.write(HEADER, (fine,), SessionSummary())
    assert disk.read().events == (*turn, fine)


def test_a_batch_must_continue_the_log(disk: Any, turn: Events) -> None:
    backend = disk.open()
    with pytest.raises(AppendRefused, match="continues at seq 0"):
        backend.write(HEADER, turn[3:], SessionSummary())
    backend.write(HEADER, turn[:3], SessionSummary())
    with pytest.raises(StoredSessionExists):
        backend.write(HEADER, turn, SessionSummary())
    with pytest.raises(AppendRefused, match="continues at seq 3"):
        backend.write(HEADER, turn[4:], SessionSummary())
    backend.write(HEADER, turn[3:], SessionSummary())
    assert disk.read().events == turn


def test_putting_away_renames_the_log(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    backend = disk.open()
    revision = backend.revision("s")
    backend.acquire("s")
    backend.set_archived("s", True)
    backend.set_archived("s", True)
    assert not path.exists()
    assert Path(str(backend.locate(HEADER))) == path.with_name("archived.jsonl")
    assert backend.revision("s") == revision
    assert [item.header.id for item in backend.list(True)] == ["s"]
    assert list(backend.list(False)) == []
    more = SessionEvent(len(turn), 1, UnknownData("a/b", {}))
    backend.write(HEADER, (more,), SessionSummary())
    backend.set_archived("s", False)
    assert disk.read().events == (*turn, more)
    assert path.exists()


def test_putting_away_overwrites_nothing(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    backend = disk.open()
    backend.acquire("s")
    path.with_name("archived.jsonl").write_bytes(b"precious")
    with pytest.raises(PersistenceError, match="two logs"):
        backend.set_archived("s", True)
    assert path.with_name("archived.jsonl").read_bytes() == b"precious"


def test_removing_leaves_nothing(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    path.with_name("notes.txt").write_text("of this session too", encoding="utf-8")
    backend = disk.open()
    backend.acquire("s")
    backend.remove("s")
    backend.release("s")
    assert list(path.parent.parent.iterdir()) == []
    assert backend.revision("s") is None
    for call in (backend.read, backend.verify, backend.remove, backend.acquire):
        with pytest.raises(StoredSessionNotFound):
            call("s")
    backend.write(HEADER, turn[:2], SessionSummary())
    assert disk.read().events == turn[:2]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_log_is_handed_out_as_text(disk: Any, turn: Events, compressed: bool) -> None:
    plain = disk.fill("plain", turn).read_text(encoding="utf-8")
    disk.fill("s/1", turn, compressed=compressed)
    backend = disk.open()
    found = backend.read_raw("s/1")
    assert found is not None
    assert found.filename == "s~002f1.jsonl"
    seal = len(',"crc":"00000000"}')  # which is another for another session
    told, expected = found.text.splitlines()[1:], plain.splitlines()[1:]
    assert [line[:-seal] for line in told] == [line[:-seal] for line in expected]
    assert all(a[-seal:] != b[-seal:] for a, b in zip(told, expected, strict=True))
    assert backend.read_raw("absent") is None


def test_a_place_is_told_without_looking(disk: Any) -> None:
    assert disk.open().locate(HEADER) == str(disk.root / "--w--" / "s" / "session.jsonl")
    assert disk.open(compressed=True).locate(HEADER) == str(
        disk.root / "--w--" / "s" / "session.jsonl.zst"
    )
    assert not disk.root.exists()


def test_a_session_in_two_places_is_refused_and_shown_twice(disk: Any, turn: Events) -> None:
    # case: JL-12
    path = disk.fill("s", turn)
    other = disk.root / "--elsewhere--" / "s" / "session.jsonl"
    other.parent.mkdir(parents=True)
    other.write_bytes(path.read_bytes())
    with pytest.raises(SessionCorrupt, match="more than once") as caught:
        disk.read()
    assert str(path) in caught.value.message
    assert str(other) in caught.value.message
    assert [item.header.id for item in disk.open().list(False)] == ["s", "s"]


def test_a_root_that_is_a_file_is_told(disk: Any, turn: Events) -> None:
    # case: JL-12
    disk.root.write_bytes(b"")
    backend = disk.open()
    calls: list[Callable[[], object]] = [
        lambda: backend.read("s"),
        lambda: list(backend.list(False)),
        lambda: backend.write(HEADER, turn, SessionSummary()),
    ]
    for call in calls:
        with pytest.raises(PersistenceError, match="a file stands where a folder") as caught:
            call()
        assert str(disk.root) in str(caught.value)


def test_a_long_title_and_header_are_read(disk: Any) -> None:
    # case: JL-12
    log = (SessionEvent(0, 1, UserMessage((TextBlock("x" * 20_000),), UserSource())),)
    disk.fill("s", log, cwd="/" + "w" * 20_000)
    (shown,) = disk.open().list(False)
    assert shown.header.cwd == "/" + "w" * 20_000
