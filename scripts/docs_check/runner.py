"""Running the blocks of one page, in order, in a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from select import select

from docs_check.blocks import Block, Page, Problem, output_differs
from docs_check.environment import Environment, EnvironmentFailure

_WORKER = Path(__file__).with_name("worker.py")


class _Failed(Exception):
    """A block did not do what the page says."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


def run_page(page: Page, environment: Callable[[], Environment], limit_s: float) -> Problem | None:
    """Run a page until its first block that fails, and return what went wrong.

    Args:
        page: The page.
        environment: Makes its environment.
        limit_s: Seconds that all its blocks together may take.
    """
    if not any(block.runs for block in page.blocks):
        return None
    try:
        runner = _Runner(environment(), limit_s)
    except EnvironmentFailure as error:
        return Problem(page.path, 1, f"no environment of its own: {error}")
    try:
        for block in page.blocks:
            try:
                runner.run(block)
            except _Failed as error:
                return block.problem(str(error), error.line)
    finally:
        runner.close()
    return None


class _Runner:
    """The processes of one page."""

    def __init__(self, environment: Environment, limit_s: float) -> None:
        self._environment = environment
        self._limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        self._log = environment.folder.with_name(f"{environment.folder.name}.log")
        self._groups: list[int] = []
        self._worker: _Worker | None = None

    def run(self, block: Block) -> None:
        """Do what a block asks for."""
        if block.file is not None:
            self._write(block, block.file)
        elif block.runs:
            start = self._log.stat().st_size if self._log.exists() else 0
            line = self._python(block) if block.language == "python" else self._shell(block)
            printed = self._log.read_bytes()[start:].decode("utf-8", errors="replace")
            if line is not None:
                raise _Failed(f"fails\n{printed.rstrip()}", line)
            difference = output_differs(block, printed)
            if difference is not None:
                assert block.output is not None  # nothing else can differ
                raise _Failed(difference, block.output.line)

    def close(self) -> None:
        """End every process that the page started."""
        if self._worker is not None:
            self._worker.close()
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        if self._worker is not None:
            self._worker.process.wait()

    def _write(self, block: Block, name: str) -> None:
        path = self._environment.folder / name.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")

    def _start(
        self, command: list[str], descriptors: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        # a file, not a pipe: what a block leaves in the background must not hold up the page
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self._environment.folder,
                env=self._environment.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=descriptors,
            )
        self._groups.append(process.pid)
        return process

    def _shell(self, block: Block) -> int | None:
        process = self._start(["bash", "-e", "-o", "pipefail", "-c", block.padded, block.page.name])
        try:
            code = process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise self._late() from None
        if code == block.exit:
            return None
        self._note(f"exit code {code}, not {block.exit}")
        return block.line

    def _python(self, block: Block) -> int | None:
        if self._worker is None:
            self._worker = _Worker(str(self._environment.python), self._start)
        answer = self._worker.ask(str(block.page), block.padded, self._deadline)
        if answer is None:
            raise self._late()
        if not answer["failed"]:
            return None
        if "ended" in answer:
            self._note(f"the process of the examples ended with {answer['ended']}")
        line = answer["line"]
        return line if isinstance(line, int) else block.line

    def _note(self, text: str) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")

    def _late(self) -> _Failed:
        return _Failed(f"still runs after {self._limit_s:g} s for the whole page")


class _Worker:
    """The process of the Python blocks."""

    def __init__(
        self,
        python: str,
        start: Callable[[list[str], tuple[int, ...]], subprocess.Popen[bytes]],
    ) -> None:
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        code = _WORKER.read_text(encoding="utf-8")
        command = [python, "-c", code, str(read_commands), str(write_answers)]
        self.process = start(command, (read_commands, write_answers))
        os.close(read_commands)
        os.close(write_answers)

    def ask(self, page: str, code: str, deadline: float) -> dict[str, object] | None:
        """Run code and return the answer; none if it took too long."""
        line = json.dumps({"page": page, "code": code}) + "\n"
        with suppress(BrokenPipeError):
            os.write(self._commands, line.encode())
        reply = b""
        while not reply.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select([self._answers], [], [], left)[0]:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                return None
            part = os.read(self._answers, 4096)
            if not part:
                return {"failed": True, "line": None, "ended": self.process.wait()}
            reply += part
        return json.loads(reply)

    def close(self) -> None:
        """Let it end by itself."""
        os.close(self._commands)
        os.close(self._answers)
