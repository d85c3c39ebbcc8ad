"""Several processes on one database, and processes that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

from dsh.core import App
from dsh.session import LiveSessions, SessionEvent, SessionHeader, SessionMeta
from dsh.session.testing import worked_turn
from dsh.session_persistence import SessionInUse, SessionPersistence
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_sqlite import SqliteBackend, SqlitePersistence

if sys.platform == "win32":
    pytest.skip("processes are forked here", allow_module_level=True)

LOG: Final = worked_turn()

HATCHERY: Final = """\
import os
import sys
from pathlib import Path

from dsh.session import SessionEvent, SessionHeader
from dsh.session.testing import worked_turn
from dsh.session_persistence import SessionInUse
from dsh.session_persistence.backend import SummaryFold, summarize
from dsh.session_persistence_sqlite import SqliteBackend

BATCH = worked_turn()


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())


def hold(backend, session_id):
    backend.acquire(session_id)
    say("held", os.getpid())
    sys.stdin.read()


def write(backend, session_id):
    # batches of one turn each, for ever; every one is told after it was stored
    say("begin", os.getpid())
    backend.open()
    if backend.revision(session_id) is None:
        header, events, fold = SessionHeader(id=session_id, created_at=1), (), SummaryFold()
    else:
        backend.acquire(session_id)
        log = backend.read(session_id)
        header, events = log.header, log.events
        fold = SummaryFold(summarize(events))
    seq = len(events)
    say("found", seq)
    while True:
        batch = [SessionEvent(seq + i, e.time, e.data, e.surface_op) for i, e in enumerate(BATCH)]
        fold.add(batch)
        backend.write(header, batch, fold.summary)
        seq += len(batch)
        say("stored", seq)


def race(backend, session_id):
    backend.open()
    say("ready", os.getpid())
    sys.stdin.buffer.raw.read(1)
    try:
        backend.acquire(session_id)
    except SessionInUse:
        say("refused", os.getpid())
    else:
        say("owner", os.getpid())
    sys.stdin.read()


say("hatched", os.getpid())
for line in iter(sys.stdin.buffer.raw.readline, b""):
    job, file, session_id = line.decode().split()
    pid = os.fork()
    if pid == 0:
        backend = SqliteBackend(Path(file), 20)
        if job == "hold":
            backend.open()
        {"hold": hold, "write": write, "race": race}[job](backend, session_id)
        os._exit(0)
    os.waitpid(pid, 0)
    say("dead", pid)
"""
"""Has everything imported, so that another process costs a fork."""


class Hatchery:
    """A process that forks one child at a time and says when it is dead."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout

    def start(self, job: str, file: Path, session_id: str = "s") -> None:
        self._in.write(f"{job} {file} {session_id}\n".encode())
        self._in.flush()

    def hear(self, word: str) -> int:
        """Return the number that comes with the next message, which has to be this one."""
        return self.listen(word)[1]

    def listen(self, *words: str) -> tuple[str, int]:
        """Return the next message, which has to be one of these."""
        said, number = self._out.readline().split()
        assert said.decode() in words
        return said.decode(), int(number)

    def go(self) -> None:
        """Let a child that waits go on."""
        self._in.write(b"!")
        self._in.flush()

    def kill(self, pid: int) -> list[tuple[str, int]]:
        """Kill the child, and return what it had said before."""
        os.kill(pid, signal.SIGKILL)
        rest: list[tuple[str, int]] = []
        while True:
            said, number = self._out.readline().split()
            if said == b"dead":
                assert int(number) == pid
                return rest
            rest.append((said.decode(), int(number)))


