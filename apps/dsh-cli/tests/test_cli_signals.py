"""Signals, closed pipes and full disks: the run ends in good order and leaves nothing behind."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.cli._starting import Starting
from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer

Cli = Any
Pipe = Any
Serve = Callable[..., ThreadedServer]

WAIT_S = 60
linux = pytest.mark.skipif(sys.platform != "linux", reason="process handles are Linux's")
STUBBORN = (
    "trap '' TERM INT HUP; {{ echo $$; setsid sleep 1000 >&2 & echo $!; }} > {fifo}; sleep 1000"
)


def bash(command: str) -> wire.Behaviour:
    return wire.tool_call_success("bash", {"command": command, "description": "d"})


def lines_until(process: subprocess.Popen[bytes], word: bytes) -> list[dict[str, Any]]:
    """Read JSON lines of a running command up to the first that holds `word`."""
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    while True:
        line = process.stdout.readline()
        lines.append(json.loads(line))
        if word in line:
            return lines


def gone(pids: list[int], handles: list[int]) -> bool:
    """Wait until every process has ended; the kernel says when, so nothing is polled."""
    for handle in handles:
        if not select.select([handle], [], [], WAIT_S)[0]:
            return False
    return bool(pids)


@contextmanager
def started(
    pipe: Pipe, process: subprocess.Popen[bytes], count: int = 2
) -> Generator[tuple[list[int], list[int]]]:
    """Wait for a command to write process ids to a pipe; yield them and handles on them."""
    pids = [int(pipe.line(process)) for _ in range(count)]
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        yield pids, handles
    finally:
        for handle in handles:
            os.close(handle)


def closed(events: list[dict[str, Any]]) -> bool:
    kinds = [event["type"] for event in events]
    pairs = [(f"{kind}/start", f"{kind}/end") for kind in ("turn", "step", "run")]
    calls = {e["data"]["callId"] for e in events if e["type"] == "tool/call"}
    results = {e["data"]["callId"] for e in events if e["type"] == "tool/result"}
    return calls <= results and all(kinds.count(start) == kinds.count(end) for start, end in pairs)


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 129, "hangup"),
    ],
)
def test_a_signal_inside_an_answer_closes_the_log(
    cli: Cli, serve: Serve, number: signal.Signals, code: int, reason: str
) -> None:
    gate = wire.Gate()
    server = serve([wire.held_success(gate, "Half an answer, no more", after=2)])
    with cli.start("run", "--json", "go") as process:
        seen = lines_until(process, b"text-delta")
        process.send_signal(number)
        result = cli.finish(process)
    assert result.code == code
    events = [*seen, *result.events]
    assert events[-1]["reason"] == {"kind": "aborted", "reason": reason}
    assert events[-1]["exitCode"] == code
    assert closed(events)
    message = next(e for e in events if e["type"] == "assistant/message")
    assert message["data"]["interrupted"] is True
    assert server.wait_finished() == "client-aborted"


def test_an_interrupt_keeps_what_was_said_and_says_so(cli: Cli, serve: Serve) -> None:
    gate = wire.Gate()
    server = serve([wire.held_success(gate, "Half an answer, no more", after=2)])
    with cli.start("run", "go") as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"Half"
        server.wait_reached(gate, WAIT_S)
        process.send_signal(signal.SIGINT)
        result = cli.finish(process)
    assert result.code == 130
    assert result.stdout.endswith("\n")
    assert "dsh: interrupted" in result.stderr.splitlines()


@linux
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_inside_a_command_kills_it_with_everything_it_started(
    cli: Cli, serve: Serve, pipe: Pipe, number: signal.Signals, code: int
) -> None:
    serve([bash(STUBBORN.format(fifo=pipe.path)), wire.success("never")])
    with cli.start("run", "--json", "go") as process, started(pipe, process) as (pids, handles):
        process.send_signal(number)
        result = cli.finish(process)
        assert gone(pids, handles)
    assert result.code == code
    assert closed(result.events)


@linux
def test_a_second_interrupt_ends_it_at_once_and_still_leaves_nothing(
    cli: Cli, serve: Serve, pipe: Pipe
) -> None:
    serve([bash(STUBBORN.format(fifo=pipe.path)), wire.success("never")])
    with cli.start("run", "go") as process, started(pipe, process) as (pids, handles):
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"$ trap")
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == b"dsh: interrupting; once more to stop at once\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert gone(pids, handles)
        assert b"Traceback" not in process.stderr.read()


@linux
def test_killing_the_harness_kills_its_commands(cli: Cli, serve: Serve, pipe: Pipe) -> None:
    # case: F-06
    serve([bash(STUBBORN.format(fifo=pipe.path)), wire.success("never")])
    with cli.start("run", "go") as process, started(pipe, process) as (pids, handles):
        process.kill()
        process.wait(WAIT_S)
        assert gone(pids, handles)


@linux
def test_a_background_command_ends_with_the_run(cli: Cli, serve: Serve, pipe: Pipe) -> None:
    command = f"echo $$ > {pipe.path}; exec sleep 1000"
    call = wire.tool_call_success(
        "bash", {"command": command, "description": "d", "run_in_background": True}
    )
    gate = wire.Gate()
    server = serve([call, wire.success("started it").hold_before(gate)])
    with cli.start("run", "go") as process, started(pipe, process, 1) as (pids, handles):
        server.open(gate)
        result = cli.finish(process)
        assert gone(pids, handles)
    assert (result.code, result.stdout) == (0, "started it\n")


@linux
def test_the_time_limit_kills_a_stubborn_command(cli: Cli, serve: Serve, pipe: Pipe) -> None:
    serve([bash(STUBBORN.format(fifo=pipe.path)), wire.success("never")])
    with (
        cli.start("run", "--json", "--timeout", "4", "go") as process,
        started(pipe, process) as (pids, handles),
    ):
        result = cli.finish(process)
        assert gone(pids, handles)
    assert result.code == 1
    assert result.events[-1]["reason"] == {"kind": "aborted", "reason": "timeout"}
    assert closed(result.events)


def test_a_signal_while_a_plugin_starts(cli: Cli, pipe: Pipe) -> None:
    (cli.folder / "slow.py").write_text(
        "import anyio\n"
        "async def apply(ctx, config):\n"
        f"    with open({str(pipe.path)!r}, 'w') as pipe:\n"
        "        pipe.write('up\\n')\n"
        "    await anyio.sleep_forever()\n",
        encoding="utf-8",
    )
    (cli.folder / "x.yaml").write_text("plugins: [./slow.py]\n", encoding="utf-8")
    cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
    with cli.start("run", "--json", "--config", "x.yaml", "go") as process:
        assert pipe.line(process) == "up"
        process.send_signal(signal.SIGTERM)
        result = cli.finish(process)
    assert result.code == 143
    assert [(e["type"], e["exitCode"]) for e in result.events] == [("run/error", 143)]


def test_a_run_that_was_told_to_ignore_interrupts_does(cli: Cli, serve: Serve) -> None:
    gate = wire.Gate()
    server = serve([wire.held_success(gate, "all of it", after=1)])
    ignoring = "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    ignoring += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    process = subprocess.Popen(
        [sys.executable, "-c", ignoring, *cli.command("run", "go")[1:]],
        cwd=cli.folder,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    server.wait_reached(gate, WAIT_S)
    process.send_signal(signal.SIGINT)
    server.open(gate)
    result = cli.finish(process)
    assert (result.code, result.stdout) == (0, "all of it\n")


STARTING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from dsh.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("dsh.cli._main", ["--version"]),
        ("pydantic_core", ["sessions"]),
        ("_datetime", ["sessions"]),
        ("dsh.sessions._commands", ["sessions"]),
        ("dsh.sessions._list", ["sessions"]),
        ("asyncio", ["sessions"]),
        ("dsh.cli._task", ["run", "go"]),
        ("dsh.agent_core", ["run", "go"]),
    ],
)
def test_an_interrupt_while_modules_are_imported_is_quiet(
    cli: Cli, serve: Serve, module: str, arguments: list[str]
) -> None:
    serve(wire.success("never"))
    process = subprocess.run(
        [cli.python, "-c", STARTING, module, *arguments],
        cwd=cli.folder,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (process.returncode, process.stdout) == (130, b"")
    said = {b"dsh: interrupting; once more to stop at once", b"dsh: interrupted"}
    assert set(process.stderr.splitlines()) <= said


# -- closed pipes --------------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_goes_away_ends_the_run_quietly(
    cli: Cli, serve: Serve, form: list[str]
) -> None:
    gate = wire.Gate()
    server = serve([wire.held_success(gate, "x" * 400, after=2)])
    with cli.start("run", *form, "go") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        server.open(gate)
        assert process.wait(WAIT_S) == 141
        assert process.stderr.read() == b""


@linux
def test_a_reader_that_goes_away_inside_a_command_leaves_nothing(
    cli: Cli, serve: Serve, pipe: Pipe
) -> None:
    command = f"{{ echo $$; sleep 1000 >&2 & echo $!; }} > {pipe.path}; sleep 1000"
    # the second call of the batch makes the first line that meets the closed pipe
    serve(
        [
            wire.tool_calls(
                [
                    ("c1", "bash", {"command": "true", "description": "d"}),
                    ("c2", "bash", {"command": command, "description": "d"}),
                ]
            )
        ]
    )
    with cli.start("run", "--json", "go") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        with started(pipe, process) as (pids, handles):
            process.stdout.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) in {141, 143}
            assert gone(pids, handles)
        assert process.stderr.read() in {b"", b"dsh: terminated\n"}


@pytest.mark.parametrize("arguments", [["--help"], ["config", "show"], ["plugins"], ["run", "-h"]])
def test_other_commands_are_quiet_about_a_closed_pipe(cli: Cli, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        result = cli.run(*arguments, stdout=pipe)
    assert (result.code, result.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_full_disk_under_stdout_is_one_message(cli: Cli, serve: Serve, form: list[str]) -> None:
    serve(wire.success("an answer"))
    with open("/dev/full", "wb") as full:
        result = cli.run("run", *form, "go", stdout=full)
    assert result.code == 1
    assert result.stderr.count("stdout cannot be written: No space left on device") == 1
    assert result.stderr.count("\n") == 1


def test_stdout_that_was_never_open(cli: Cli, serve: Serve) -> None:
    serve(wire.success("an answer"))
    process = subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "-", *cli.command("run", "go")],
        cwd=cli.folder,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=WAIT_S,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.startswith(b"dsh: stdout is closed\n")


def test_stderr_that_nobody_reads_changes_nothing(cli: Cli, serve: Serve) -> None:
    serve([bash("echo hi"), wire.success("an answer")])
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        cli.command("run", "go"),
        cwd=cli.folder,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
        timeout=WAIT_S,
        check=False,
    )
    os.close(writer)
    assert (process.returncode, process.stdout) == (0, b"an answer\n")


# -- full disks and missing rights ---------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """Return a folder on a file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_under_the_home(cli: Cli, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 60 * 1024)
    cli.env["DSH_HOME"] = str(small_disk)
    cli.run("login", stdin="k" * 4096)  # may or may not still fit
    (small_disk / "filler2").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * 4096))
    before = sorted(path.name for path in small_disk.rglob("*") if path.is_file())
    result = cli.run("login", stdin="another-key-123456")
    assert result.code == 1
    assert "cannot be written: No space left on device" in result.stderr
    assert "another-key" not in result.stderr
    assert before == sorted(path.name for path in small_disk.rglob("*") if path.is_file())


