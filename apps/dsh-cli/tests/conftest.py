"""The real command as a child process, with a home of its own and a scripted model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from dsh.llm_replay.server import Script, ThreadedServer, serve_in_thread

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

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "dsh.cli", *arguments]

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
