"""A store in a temporary folder, and logs to put into it."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dsh.core import json as djson
from dsh.session import (
    MessageTrigger,
    Session,
    SessionEvent,
    SessionHeader,
    StepStart,
    TurnStart,
    UserSource,
)
from dsh.session.testing import worked_turn, write_turn
from dsh.session_persistence.backend import StoredLog, summarize
from dsh.session_persistence_jsonl import JsonlBackend


class Disk:
    """One folder and as many backends on it as a test opens; each is like another process."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.options = options
        self.opened: list[JsonlBackend] = []

    def open(self, **options: Any) -> JsonlBackend:
        """Open one more backend."""
        backend = JsonlBackend(self.root, **{**self.options, **options})
        backend.open()
        self.opened.append(backend)
        return backend

    def close(self) -> None:
        """Close them all."""
        while self.opened:
            self.opened.pop().close()

    def fill(
        self,
        session_id: str,
        *batches: tuple[SessionEvent, ...],
        cwd: str | None = "/w",
        **options: Any,
    ) -> Path:
        """Store a session that nobody uses afterwards, and return its file."""
        backend = self.open(**options)
        header = SessionHeader(id=session_id, created_at=1_700_000_000_000, cwd=cwd)
        so_far: tuple[SessionEvent, ...] = ()
        for batch in batches:
            so_far += batch
            backend.write(header, batch, summarize(so_far))
        backend.release(session_id)
        place = backend.locate(header)
        assert place is not None
        return Path(place)

    def read(self, session_id: str = "s") -> StoredLog:
        """Read a session in a process of its own."""
        backend = JsonlBackend(self.root, **self.options)
        backend.open()
        try:
            return backend.read(session_id)
        finally:
            backend.close()


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk, None, None]:
    """Storage for plain logs."""
    disk = Disk(tmp_path / "sessions")
    yield disk
    disk.close()


@pytest.fixture
def zdisk(tmp_path: Path) -> Generator[Disk, None, None]:
    """Storage for compressed logs."""
    disk = Disk(tmp_path / "sessions", compressed=True)
    yield disk
    disk.close()


@pytest.fixture
def quick_path() -> Generator[Path, None, None]:
    """An empty folder in memory where there is one: some tests write a file ten thousand times."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def turn() -> tuple[SessionEvent, ...]:
    """A complete turn with a tool call."""
    return worked_turn()


@pytest.fixture(scope="session")
def two_turns() -> tuple[SessionEvent, ...]:
    """Two complete turns."""
    session = Session("s", worked_turn())
    write_turn(session, "and now", tool=False)
    return session.events[:]


@pytest.fixture(scope="session")
def open_turn() -> tuple[SessionEvent, ...]:
    """A complete turn, and one that breaks off in its first step."""
    session = Session("s", worked_turn())
    session.append(TurnStart(2, MessageTrigger(UserSource())))
    session.append(StepStart(2, 1))
    return session.events[:]


DRIVER = '''
"""Do things to a store and tell how each went: one JSON line of [deed, code or ok, message]."""
import json, os, sys
from pathlib import Path
from dsh.session import Session, SessionHeader
from dsh.session.testing import worked_turn
from dsh.session_persistence import PersistenceError, StoredSessionNotFound
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_jsonl import JsonlBackend

root, tries, *deeds = sys.argv[1:]
backend = JsonlBackend(Path(root))
header = SessionHeader(id="s", created_at=1, cwd="/w")
turn = worked_turn()
stored = 0
told = []

def stored_events():
    try:
        return JsonlBackend(Path(root)).read("s").events
    except StoredSessionNotFound:
        return ()

def act(deed):
    global stored
    name, _, number = deed.partition(":")
    if name == "write":
        end = int(number) or len(turn)
        backend.write(header, turn[stored:end], summarize(turn[:end]))
        stored = end
    elif name == "many":
        for at in range(5):
            other = SessionHeader(id=f"{number}-{at}", created_at=1, cwd=f"/w/{number}")
            backend.write(other, turn, summarize(turn))
            backend.release(other.id)
    elif name == "wait":
        tell()
        sys.stdin.readline()
    elif name == "read":
        assert len(backend.read("s").events) >= int(number)
    elif name == "list":
        assert len(list(backend.list(False))) == int(number)
    elif name == "close":
        backend.close()
    else:
        backend.acquire("s")
        {
            "archive": lambda: backend.set_archived("s", True),
            "remove": lambda: backend.remove("s"),
            "acquire": lambda: None,
        }[name]()

def tell():
    text = "".join(json.dumps(line) + "\\n" for line in told).encode()
    told.clear()
    while text:
        try:
            text = text[os.write(1, text):]
        except OSError:
            continue

for deed in deeds:
    for attempt in range(int(tries)):
        try:
            act(deed)
        except PersistenceError as error:
            told.append([deed, error.code, str(error)])
            if deed.startswith("write"):
                got = stored_events()
                assert got[:stored] == turn[:stored] and len(got) >= stored, "acknowledged was lost"
        else:
            told.append([deed, "ok", ""])
            break
got = stored_events()
assert got == turn[:stored] or "remove" in deeds, (len(got), stored)
tell()
'''


@pytest.fixture(scope="session")
def driver() -> Callable[..., list[str]]:
    """Makes the command line of a process that does things to a store."""

    def command(root: Path, *deeds: str, tries: int = 1) -> list[str]:
        return [sys.executable, "-c", DRIVER, str(root), str(tries), *deeds]

    return command


def _sealed(value: object) -> bytes:
    body = djson.dumps(djson.check(value))[:-1]
    # the lines of a session start from its id; every test that writes them names it so
    seed = 0 if b'"type":"session"' in body[:20] else zlib.crc32(b"s")
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body, seed)


@pytest.fixture(scope="session")
def sealed() -> Callable[[object], bytes]:
    """Makes a line of a log, as another program would that knows the format."""
    return _sealed
