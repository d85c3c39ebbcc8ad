"""The real command on a store of plain files, with a home of its own and a scripted model."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dsh.session import Session, SessionHeader, SessionMeta
from dsh.session.testing import write_turn
from dsh.session_persistence import summarize

ROOT = Path(__file__).resolve().parents[3]
STORE = ROOT / "tests" / "wheels" / "projects" / "acme-store" / "src"
sys.path.append(str(STORE))

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
class Cli:
    """Runs `dsh` for one test; `kept` is where the sessions are."""

    home: Path
    folder: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def kept(self) -> Path:
        return self.home / ".dsh" / "acme-sessions"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "dsh.cli", *arguments]

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


@pytest.fixture
def cli(tmp_path: Path, bytecode: Path) -> Cli:
    """Return a command with the store of plain files installed and nothing stored."""
    home, folder, site = tmp_path / "home", tmp_path / "work", tmp_path / "site"
    for made in (home / ".dsh", folder, site / "acme_store-1.0.dist-info"):
        made.mkdir(parents=True)
    info = site / "acme_store-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-store\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dsh.plugins]\nacme-store = acme_store:AcmeStore\n"
        "[dsh.seam.session_persistence]\nacme-store = acme_store:AcmeStore\n"
    )
    (home / ".dsh" / "dsh.yaml").write_text(SETTINGS)
    path = os.pathsep.join(filter(None, [str(site), str(STORE), os.environ.get("PYTHONPATH")]))
    env = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": path,
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "PYTHONWARNINGS": "error::ResourceWarning",
    }
    return Cli(home, folder, env)


Store = Callable[..., Session]


@pytest.fixture
def store(cli: Cli) -> Store:
    """Return a function that stores a session with some turns."""
    from acme_store.plugin import FileBackend

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
        backend = FileBackend(cli.kept)
        events = session.events[:cut]
        backend.write(header, events, summarize(events))
        backend.close()
        return session

    return keep
