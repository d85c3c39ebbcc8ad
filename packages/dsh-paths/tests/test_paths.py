"""Where files are kept, and what a failed or concurrent write leaves behind."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from dsh.paths import (
    StateFileError,
    make_folder,
    read_private,
    state_folder,
    sync_folder,
    user_folder,
    write_private,
)


def test_where_things_live() -> None:
    assert user_folder({"HOME": "/h"}) == Path("/h/.dsh")
    assert user_folder({"HOME": "/h", "DSH_HOME": "/d"}) == Path("/d")
    assert user_folder({"HOME": "/h", "DSH_HOME": "~/d"}) == Path(os.path.expanduser("~/d"))
    assert state_folder({"HOME": "/h", "DSH_HOME": "/d"}) == Path("/d/state")


@pytest.mark.parametrize(
    ("platform", "usual"),
    [("linux", "/h/.local/state/dsh"), ("darwin", "/h/Library/Application Support/dsh")],
)
def test_the_state_folder_is_where_the_platform_says(
    monkeypatch: pytest.MonkeyPatch, platform: str, usual: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert state_folder({"HOME": "/h"}) == Path(usual)
    assert state_folder({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/s/dsh")
    assert state_folder({"HOME": "/h", "XDG_STATE_HOME": "s"}) == Path(usual)


def test_the_state_folder_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert state_folder({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/h/AppData/Local/dsh")
    assert state_folder({"HOME": "/h", "LOCALAPPDATA": "/l"}) == Path("/l/dsh")


def test_a_failed_write_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    write_private(file, b"old")
    target = tmp_path / "taken"
    target.mkdir()
    with pytest.raises(StateFileError, match="cannot be written"):
        write_private(target, b"x")
    assert file.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["f.json", "taken"]


def test_what_is_written_is_the_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "f"
    old = os.umask(0)
    try:
        write_private(file, b"x")
        write_private(file, b"y")
    finally:
        os.umask(old)
    assert read_private(file) == b"y"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, tmp_path / "a")]
    assert modes == [0o600, 0o700, 0o700]


def test_only_regular_files_of_a_sane_size_are_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    assert read_private(file, limit=5) == b"12345"
    assert read_private(tmp_path / "absent") is None
    assert read_private(file / "below") is None
    with pytest.raises(StateFileError, match="larger than 4"):
        read_private(file, limit=4)
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(StateFileError, match="not a regular file"):
            read_private(tmp_path / name)


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert make_folder(folder)
    assert not make_folder(folder)
    sync_folder(folder)
    (tmp_path / "file").write_bytes(b"")
    for taken in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="file"):
            make_folder(taken)