def test_a_full_disk_under_the_last_message_keeps_the_old_one(
    cli: Cli, serve: Serve, small_disk: Path
) -> None:
    serve(wire.success("x" * 100_000, chunk_size=10_000))
    target = small_disk / "last.txt"
    target.write_text("old", encoding="utf-8")
    result = cli.run("run", "--output-last-message", str(target), "go")
    assert result.code == 1
    assert "No space left on device" in result.stderr
    assert len(result.stdout) == 100_001
    assert target.read_text() == "old"
    assert os.listdir(small_disk) == ["last.txt"]


def test_a_full_disk_under_the_commands_is_told_to_the_model(
    cli: Cli, serve: Serve, small_disk: Path
) -> None:
    # case: F-35
    cli.env["TMPDIR"] = str(small_disk)
    serve([bash("yes | head -c 20M"), wire.success("done")])
    result = cli.run("run", "--json", "go")
    assert result.code == 0
    assert closed(result.events)
    assert max(len(line) for line in result.stdout.splitlines()) < 1_000_000


UNPRIVILEGED = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def nobody() -> tuple[str, ...]:
    """Return the words in front of a command that run it without any rights."""
    probe = [*UNPRIVILEGED, sys.executable, "-c", "import anyio"]
    try:
        done = subprocess.run(probe, capture_output=True, check=False, timeout=WAIT_S)
    except OSError:
        pytest.skip("no setpriv")
    if os.geteuid() != 0 or done.returncode != 0:
        pytest.skip("cannot run the interpreter as another user")
    return UNPRIVILEGED


