"""Logs that are in no listing because they cannot be read: each of them is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.session import SessionEvent, SessionHeader
from dsh.session_persistence import (
    FormatUnsupported,
    PersistenceError,
    SessionCorrupt,
    UnreadableSession,
)
from dsh.session_persistence_jsonl._content import compress, zstd_content
from dsh.session_persistence_jsonl._names import decode_segment, encode_segment

Events = tuple[SessionEvent, ...]


def told(disk: Any) -> list[UnreadableSession]:
    """Return what a fresh process says is unreadable, and check that it is in no listing."""
    backend = disk.open()
    listed = {item.header.id for archived in (False, True) for item in backend.list(archived)}
    found = sorted(backend.unreadable(), key=lambda item: item.where)
    assert not listed & {item.session_id for item in found}
    return found


def spoiled_header(path: Path) -> None:
    first, _, rest = path.read_bytes().partition(b"\n")
    flipped = bytearray(first)
    flipped[20] ^= 1
    path.write_bytes(bytes(flipped) + b"\n" + rest)


def test_what_can_be_listed_is_not_told(disk: Any, turn: Events, open_turn: Events) -> None:
    disk.fill("s", turn)
    path = disk.fill("t", open_turn)
    path.write_bytes(path.read_bytes() + b"{")
    disk.fill("u", turn)
    backend = disk.open()
    backend.acquire("u")
    backend.set_archived("u", True)
    lone = disk.fill("v", turn)
    lone.write_bytes(lone.read_bytes().splitlines(keepends=True)[0])
    (disk.root / "--w--" / "notes.txt").write_text("mine")
    (disk.root / "--w--" / "empty").mkdir()
    assert told(disk) == []


@pytest.mark.parametrize("archived", [False, True])
def test_a_damaged_header_is_told(disk: Any, turn: Events, archived: bool) -> None:
    path = disk.fill("A.b", turn)
    disk.fill("sound", turn)
    if archived:
        path = path.rename(path.with_name("archived.jsonl"))
    spoiled_header(path)
    (item,) = told(disk)
    assert (item.where, item.session_id) == (str(path), "A.b")
    assert isinstance(item.error, SessionCorrupt)
    assert item.error.salvageable
    assert "checksum of its first line" in item.error.message
    assert item.error.__traceback__ is item.error.__context__ is None, "the log is kept with it"


def test_an_empty_log_is_told(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    path.write_bytes(b"")
    (item,) = told(disk)
    assert (item.session_id, item.error.code) == ("s", SessionCorrupt.code)


def test_a_pipe_in_a_logs_place_is_told_and_waits_for_nobody(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    path.unlink()
    os.mkfifo(path)
    (item,) = told(disk)
    assert (item.session_id, type(item.error)) == ("s", PersistenceError)
    assert "it is no file" in item.error.message


def test_another_version_is_told_with_the_way_out(
    disk: Any, turn: Events, sealed: Callable[[object], bytes]
) -> None:
    path = disk.fill("s", turn)
    rest = path.read_bytes().partition(b"\n")[2]
    path.write_bytes(sealed({"type": "session", "version": 7, "id": "s"}) + rest)
    (item,) = told(disk)
    assert item.session_id == "s"
    assert isinstance(item.error, FormatUnsupported)
    assert item.error.hint is not None
    assert "upgrade" in item.error.hint


def test_a_log_in_the_place_of_another_session_is_told(disk: Any, turn: Events) -> None:
    one, other = disk.fill("a", turn), disk.fill("b", turn)
    for _ in disk.open().list(False):
        pass  # the index knows both as they were
    other.write_bytes(one.read_bytes())
    (item,) = told(disk)
    assert (item.where, item.session_id) == (str(other), "b")
    assert "the log in the place of session 'b' is that of 'a'" in item.error.message
    backend = disk.open()
    assert [found.header.id for found in backend.list(False)] == ["a"]
    backend.acquire("b")
    with pytest.raises(SessionCorrupt, match="is that of 'a'"):
        backend.salvage("b")


def test_a_copied_folder_is_told(disk: Any, turn: Events) -> None:
    path = disk.fill("a", turn)
    copy = path.parent.with_name("a (copy)")
    shutil.copytree(path.parent, copy)
    (item,) = told_beside(disk, "a")
    assert (item.where, item.session_id) == (str(copy / path.name), None)


def told_beside(disk: Any, listed: str) -> list[UnreadableSession]:
    backend = disk.open()
    assert [item.header.id for item in backend.list(False)] == [listed]
    return list(backend.unreadable())


def test_what_is_mended_is_listed_again(disk: Any, turn: Events) -> None:
    path = disk.fill("s", turn)
    whole = path.read_bytes()
    spoiled_header(path)
    backend = disk.open()
    assert len(list(backend.unreadable())) == 1
    path.write_bytes(whole)
    assert list(backend.unreadable()) == []
    assert [item.header.id for item in backend.list(False)] == ["s"]


def test_compression_that_is_not_installed_is_told(
    disk: Any, turn: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.fill("s", turn, compressed=True)
    (disk.root / "index.sqlite").unlink()
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    (item,) = told(disk)
    assert (item.session_id, item.error.code) == ("s", FormatUnsupported.code)
    assert "zstd" in str(item.error.hint)


LOOK = """
import sys
from pathlib import Path
from dsh.session_persistence_jsonl import JsonlBackend
backend = JsonlBackend(Path(sys.argv[1]))
print([item.header.id for item in backend.list(False)])
for item in backend.unreadable():
    print(item.where, item.session_id, item.error.code, item.error.message, sep="|")