@contextmanager
def hatched(folder: Path) -> Generator[Hatchery]:
    script = folder / "hatchery.py"
    script.write_text(HATCHERY, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            hatchery = Hatchery(process)
            hatchery.hear("hatched")
            yield hatchery
        finally:
            process.kill()


@pytest.fixture
def hatchery(tmp_path: Path) -> Generator[Hatchery]:
    with hatched(tmp_path) as made:
        yield made


def test_a_session_has_one_writing_process(
    bench: Any, hatchery: Hatchery, log: tuple[SessionEvent, ...]
) -> None:
    bench.filled()
    bench.filled(session_id="other")
    hatchery.start("hold", bench.file)
    pid = hatchery.hear("held")
    mine = bench.backend()
    with pytest.raises(SessionInUse, match=f"written by process {pid} on ") as caught:
        mine.acquire("s")
    assert caught.value.hint
    mine.acquire("other")
    assert mine.read("s").events == log
    assert [item.header.id for item in mine.list(False)] == ["other", "s"]
    hatchery.kill(pid)
    mine.acquire("s")
    with pytest.raises(SessionInUse, match=f"process {os.getpid()} on "):
        bench.backend().acquire("s")
    mine.release("s")
    bench.backend().acquire("s")


async def test_a_session_of_another_process_cannot_be_resumed(
    bench: Any, hatchery: Hatchery, log: tuple[SessionEvent, ...]
) -> None:
    # case: PS-35
    bench.filled()
    hatchery.start("hold", bench.file)
    pid = hatchery.hear("held")
    async with App() as app:
        await app.mount(LiveSessions).settled()
        await app.mount(SqlitePersistence, {"file": str(bench.file)}).settled()
        store, meta = app[SessionPersistence], SessionMeta(cwd="/w")
        for step in (store.load, store.archive, store.remove, store.salvage):
            with pytest.raises(SessionInUse, match=f"process {pid} on "):
                await step("s")
        with pytest.raises(SessionInUse, match=f"process {pid} on "):
            app[LiveSessions].create(app.ctx, "s", seed=log, meta=meta)
        assert (await store.inspect("s")).events == log
        assert (await store.verify("s")).sound
        hatchery.kill(pid)
        assert (await store.load("s")).events == log
        app[LiveSessions].create(app.ctx, "s", seed=log, meta=meta)


def test_of_two_processes_that_resume_at_once_one_wins(bench: Any, tmp_path: Path) -> None:
    bench.filled()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with hatched(tmp_path / "a") as one, hatched(tmp_path / "b") as other:
        for _ in range(10):
            for each in (one, other):
                each.start("race", bench.file)
            pids = [each.hear("ready") for each in (one, other)]
            for each in (one, other):
                each.go()
            said = [each.listen("owner", "refused")[0] for each in (one, other)]
            assert sorted(said) == ["owner", "refused"]
            for each, pid in zip((one, other), pids, strict=True):
                each.kill(pid)


def test_another_process_appended(
    bench: Any, hatchery: Hatchery, make_header: Callable[[str], SessionHeader]
) -> None:
    # case: SQ-05
    mine = bench.backend()
    mine.write(make_header("s"), LOG, summarize(LOG))
    before = mine.revision("s")
    mine.release("s")
    hatchery.start("write", bench.file)
    pid = hatchery.hear("begin")
    assert hatchery.hear("found") == len(LOG)
    hatchery.hear("stored")
    with pytest.raises(SessionInUse):
        mine.write(make_header("s"), LOG, summarize(LOG))
    hatchery.kill(pid)
    assert mine.revision("s") != before


def test_whatever_was_stored_survives_kills(tmp_path: Path, hatchery: Hatchery) -> None:
    """Fifty times: a process that writes is killed, and the next one goes on."""
    chance = random.Random(4)
    size = len(LOG)
    file = tmp_path / "sessions.sqlite"
    stored = 0
    for number in range(50):
        hatchery.start("write", file)
        pid = hatchery.hear("begin")
        if number % 7:
            found = hatchery.hear("found")
            assert stored <= found <= stored + size
            assert found % size == 0, "a batch is there in part"
            stored = found
            for _ in range(chance.randrange(4)):
                stored = hatchery.hear("stored")
        said = hatchery.kill(pid)
        stored = max([stored, *(seq for _, seq in said)])
    assert stored
    backend = SqliteBackend(file, 5)
    backend.open()
    backend.acquire("s")
    log = backend.read("s")
    assert stored <= len(log.events) <= stored + size
    assert len(log.events) % size == 0
    assert [event.data for event in log.events] == [event.data for event in LOG] * (
        len(log.events) // size
    )
    report = backend.verify("s")
    assert (report.sound, report.torn) == (True, False)
    (shown,) = backend.list(False)
    assert shown.summary == summarize(log.events)
    backend.close()


def test_a_start_that_is_killed_leaves_a_database_that_opens(
    tmp_path: Path, hatchery: Hatchery
) -> None:
    """Twenty times: the process that makes the database is killed at some point of that."""
    chance = random.Random(5)
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        file = folder / "sessions.sqlite"
        hatchery.start("write", file)
        pid = hatchery.hear("begin")
        steps = chance.randrange(400)
        while steps and not (file.exists() and file.stat().st_size):
            steps -= 1
        said = hatchery.kill(pid)
        stored = [seq for word, seq in said if word == "stored"]
        backend = SqliteBackend(file, 5)
        backend.open()
        found = backend.read("s").events if backend.revision("s") else ()
        assert len(found) >= (stored[-1] if stored else 0)
        backend.close()