def test_an_unreadable_working_folder(cli: Cli, nobody: tuple[str, ...]) -> None:
    locked = cli.folder / "locked"
    locked.mkdir(mode=0o700)
    for path in (cli.folder, cli.home, *cli.folder.parents):
        if str(path).startswith("/tmp/"):
            path.chmod(0o755)
    cli.home.chmod(0o777)
    result = cli.run("run", "--cwd", str(locked), "go", prefix=nobody)
    assert result.code == 2
    assert f"working folder {locked} may not be read" in result.stderr
    inside = cli.run("run", "--cwd", str(locked / "deeper"), "go", prefix=nobody)
    assert inside.code == 2
    assert str(locked / "deeper") in inside.stderr


def test_an_unreadable_settings_file(cli: Cli, nobody: tuple[str, ...]) -> None:
    for path in (cli.folder, cli.home, *cli.folder.parents):
        if str(path).startswith("/tmp/"):
            path.chmod(0o755)
    file = cli.settings("model: x\n")
    file.chmod(0o600)
    result = cli.run("config", "show", prefix=nobody)
    assert result.code == 2
    assert f"{file}: cannot be read: Permission denied" in result.stderr


def test_a_home_that_may_not_be_written(cli: Cli, nobody: tuple[str, ...]) -> None:
    for path in (cli.folder, cli.home, *cli.folder.parents):
        if str(path).startswith("/tmp/"):
            path.chmod(0o755)
    result = cli.run("login", stdin="some-key-123456", prefix=nobody)
    assert result.code == 1
    assert "cannot be written: Permission denied" in result.stderr


def test_no_home_at_all(cli: Cli, serve: Serve) -> None:
    serve(wire.success("ok"))
    cli.env["HOME"] = ""
    assert cli.run("run", "go").code == 0


def test_no_garbage_is_looked_for_while_modules_are_imported() -> None:
    before = gc.get_freeze_count()
    with Starting():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > before


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with Starting():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