"""


@pytest.fixture
def unprivileged() -> list[str]:
    """How to start a program that the modes of files bind."""
    if os.name == "nt":
        pytest.skip("modes of POSIX")
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("modes do not bind root, and there is no setpriv")
    return [setpriv, "--bounding-set=-all", "--inh-caps=-all"]


@pytest.mark.parametrize("closed", ["log", "session", "project"])
def test_what_may_not_be_read_is_told(
    disk: Any, turn: Events, unprivileged: list[str], closed: str
) -> None:
    path = disk.fill("s", turn, cwd="/closed")
    disk.fill("t", turn, cwd="/open")
    disk.close()
    (disk.root / "index.sqlite").unlink()
    place = {"log": path, "session": path.parent, "project": path.parent.parent}[closed]
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        command = [*unprivileged, sys.executable, "-c", LOOK, str(disk.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        place.chmod(mode)
    assert (done.returncode, done.stderr) == (0, "")
    listed, *lines = done.stdout.splitlines()
    assert listed == "['t']"
    ((where, session_id, code, message),) = [line.split("|") for line in lines]
    assert where == str(place)
    assert session_id == ("None" if closed == "project" else "s")
    assert code == PersistenceError.code
    assert "Permission denied" in message


def test_access_that_is_given_again_is_noticed(
    disk: Any, turn: Events, unprivileged: list[str]
) -> None:
    path = disk.fill("s", turn)
    disk.close()
    (disk.root / "index.sqlite").unlink()
    again = LOOK + "Path(sys.argv[2]).chmod(0o600)\nprint(len(backend.list(False)))\n"
    path.chmod(0)
    command = [*unprivileged, sys.executable, "-c", again, str(disk.root), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "1"


# --- a header that is made anew -----------------------------------------------------------


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("compressed", [True, False])
def test_salvaging_makes_a_damaged_header_anew(
    disk: Any, two_turns: Events, sealed: Callable[[object], bytes], indexed: bool, compressed: bool
) -> None:
    path = disk.fill("s", two_turns, compressed=compressed)
    if not indexed:
        disk.close()
        (disk.root / "index.sqlite").unlink()
    if compressed:
        text = zstd_content(path.read_bytes(), path).text
        rest = text.partition(b"\n")[2]
        path.write_bytes(compress(sealed({"type": "session"}), path) + compress(rest, path))
    else:
        spoiled_header(path)
    before = path.read_bytes()
    backend = disk.open()
    report = backend.verify("s")
    assert report.events == len(two_turns)
    assert [item.where for item in report.damage] == [f"{path}:1"]
    backend.acquire("s")
    saved = backend.salvage("s")
    assert Path(str(saved.copy)).read_bytes() == before
    log = backend.read("s")
    assert log.events == two_turns
    assert log.header == (
        SessionHeader(id="s", created_at=1_700_000_000_000, cwd="/w")
        if indexed
        else SessionHeader(id="s", created_at=two_turns[0].time)
    )
    assert backend.verify("s").sound
    assert told(disk) == []


def test_damage_behind_a_damaged_header_is_cut_too(disk: Any, two_turns: Events) -> None:
    path = disk.fill("s", two_turns)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = lines[0].replace(b"session", b"sessiom")
    lines[9] = lines[9].replace(b'"seq"', b'"sep"')
    path.write_bytes(b"".join(lines))
    backend = disk.open()
    backend.acquire("s")
    report = backend.salvage("s")
    assert [item.where for item in report.damage[:2]] == [f"{path}:1", f"{path}:10"]
    assert 0 < report.events < len(two_turns)
    assert backend.read("s").events == two_turns[: report.events]


# --- damage in a listing, names -----------------------------------------------------------


def test_a_listing_shows_where_a_log_breaks_off_in_damage(disk: Any, two_turns: Events) -> None:
    path = disk.fill("s", two_turns)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"seq"', b'"sep"')
    path.write_bytes(b"".join(lines))
    for _ in range(2):  # the second has it from the index
        backend = disk.open()
        (shown,) = backend.list(False)
        assert shown.summary.damaged
        backend.close()
    backend = disk.open()
    backend.acquire("s")
    backend.salvage("s")
    (shown,) = backend.list(False)
    assert not shown.summary.damaged


@pytest.mark.parametrize("session_id", ["s", "A b", "\U0001f600/x", "con", ".x.", "a~b", "\ud800"])
def test_the_name_of_a_folder_tells_the_id(session_id: str) -> None:
    assert decode_segment(encode_segment(session_id)) == session_id


@pytest.mark.parametrize("name", [encode_segment("x" * 300), "A", "a b", "~00e", "~0061", ""])
def test_other_names_tell_none(name: str) -> None:
    assert decode_segment(name) is None
