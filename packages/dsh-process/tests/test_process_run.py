"""Running a command to its end: facts, output, input, environment, descriptors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from dsh.process import (
    ExitStatus,
    SpawnError,
    Supervisor,
    SupervisorClosedError,
    child_environment,
)
from dsh.process.testing import is_alive, run


async def test_exit_code_and_both_streams(supervisor: Supervisor) -> None:
    done = await run(supervisor, ["bash", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.ending.exit_code, done.ending.signal, done.ending.left) == (3, None, 0)
    assert not done.ending.timed_out
    assert not done.ending.cancelled
    assert done.stdout.snapshot().text == "out\n"
    assert done.stderr.snapshot().text == "err\n"


async def test_a_command_that_kills_itself_was_not_killed_by_us(supervisor: Supervisor) -> None:
    # case: BASH-04
    done = await run(supervisor, ["bash", "-c", "kill -TERM $$"])
    assert (done.ending.exit_code, done.ending.signal) == (None, "SIGTERM")
    assert (done.ending.timed_out, done.ending.cancelled) == (False, False)


async def test_merged_output_keeps_the_order(supervisor: Supervisor) -> None:
    done = await run(supervisor, ["bash", "-c", "echo a; echo b >&2; echo c"], merge=True)
    assert done.stderr.total == 0
    assert done.stdout.snapshot().text == "a\nb\nc\n"


async def test_stdin_is_the_null_device_when_none_is_given(supervisor: Supervisor) -> None:
    # case: BASH-10
    done = await run(supervisor, ["bash", "-c", "cat; test -c /dev/stdin && echo device"])
    assert done.stdout.snapshot().text == "device\n"


async def test_stdin_bytes_arrive_and_end(supervisor: Supervisor) -> None:
    payload = os.urandom(1 << 20)
    done = await run(supervisor, ["cat"], stdin=payload, max_output_bytes=1 << 20)
    assert done.stdout.tail() == payload


async def test_a_command_that_ignores_a_megabyte_of_stdin(supervisor: Supervisor) -> None:
    # case: BASH-10
    done = await run(supervisor, ["bash", "-c", "exit 7"], stdin=b"x" * (1 << 20))
    assert done.ending.exit_code == 7


async def test_a_command_that_closes_its_stdin(supervisor: Supervisor) -> None:
    done = await run(
        supervisor, ["bash", "-c", "exec <&-; sleep 0.05; echo on"], stdin=b"x" * 300000
    )
    assert done.stdout.snapshot().text == "on\n"


async def test_closed_output_streams_are_no_failure(supervisor: Supervisor) -> None:
    done = await run(supervisor, ["bash", "-c", "exec >&- 2>&-; exit 4"])
    assert done.ending.exit_code == 4
    assert done.stdout.total == 0


async def test_there_is_no_terminal(supervisor: Supervisor) -> None:
    # case: F-05
    with anyio.fail_after(5):
        done = await run(supervisor, ["bash", "-c", "read x </dev/tty"])
    assert done.ending.exit_code != 0
    assert "/dev/tty" in done.stderr.snapshot().text


async def test_nothing_but_the_standard_descriptors_is_inherited(supervisor: Supervisor) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)  # what a careless library would leave open
    try:
        done = await run(supervisor, ["bash", "-c", "ls /proc/$$/fd; :"])
    finally:
        os.close(reading)
        os.close(writing)
    assert set(done.stdout.snapshot().text.split()) == {"0", "1", "2"}


async def test_named_descriptors_arrive_under_their_numbers(supervisor: Supervisor) -> None:
    first, second = os.pipe(), os.pipe()
    try:
        os.write(first[1], b"one")
        os.write(second[1], b"two")
        os.close(first[1])
        os.close(second[1])
        # Numbers that collide with those the descriptors have in the helper.
        fds = {5: first[0], 3: second[0]}
        done = await run(supervisor, ["bash", "-c", "cat <&5; cat <&3"], fds=fds)
    finally:
        os.close(first[0])
        os.close(second[0])
    assert done.stdout.snapshot().text == "onetwo"


async def test_the_working_directory(supervisor: Supervisor, tmp_path: Path) -> None:
    done = await run(supervisor, ["pwd"], cwd=tmp_path)
    assert done.stdout.snapshot().text == f"{tmp_path}\n"
    here = await run(supervisor, ["pwd"])
    assert here.stdout.snapshot().text == f"{os.getcwd()}\n"


async def test_a_missing_working_directory_names_itself(supervisor: Supervisor) -> None:
    with pytest.raises(SpawnError, match="/does/not/exist") as caught:
        await run(supervisor, ["true"], cwd="/does/not/exist")
    assert caught.value.code == "WORKDIR_UNUSABLE"
    assert caught.value.errno == 2
    assert isinstance(caught.value, OSError)
    assert supervisor.children == ()


async def test_a_missing_program_names_itself(supervisor: Supervisor) -> None:
    with pytest.raises(SpawnError, match="no-such-program") as caught:
        await run(supervisor, ["no-such-program"])
    assert caught.value.code == "PROGRAM_NOT_FOUND"


async def test_a_file_that_cannot_be_executed(supervisor: Supervisor, tmp_path: Path) -> None:
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.write_text("hello")
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(SpawnError) as denied:
        await run(supervisor, [str(plain)])
    assert denied.value.errno == 13
    with pytest.raises(SpawnError, match="interpreter"):
        await run(supervisor, [str(broken)])


async def test_programs_are_looked_up_along_the_childs_own_path(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    tool = tmp_path / "greet"
    tool.write_text("#!/bin/sh\necho hello\n")
    tool.chmod(0o755)
    env = child_environment({"PATH": f"/nowhere:{tmp_path}:/usr/bin:/bin"})
    done = await run(supervisor, ["greet"], env=env)
    assert done.stdout.snapshot().text == "hello\n"


@pytest.mark.parametrize(
    ("argv", "env", "code"),
    [
        ([], None, "INVALID_COMMAND"),
        (["bash", "-c", "a\0b"], None, "INVALID_COMMAND"),
        (["true"], {"A=B": "1"}, "INVALID_ENVIRONMENT"),
        (["true"], {"A": "\0"}, "INVALID_ENVIRONMENT"),
    ],
)
async def test_what_cannot_be_asked_for_is_refused(
    supervisor: Supervisor, argv: list[str], env: dict[str, str] | None, code: str
) -> None:
    with pytest.raises(SpawnError) as caught:
        await supervisor.spawn(argv, env=env)
    assert caught.value.code == code


async def test_an_argument_list_that_is_too_long(supervisor: Supervisor) -> None:
    with pytest.raises(SpawnError, match="stdin") as caught:
        await run(supervisor, ["true", "x" * (1 << 20)])
    assert caught.value.errno == 7


async def test_a_request_larger_than_a_socket_buffer(supervisor: Supervisor) -> None:
    argv = ["bash", "-c", 'echo "$#"', "x", *(str(n).rjust(1000) for n in range(1000))]
    done = await run(supervisor, argv)
    assert done.stdout.snapshot().text == "1000\n"


async def test_names_that_are_not_text_survive(supervisor: Supervisor, tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9")
    (tmp_path / odd).mkdir()
    done = await run(supervisor, ["bash", "-c", 'basename "$PWD"'], cwd=tmp_path / odd)
    assert done.stdout.tail() == b"caf\xe9\n"


async def test_ignored_signals_are_not_handed_down(supervisor: Supervisor) -> None:
    done = await run(supervisor, ["grep", "SigIgn", "/proc/self/status"])
    ignored = int(done.stdout.snapshot().text.split()[1], 16)
    assert ignored & ~(3 << 31) == 0, "32 and 33 belong to the C library"


async def test_the_parents_environment_and_command_line_are_clean(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # case: F-44
    monkeypatch.setenv("PLAIN_NAME", "value-of-the-harness")
    script = "tr '\\0' '\\n' </proc/$PPID/environ; tr '\\0' ' ' </proc/$PPID/cmdline"
    done = await run(supervisor, ["bash", "-c", script])
    text = done.stdout.snapshot().text
    assert "dsh.process._helper._root" in text
    assert "value-of-the-harness" not in text
    assert "=" not in text.partition("import")[0].replace("module =", "")


async def test_many_commands_at_once(supervisor: Supervisor) -> None:
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        done = await run(supervisor, ["bash", "-c", f"echo {number}"])
        results[number] = done.stdout.snapshot().text

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(one, number)
    assert results == {number: f"{number}\n" for number in range(40)}
    assert supervisor.children == ()


async def test_outside_of_its_context_a_supervisor_starts_nothing() -> None:
    supervisor = Supervisor()
    with pytest.raises(SupervisorClosedError):
        await supervisor.spawn(["true"])
    async with supervisor:
        pass
    with pytest.raises(SupervisorClosedError):
        await supervisor.spawn(["true"])


async def test_nothing_is_started_before_the_first_command_and_all_is_given_back() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    async with Supervisor() as one, Supervisor() as two:
        assert one.helper_pid is None
        await run(one, ["true"])
        await run(two, ["true"])
        helper = one.helper_pid
        assert helper is not None
        assert helper == two.helper_pid
    assert not is_alive(helper)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGRTMIN + 3])
def test_wait_statuses(number: int) -> None:
    assert ExitStatus.from_wait(0x700) == ExitStatus(7, None)
    assert ExitStatus.from_wait(9) == ExitStatus(None, "SIGKILL")
    status = ExitStatus.from_wait(int(number) | 0x80)
    assert status.signal is not None
    assert status.signal.startswith("SIG")


def test_running_out_of_descriptors_is_a_spawn_failure() -> None:
    subject = (
        "import anyio, os, resource\n"
        "from dsh.process import SpawnError, Supervisor\n"
        "from dsh.process.testing import run\n"
        "async def main():\n"
        "    async with Supervisor() as s:\n"
        "        await run(s, ['true'])\n"
        "        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "        used = max(map(int, os.listdir('/proc/self/fd')))\n"
        "        while os.dup(0) <= used: pass\n"  # leave no gaps below the limit
        "        used += 1\n"
        "        for spare in range(8):\n"
        "            before = len(os.listdir('/proc/self/fd'))\n"
        "            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1 + spare, hard))\n"
        "            try:\n"
        "                await run(s, ['true'])\n"
        "            except SpawnError as error:\n"
        "                print(error.errno, 'true' in str(error))\n"
        "            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))\n"
        "            assert len(os.listdir('/proc/self/fd')) == before\n"
        "        print((await run(s, ['echo', 'on'])).stdout.snapshot().text)\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", subject], capture_output=True, text=True, check=False
    )
    *failures, last = done.stdout.split()
    assert last == "on", done.stderr
    assert {"24", "True"} == set(failures)
    assert done.stderr == ""


@pytest.mark.parametrize("cwd", ["", ".", "/a\0b"])
async def test_odd_directories(supervisor: Supervisor, cwd: str) -> None:
    if "\0" in cwd:
        with pytest.raises(SpawnError):
            await run(supervisor, ["pwd"], cwd=cwd)
    else:
        done = await run(supervisor, ["pwd"], cwd=cwd)
        assert done.stdout.snapshot().text == f"{os.getcwd()}\n"


async def test_text_that_no_encoding_has(supervisor: Supervisor) -> None:
    with pytest.raises(SpawnError, match="encoding"):
        await run(supervisor, ["echo", "\ud800"])
