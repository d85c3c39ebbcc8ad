"""A disk that fails once or from now on, is full, takes no longer files, or lets nobody write.

No request is made and no tool runs ahead of the log, which is what the judge looks at. Turns end
with the store's error meanwhile, nothing that was acknowledged before is lost, and once the
trouble is over the same agent goes on, or the next process does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from dsh.testkit import needs_program, unprivileged

if os.name != "posix":
    pytest.skip("processes are forked here", allow_module_level=True)

Choose = Callable[[int, int], list[int]]
Judge = Callable[..., Counter[str]]

SYNCS: Final = ("fsync", "fdatasync")
FAILED: Final = "STORAGE_FAILED"


def assert_got_over(told: Any, *, troubled: bool = True) -> None:
    """Fail unless turns ended with the store's error, if any did, and the last one went well."""
    turns = told.of("turn")
    assert {each["code"] for each in turns if each["turn"] == "error"} <= {FAILED}
    assert {each["turn"] for each in turns} <= {"error", "completed"}
    assert {each["code"] for each in told.of("refused")} <= {FAILED}
    if troubled:
        assert [each for each in told.words if each.get("code") == FAILED], told.words
    assert told.status == 0, told.words
    assert turns[-1] == {"turn": "completed", "code": None, "session": "main"}


# --- calls of Python that fail ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "calls", "errno", "most"),
    [
        ("jsonl", SYNCS, "EIO", 8),
        ("zstd", SYNCS, "EIO", 3),
        ("jsonl", ("write",), "ENOSPC", 4),
        ("jsonl", ("link", "mkdir", "unlink", "open"), "EIO", 4),
    ],
)
@pytest.mark.parametrize("lasts", ["once", "until it is lifted", "for good"])
def test_a_call_that_fails(
    place: Path,
    subject: Any,
    judge: Judge,
    chosen: Choose,
    store: str,
    calls: tuple[str, ...],
    errno: str,
    most: int,
    lasts: str,
) -> None:
    fault = {"calls": calls, "errno": errno, "for_good": lasts == "for good"}
    whole = subject.run(place / "whole", store, calls=calls)
    points = len(whole.of("calls")[0]["calls"])
    for number in chosen(points, most):
        until = number if lasts == "once" else 10_000
        told = subject.run(place / str(number), store, fail=number, until=until, **fault)
        judge(told, fails=number)
        assert told.status == 0, told.words
        if lasts != "for good":
            assert_got_over(told, troubled=False)


# --- calls of SQLite that fail ------------------------------------------------------------------

FROM: Final = 320
"""Number of the call that fails; a child makes so many without effect first, see `test_kill`."""


@pytest.mark.parametrize(
    ("pages", "syncs"),
    [(f"ENOSPC:when={FROM}", f"EIO:when={FROM}+"), (f"ENOSPC:when={FROM}+", f"EIO:when={FROM}")],
    ids=["a page once, syncs for good", "pages for good, a sync once"],
)
def test_a_call_of_sqlite_that_fails(
    place: Path, hatch: Any, judge: Judge, chosen: Choose, pages: str, syncs: str
) -> None:
    strace = needs_program("strace")
    command = [strace, "-f", "--seccomp-bpf", "-qq", "-o", os.devnull]
    command += ["-e", "trace=pwrite64,fdatasync"]
    command += ["-e", f"inject=pwrite64:error={pages}", "-e", f"inject=fdatasync:error={syncs}"]
    troubled = 0
    with hatch(*command) as subject:
        for call, total in (("pwrite64", 220), ("fdatasync", 20)):
            lasting = "+" in (pages if call == "pwrite64" else syncs)
            for number in chosen(total, 5):
                burn = [["worker", call, FROM - 1 - number]]
                folder = place / f"{call}-{number}"
                told = subject.run(folder, "sqlite", burn=burn, for_good=lasting)
                judge(told, fails=(call, number, lasting))
                assert told.status == 0, told.words
                failures = [each for each in told.of("turn") if each["turn"] == "error"]
                assert {each["code"] for each in failures} <= {FAILED}
                assert lasting or len(failures) <= 1
                troubled += any(each.get("code") == FAILED for each in told.words)
    assert troubled >= 5


# --- files that may not grow --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "least", "most"), [("jsonl", 200, 24_000), ("sqlite", 40_000, 130_000)]
)
def test_a_file_that_may_not_grow(
    place: Path, subject: Any, judge: Judge, chosen: Choose, store: str, least: int, most: int
) -> None:
    troubled = 0
    for number in chosen(60, 6):
        limit = least + (most - least) * number // 60
        told = subject.run(place / str(number), store, trouble="limit", limit=limit)
        judge(told, limit=limit)
        assert_got_over(told, troubled=False)
        troubled += any(each.get("code") == FAILED for each in told.words)
    assert troubled >= 4


# --- a disk without room ------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A disk of one megabyte."""
    if os.geteuid() != 0 or sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root and mount, on Linux")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("comes", ["start", "turn", "stream", "effect"])
@pytest.mark.parametrize("store", ["jsonl", "sqlite"])
def test_a_disk_that_is_full(
    small_disk: Path, subject: Any, judge: Judge, store: str, comes: str
) -> None:
    told = subject.run(small_disk, store, trouble="full", comes=comes)
    judge(told, comes=comes)
    assert_got_over(told)


# --- a folder that is closed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lasts", "when"),
    [("until it is lifted", ("start", "turn", "stream", "effect")), ("for good", ("turn",))],
)
def test_a_folder_that_is_closed(
    place: Path, hatch: Any, judge: Judge, lasts: str, when: tuple[str, ...]
) -> None:
    with hatch(*unprivileged([])) as subject:
        for store, comes in product(("jsonl", "zstd", "sqlite"), when):
            folder = place / f"{store}-{comes}"
            for_good = lasts == "for good"
            told = subject.run(folder, store, trouble="closed", comes=comes, for_good=for_good)
            assert told.status == 0, told.words
            for path in (folder / "store", *(folder / "store").rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)
            if not for_good:
                # a file that is open already may be written all the same
                assert_got_over(told, troubled=comes == "start")
            judge(told, comes=comes)
