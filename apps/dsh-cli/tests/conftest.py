"""The real command as a child process, with a home of its own and a scripted model."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from dsh.llm_replay.server import Script, ThreadedServer, serve_in_thread
from dsh.session import event_to_wire
from dsh.session_persistence.backend import Backend, StoredLog
from dsh.session_persistence_jsonl import JsonlBackend
from dsh.session_persistence_sqlite import SqliteBackend

KEY = "sk-test-0123456789abcdef"
WAIT_S = 60
HINT = "resume with: "


@dataclass
class Result:
    """What one finished command left behind."""

    code: int
    stdout: str
    stderr: str
    """What was said, but for the hint."""
    hint: str = ""
    """How to go on with the session that was kept, if one was."""

    @classmethod
    def of(cls, code: int, out: bytes, err: bytes) -> Result:
        """Return what a process left behind."""
        lines = err.decode("utf-8", "replace").splitlines(keepends=True)
        hints = [line for line in lines if line.startswith(HINT)]
        said = "".join(line for line in lines if not line.startswith(HINT))
        return cls(code, out.decode(), said, "".join(hints))

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of `--json`; every one must be a JSON object."""
        lines = [json.loads(line) for line in self.stdout.splitlines()]
        assert all(isinstance(line, dict) for line in lines)
        return lines

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def check_clean(self) -> None:
        """No traceback and no key anywhere."""
        for text in (self.stdout, self.stderr):
            assert "Traceback" not in text
            assert "Exception ignored" not in text
            assert KEY not in text


@dataclass
class Cli:
    """Runs `dsh` with an environment that belongs to one test.

    Attributes:
        home: HOME, which exists and is empty.
        folder: Where commands run.
        env: The environment.
    """

    home: Path
    folder: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    python: str = sys.executable

    def command(self, *arguments: str) -> list[str]:
        return [self.python, "-m", "dsh.cli", *arguments]

    def run(
        self,
        *arguments: str,
        stdin: str | bytes | None = None,
        cwd: Path | None = None,
        prefix: tuple[str, ...] = (),
        stdout: IO[bytes] | None = None,
    ) -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        process = subprocess.Popen(
            [*prefix, *self.command(*arguments)],
            cwd=cwd or self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(data, timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"still running: {out!r} {err!r}") from None
        result = Result.of(process.returncode, out or b"", err)
        result.check_clean()
        return result

    @contextmanager
    def start(
        self, *arguments: str, stdout: IO[bytes] | None = None
    ) -> Generator[subprocess.Popen[bytes]]:
        """Start the command and make sure that it is gone afterwards."""
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(WAIT_S)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def finish(self, process: subprocess.Popen[bytes]) -> Result:
        out, err = process.communicate(timeout=WAIT_S)
        result = Result.of(process.returncode, out or b"", err)
        result.check_clean()
        return result

    def settings(self, text: str) -> Path:
        """Write the user's dsh.yaml."""
        file = self.home / ".dsh" / "dsh.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def use(self, server: ThreadedServer) -> None:
        """Point the adapter at a server."""
        self.env["DEEPSEEK_BASE_URL"] = server.url
        self.env["DEEPSEEK_API_KEY"] = KEY


class Pipe:
    """A named pipe through which a command that was started says that it is there.

    Args:
        path: Where to make it.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # open for writing too: then a writer never waits, and its end is no end of the pipe
        self._handle = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._data = b""

    def line(self, process: subprocess.Popen[bytes]) -> str:
        """Return the next line; fail if the process ends without it, or takes too long."""
        deadline = time.monotonic() + WAIT_S
        while b"\n" not in self._data:
            ready, _, _ = select.select([self._handle], [], [], 0.05)
            if ready:
                self._data += os.read(self._handle, 4096)
                continue
            code = process.poll()
            assert code is None, f"ended with {code} and nothing in {self.path}"
            assert time.monotonic() < deadline, f"nothing was written to {self.path}"
        line, _, self._data = self._data.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        os.close(self._handle)


@dataclass
class Kept:
    """What a home has stored, looked at as another process would.

    Attributes:
        cli: Whose home it is.
        store: Which of the shipped stores keeps it: `jsonl` or `sqlite`.
    """

    cli: Cli
    store: str

    @property
    def name(self) -> str:
        return f"session-persistence-{self.store}"

    @property
    def place(self) -> Path:
        """The folder of all sessions, or the database."""
        name = "sessions" if self.store == "jsonl" else "sessions.sqlite"
        return self.cli.home / ".dsh" / name

    def settings(self, text: str = "") -> None:
        """Write the user's dsh.yaml, and name the store in it."""
        self.cli.settings(f"seams: {{session_persistence: {self.name}}}\n{text}")

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
        if not self.place.exists():
            return []
        with self.open() as backend:
            return sorted(snapshot.header.id for snapshot in backend.list(archived=False))

    def only(self) -> str:
        """Return the id of the only session there is."""
        (session_id,) = self.ids()
        return session_id

    def log(self, session_id: str) -> StoredLog:
        """Return what is stored of a session, with nothing repaired."""
        with self.open() as backend:
            return backend.read(session_id)

    def events(self, session_id: str) -> list[dict[str, Any]]:
        return [event_to_wire(event) for event in self.log(session_id).events]

    def types(self, session_id: str) -> list[str]:
        return [event["type"] for event in self.events(session_id)]

    def turns(self, session_id: str) -> int:
        return self.types(session_id).count("turn/start")

    def damage(self, session_id: str, seq: int) -> None:
        """Change a byte of an event."""
        if self.store == "jsonl":
            (file,) = self.place.glob(f"*/{session_id}/session.jsonl")
            before = file.read_bytes()
            file.write_bytes(before.replace(b'"seq":%d,' % seq, b'"seq":%d ' % seq))
            assert file.read_bytes() != before
            return
        with closing(sqlite3.connect(self.place)) as database, database:
            change = "UPDATE events SET time = time + 1 WHERE session_id = ? AND seq = ?"
            assert database.execute(change, (session_id, seq)).rowcount == 1

    def contains(self, text: str) -> bool:
        """Whether a text is anywhere in what is stored, in any file of it."""
        files = [
            self.place,
            *self.place.parent.glob(f"{self.place.name}-*"),
            *self.place.rglob("*"),
        ]
        return any(text.encode() in file.read_bytes() for file in files if file.is_file())


@pytest.fixture
def kept(request: pytest.FixtureRequest, cli: Cli) -> Kept:
    """Have sessions kept by a shipped store, which the parameter names, and return them."""
    kept = Kept(cli, getattr(request, "param", "jsonl"))
    kept.settings()
    return kept


@pytest.fixture
def pipe(cli: Cli) -> Generator[Pipe]:
    """Return a named pipe, `pipe` in the working folder."""
    pipe = Pipe(cli.folder / "pipe")
    yield pipe
    pipe.close()


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


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for compiled modules, shared by all commands of this run."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def cli(tmp_path: Path, bytecode: Path) -> Cli:
    """Return a command with an empty HOME, no key and no server."""
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    env = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp_path),
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "PYTHONWARNINGS": "error::ResourceWarning",
    }
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return Cli(home, folder, env)


Serve = Callable[..., ThreadedServer]


@pytest.fixture
def serve(cli: Cli) -> Generator[Serve]:
    """Return a function that serves a script and points the command at it."""
    with ExitStack() as stack:

        def start(script: Script = (), **options: Any) -> ThreadedServer:
            server = stack.enter_context(serve_in_thread(script, **options))
            cli.use(server)
            return server

        yield start
