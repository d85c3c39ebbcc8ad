"""`dsh demo --crash`: a process dies in the middle of a command, another one goes on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from dsh.cli._demo_project import step
from dsh.cli._exit_codes import ERROR, OK
from dsh.cli._failures import say
from dsh.cli._out import Out, stderr
from dsh.cli._signals import Signals
from dsh.cli._view import RESUME_WITH
from dsh.core import json as djson
from dsh.core.json import JsonObject
from dsh.llm_replay.server import Behaviour, Entry, WireRequest, WireServer, success
from dsh.sessions import short_id

TASK: Final = "Put the three notes into one file, notes.txt."
GO_ON: Final = "Go on where you were interrupted."
NOTES: Final = "buy milk\nwater the plants\ncall home\n"
_DONE: Final = "notes.txt"
_WAIT_S: Final = 60.0
_LINE_BYTES: Final = 16 * 1024 * 1024
_PIPE, _NOTHING = -1, -3
"""As the standard library says it: a new pipe, the null device."""
_UNKNOWN: Final = "no result was recorded"
"""Part of what the model is told about a call whose outcome nobody knows."""

INTRODUCTION: Final = """\
dsh demo --crash: the model is scripted and served on this machine; the processes, the command, the
session store and the SIGKILL are real.
"""


def script() -> list[Entry]:
    """Return the model's part: what it says and does, one entry per request."""
    command = r"printf 'buy milk\nwater the plants\ncall home\n' > notes.txt; sleep 600"
    return [
        step("call_1", "I will write the file.", command, "Write the notes"),
        _look_first,
        _conclude,
    ]


def _look_first(request: WireRequest) -> Behaviour:
    if _UNKNOWN not in _last_result(request):
        return success("I was not told that my command was interrupted.")
    text = (
        "My last command was interrupted, and nobody knows how far it came. I look before I do "
        "anything twice."
    )
    return step("call_2", text, "cat notes.txt", "See what is there")


def _conclude(request: WireRequest) -> Behaviour:
    if NOTES.strip() in _last_result(request):
        return success("All three notes are in notes.txt already, so there is nothing to repeat.")
    return success("The file is not as it should be; this is not what the script expected.")


def _last_result(request: WireRequest) -> str:
    """Return what the model was told about its last call, prompts after it or not."""
    told = [str(message["content"]) for message in request.messages if message["role"] == "tool"]
    return told[-1] if told else ""


async def run_crash_demo(folder: Path, home: Path, out: Out, signals: Signals) -> int:
    """Have one process killed in the middle of a command and another go on; return an exit code.

    Args:
        folder: Where the commands run.
        home: The folder of a user of its own, where the session is kept.
        out: Standard output.
        signals: What may interrupt it.
    """
    async with WireServer(script()) as server:
        config = home / "demo.json"
        config.write_bytes(djson.dumps(_settings(server.url)))
        demo = _CrashDemo(folder, config, {**os.environ, "DSH_HOME": str(home)}, out)
        code = ERROR
        async with anyio.create_task_group() as group:
            group.start_soon(demo.watch, signals)
            code = await demo.run()
            group.cancel_scope.cancel()
        if code != OK:
            return code
        told = _last_result(server.attempts[1].request)
    return _judge(told, folder, out)


def _judge(told: str, folder: Path, out: Out) -> int:
    out.line()
    file = folder / _DONE
    if _UNKNOWN not in told or not file.is_file() or file.read_text(encoding="utf-8") != NOTES:
        say("the demo did not end as expected")
        return ERROR
    out.line("what the model was told about the command that was running:")
    out.line(f"  {told}")
    out.line("Nothing that had been logged was lost, and nothing was done twice.")
    return OK


def _settings(url: str) -> JsonObject:
    adapter: JsonObject = {
        "use": "llm-deepseek",
        "config": {"base_url": url, "api_key": "none"},
    }
    return {"version": 1, "plugins": ["record", adapter]}


class _CrashDemo:
    """The two processes of the demo.

    Args:
        folder: Where the commands run.
        config: The settings of both.
        env: The environment of both.
        out: Standard output.
    """

    def __init__(self, folder: Path, config: Path, env: Mapping[str, str], out: Out) -> None:
        self._folder = folder
        self._config = config
        self._env = env
        self._out = out
        self._process: Process | None = None
        self._interrupted: int | None = None

    async def run(self) -> int:
        """Run the first process up to its end, then the second."""
        session_id = await self._first()
        if self._interrupted is not None:
            return 128 + self._interrupted
        if session_id is None:
            say("the first process did not come as far as its command")
            return ERROR
        self._out.line(f'$ dsh run --resume {short_id(session_id)} "{GO_ON}"')
        async with await self._start("--resume", session_id, GO_ON, shown=True) as process:
            self._began(process)
            await _pass_on(process)
            code = await process.wait()
        self._process = None
        return 128 + self._interrupted if self._interrupted is not None else code

    async def watch(self, signals: Signals) -> None:
        """End the process that is running, or the one that is just being started."""
        self._interrupted = await signals.wait()
        if self._process is not None:
            self._end(self._process)

    def _began(self, process: Process) -> None:
        self._process = process
        if self._interrupted is not None:
            self._end(process)

    @staticmethod
    def _end(process: Process) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            process.terminate()

    async def _first(self) -> str | None:
        """Run until the command is under way, then kill the process; return its session's id."""
        self._out.line(f'$ dsh run "{TASK}"')
        session_id: str | None = None
        async with await self._start("--json", TASK, shown=False) as process:
            self._began(process)
            assert process.stdout is not None
            lines = BufferedByteReceiveStream(process.stdout)
            while (line := await _read(lines)) is not None:
                if line["type"] == "run/start":
                    session_id = str(line["sessionId"])
                elif line["type"] == "tool/call" and await self._under_way():
                    process.send_signal(signal.SIGKILL)
                    self._out.line("  the command is running: dsh is killed with SIGKILL now")
                    await process.wait()
                    break
            else:
                session_id = None
                await process.wait()
        self._process = None
        return session_id

    async def _start(self, *arguments: str, shown: bool) -> Process:
        command = [sys.executable, "-m", "dsh.cli", "run", "--config", str(self._config)]
        return await anyio.open_process(
            [*command, *arguments],
            cwd=self._folder,
            env=self._env,
            stdin=_NOTHING,
            stdout=None if shown else _PIPE,
            stderr=_PIPE if shown else None,
        )

    async def _under_way(self) -> bool:
        """Wait until the command has had its effect, which it has long before it ends."""
        with anyio.move_on_after(_WAIT_S):
            while self._interrupted is None:
                file = self._folder / _DONE
                if file.is_file() and file.read_text(encoding="utf-8") == NOTES:
                    return True
                await anyio.sleep(0.02)
        return False


async def _pass_on(process: Process) -> None:
    """Show what a process says, but for the way to resume a session that is gone with the demo."""
    assert process.stderr is not None
    lines, err = BufferedByteReceiveStream(process.stderr), stderr()
    while True:
        try:
            line = (await lines.receive_until(b"\n", _LINE_BYTES)).decode("utf-8", "replace")
        except (anyio.IncompleteRead, anyio.EndOfStream):
            return
        if not line.startswith(RESUME_WITH):
            err.line(line, dim=True)


async def _read(lines: BufferedByteReceiveStream) -> JsonObject | None:
    """Return the next JSON line, or nothing at the end."""
    try:
        line = djson.loads(await lines.receive_until(b"\n", _LINE_BYTES))
    except (anyio.IncompleteRead, anyio.EndOfStream):
        return None
    return line if isinstance(line, dict) else {}
