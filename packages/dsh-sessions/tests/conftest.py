"""The real command on the shipped stores, with a home of its own and a scripted model."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dsh.session import Session, SessionEvent, SessionHeader, SessionMeta, event_to_wire
from dsh.session.testing import write_turn
from dsh.session_persistence import StoredSessionNotFound
from dsh.session_persistence.backend import Backend, StoredLog, summarize
from dsh.session_persistence_jsonl import JsonlBackend
from dsh.session_persistence_sqlite import SqliteBackend

WAIT_S = 60
NOW = 1_790_000_000_000
SETTINGS = """\
version: 1
model: replay/scripted
plugins:
  - record
  - use: llm-replay
    config: {script: [Done.], repeat_last: true, models: [replay/scripted, test/model]}
"""


@dataclass
class Result:
    """What one finished command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[list[str]]:
        """The lines of a listing, as cells."""
        return [line.split("\t") for line in self.stdout.splitlines()]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


@dataclass
class Kept:
    """What a home has stored, looked at as another process would.

    Attributes:
        home: The folder of the user.
        store: Which of the shipped stores keeps it: `jsonl` or `sqlite`.
    """

    home: Path
    store: str

    @property
    def place(self) -> Path:
        """The folder of all sessions, or the database."""
        name = "sessions" if self.store == "jsonl" else "sessions.sqlite"
        return self.home / ".dsh" / name

    @property
    def name(self) -> str:
        return f"session-persistence-{self.store}"

    def write_settings(self, text: str) -> None:
        """Write the user's dsh.yaml, and name the store in it."""
        file = self.home / ".dsh" / "dsh.yaml"
        file.write_text(f"seams: {{session_persistence: {self.name}}}\n{text}")

    @contextmanager
    def open(self) -> Generator[Backend]:
        backend = (
            JsonlBackend(self.place) if self.store == "jsonl" else SqliteBackend(self.place, 5)
        )
        backend.open()
        try:
            yield backend
        finally:
            backend.close()

    def ids(self) -> list[str]:
        with self.open() as backend:
            found = [*backend.list(archived=False), *backend.list(archived=True)]
            return sorted(snapshot.header.id for snapshot in found)

    def log(self, session_id: str) -> StoredLog:
        """Return what is stored of a session, with nothing repaired."""
        with self.open() as backend:
            return backend.read(session_id)

    def events(self, session_id: str) -> list[dict[str, Any]]:
        return [event_to_wire(event) for event in self.log(session_id).events]

    def has(self, session_id: str) -> bool:
        try:
            return bool(self.log(session_id).events)
        except StoredSessionNotFound:
            return False

    def where(self, session_id: str) -> Path:
        """Return the file that a session is in."""
        with self.open() as backend:
            header = next(
                snapshot.header
                for archived in (False, True)
                for snapshot in backend.list(archived)
                if snapshot.header.id == session_id
            )
            place = backend.locate(header)
            assert place is not None
            return Path(place)

    def put(self, header: SessionHeader, events: tuple[SessionEvent, ...]) -> None:
        """Store a session as another process would."""
        with self.open() as backend:
            backend.write(header, events, summarize(events))

    def remove(self, session_id: str) -> None:
        with self.open() as backend:
            backend.acquire(session_id)
            backend.remove(session_id)

    @contextmanager
    def held(self, session_id: str) -> Generator[None]:
        """Own a session in this process, which is another one than any command."""
        with self.open() as backend:
            backend.acquire(session_id)
            yield

    def damage(self, session_id: str, seq: int) -> None:
        """Flip a bit of an event; `seq` -1 stands for the header."""
        if self.store == "jsonl":
            file = self.where(session_id)
            lines = file.read_bytes().splitlines(keepends=True)
            wanted = b'"seq":%d,' % seq
            at = 0 if seq < 0 else next(n for n, line in enumerate(lines) if wanted in line)
            middle = len(lines[at]) // 2
            lines[at] = (
                lines[at][:middle] + bytes([lines[at][middle] ^ 1]) + lines[at][middle + 1 :]
            )
            file.write_bytes(b"".join(lines))
            return
        with closing(sqlite3.connect(self.place)) as database, database:
            if seq < 0:
                change = "UPDATE sessions SET cwd = cwd || 'x' WHERE id = ?"
                database.execute(change, (session_id,))
            else:
                change = "UPDATE events SET time = time + 1 WHERE session_id = ? AND seq = ?"
                database.execute(change, (session_id, seq))


@dataclass
class Cli:
    """Runs `dsh` for one test; `kept` is what it has stored."""

    home: Path
    folder: Path
    kept: Kept
    env: dict[str, str] = field(default_factory=dict[str, str])
    python: str = sys.executable

    def command(self, *arguments: str) -> list[str]:
        return [self.python, "-m", "dsh.cli", *arguments]

    def run(self, *arguments: str, stdin: str | None = None, cwd: Path | None = None) -> Result:
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=cwd or self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(
                None if stdin is None else stdin.encode(), timeout=WAIT_S
            )
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"still running: {process.communicate()}") from None
        result = Result(process.returncode, out.decode(), err.decode())
        assert "Traceback" not in result.stdout + result.stderr, result.stderr
        return result

    def on_terminal(self, *arguments: str, answer: str = "", columns: int = 80) -> tuple[int, str]:
        """Run on a pseudo-terminal; return the exit code and all that was shown."""
        code = (
            "import fcntl, os, struct, sys, termios\n"
            "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
            f"fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, {columns}, 0, 0))\n"
            "os.execv(sys.executable, [sys.executable, '-m', 'dsh.cli', *sys.argv[1:]])\n"
        )
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env={**self.env, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        shown = b""
        while select.select([master], [], [], WAIT_S)[0]:
            try:
                part = os.read(master, 65536)
            except OSError:  # the last one has closed it
                break
            if not part:
                break
            shown += part
            if answer and b"[y/N]" in shown:
                os.write(master, answer.encode())
                answer = ""
        os.close(master)
        return process.wait(WAIT_S), shown.decode()


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for compiled modules, shared by all commands of this run."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture(scope="session")
def storeless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the Python of an environment that has all of this one but the session stores."""
    folder = tmp_path_factory.mktemp("storeless")
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "session_persistence_" not in entry.name:
            (site / entry.name).symlink_to(entry)
    return str(folder / "bin" / "python")


@pytest.fixture
def cli(request: pytest.FixtureRequest, tmp_path: Path, bytecode: Path) -> Cli:
    """Return a command with nothing stored; its parameter says on which store."""
    home, folder = tmp_path / "home", tmp_path / "work"
    for made in (home / ".dsh", folder):
        made.mkdir(parents=True)
    kept = Kept(home, getattr(request, "param", "jsonl"))
    kept.write_settings(SETTINGS)
    env = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp_path),
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "PYTHONWARNINGS": "error::ResourceWarning",
    }
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return Cli(home, folder, kept, env)


Store = Callable[..., Session]


@pytest.fixture
def store(cli: Cli) -> Store:
    """Return a function that stores a session with some turns."""

    def keep(
        session_id: str,
        *prompts: str,
        cwd: Path | None = None,
        created_at: int = NOW,
        cut: int | None = None,
        **meta: Any,
    ) -> Session:
        folder = str(cwd or cli.folder)
        about = SessionMeta(cwd=folder, created_at=created_at, **meta)
        header = SessionHeader(
            id=session_id, created_at=about.created_at or 0, cwd=about.cwd, origin=about.origin
        )
        session = Session(session_id, (), header)
        for prompt in prompts or ("hi",):
            write_turn(session, prompt)
        cli.kept.put(header, session.events[:cut])
        return session

    return keep
