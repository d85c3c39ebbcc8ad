"""A process is killed at every place where the stores change a file, and at random moments.

Acknowledged is what was in a log when a flush began that has returned. It has to be there
afterwards, byte for byte; what else is there, may be. See `subject.py` for what is played.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest

from dsh.session import TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN
from dsh.testkit import needs_program

if os.name != "posix":
    pytest.skip("processes are forked here", allow_module_level=True)

Choose = Callable[[int, int], list[int]]
Judge = Callable[..., Counter[str]]

KILLED: Final = -signal.SIGKILL


def backend_of(number: int) -> str:
    """Return what a child runs on; every eighth on trio, which takes longer to start."""
    return "asyncio" if number % 8 else "trio"


def assert_seen(found: Counter[str], *what: str) -> None:
    """Fail if a sweep never met what it is made to meet."""
    assert not [each for each in what if not found[each]], found


# --- Python's own system calls ------------------------------------------------------------------


@pytest.mark.parametrize(("store", "most"), [("jsonl", 200), ("zstd", 12), ("sqlite", 10)])
def test_killed_before_a_call(
    place: Path, subject: Any, judge: Judge, chosen: Choose, store: str, most: int
) -> None:
    whole = subject.run(place / "whole", store)
    found = judge(whole)
    assert whole.status == 0
    calls = whole.of("calls")[0]["calls"]
    for number in chosen(len(calls), most):
        folder = place / str(number)
        told = subject.run(folder, store, kill=number, backend=backend_of(number))
        assert told.status == KILLED, (number, told.words)
        found += judge(told, before=(number, calls[number]))
    if store == "jsonl":  # every one of them
        assert len(calls) > 40, calls
        assert_seen(found, "effects", "interrupted", TOOL_OUTCOME_UNKNOWN, TOOL_NOT_STARTED)


@pytest.mark.parametrize(("store", "most"), [("jsonl", 100), ("zstd", 8)])
def test_killed_in_the_middle_of_a_write(
    place: Path, subject: Any, judge: Judge, chosen: Choose, store: str, most: int
) -> None:
    calls = subject.run(place / "whole", store).of("calls")[0]["calls"]
    writes = [number for number, name in enumerate(calls) if name in ("write", "pwrite")]
    found: Counter[str] = Counter()
    for at in chosen(len(writes), most):
        told = subject.run(place / str(at), store, tear=writes[at])
        assert told.status == KILLED
        found += judge(told, inside=writes[at])
    assert len(writes) > 10
    assert_seen(found, "torn", "interrupted")


# --- what SQLite does itself --------------------------------------------------------------------

CALLS: Final = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink")
BURNT: Final = 320
"""Number of the call before which a tracer kills the thread that makes it. A child makes so many
calls without effect first that it is the one we want. The play makes fewer."""


@pytest.fixture(scope="module")
def traced(
    tmp_path_factory: pytest.TempPathFactory, hatch: Any
) -> Generator[tuple[Any, Path], None, None]:
    """The process, traced, and the file with its calls."""
    strace = needs_program("strace")
    calls = ",".join(f"?{call}" for call in CALLS)
    trace = tmp_path_factory.mktemp("trace") / "calls"
    command = [strace, "-f", "-qq", "-o", str(trace), "-e", f"trace={calls}"]
    with hatch(*command, "-e", f"inject={calls}:signal=KILL:when={BURNT}") as made:
        yield made, trace


def calls_of(trace: str, main: int) -> Counter[tuple[str, str]]:
    """Count the calls of a child by thread and name."""
    counts: Counter[tuple[str, str]] = Counter()
    for pid, call in re.findall(r"^(\d+) +(\w+)\(", trace, re.MULTILINE):
        counts["main" if int(pid) == main else "worker", call] += 1
    return counts


@pytest.mark.parametrize(("store", "most"), [("sqlite", 28), ("jsonl", 3)])
def test_killed_before_a_call_of_sqlite(
    place: Path, traced: Any, judge: Judge, chosen: Choose, store: str, most: int
) -> None:
    subject, trace = traced
    start = trace.stat().st_size
    whole = subject.run(place / "whole", store)
    found = judge(whole)
    counts = calls_of(trace.read_text("utf-8")[start:], whole.of("started")[0]["started"])
    assert max(counts.values()) < BURNT, counts
    points = [(*where, number) for where in sorted(counts) for number in range(counts[where])]
    killed = 0
    for at in chosen(len(points), most):
        thread, call, number = points[at]
        burn = [[thread, call, BURNT - 1 - number]]
        told = subject.run(place / str(at), store, burn=burn, backend=backend_of(at))
        # how many pages SQLite writes differs a little from run to run
        assert told.status in (0, KILLED), told.words
        killed += told.status == KILLED
        found += judge(told, before=points[at])
    assert killed >= most * 3 // 4
    if store == "sqlite":
        assert len(points) > 200
        assert_seen(found, "effects", "interrupted")


# --- random moments -----------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["jsonl", "zstd", "sqlite"])
def test_killed_at_random(
    place: Path, subject: Any, judge: Judge, chosen: Choose, store: str
) -> None:
    """With events written behind all the time, and anywhere between two of the calls above."""
    seed = 7
    chance = random.Random(seed)
    for number in chosen(100, 8):
        left = chance.randrange(2, 40)
        spins = chance.randrange(40_000)
        told = subject.start(place / str(number), store, window=1)
        while left and subject.listen(told):
            left -= 1
        for _ in range(spins):
            pass
        os.kill(told.of("started")[0]["started"], signal.SIGKILL)
        while subject.listen(told):
            pass
        judge(told, seed=seed, number=number, spins=spins)
