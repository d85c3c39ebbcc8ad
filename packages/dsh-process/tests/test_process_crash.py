"""When parts are killed from outside: the harness, a monitor, the helper."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from dsh.process import Child, MonitorLostError, Supervisor
from dsh.process.testing import descendants, eventually, is_alive, marked, parent_of, run, wait_dead

TREE = (
    "sleep 300 & "
    f"{sys.executable} -I -S -c '"
    "import os, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "time.sleep(300)' & "
    '(trap "" TERM; while :; do sleep 0.05; done) & '
    "yes >/dev/null & "
    "echo started; wait; sleep 300"
)
"""A command with children, a daemon in another session and a child that ignores SIGTERM."""

SUBJECT = """
import sys, json, os, anyio
from dsh.process import Supervisor
from dsh.process.testing import run
async def main():
    async with Supervisor(portable=sys.argv[3] == "portable") as supervisor:
        out = supervisor.collector(max_bytes=100)
        child = await supervisor.spawn(["bash", "-c", sys.argv[2]], stdout=out, stderr="null")
        await run(supervisor, ["seq", "20000"], max_output_bytes=100)
        while b"started" not in out.tail():
            await anyio.sleep(0.01)
        facts = {"helper": supervisor.helper_pid, "leader": child.pid,
                 "spill": str(supervisor.spill.directory)}
        print(json.dumps(facts), flush=True)
        await child.wait()
anyio.run(main, backend=sys.argv[1])
"""


def has_daemon(pids: list[int], helper: int, leader: int) -> bool:
    """Whether a process of the command has left its session."""
    sessions: set[int] = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            sessions.add(os.getsid(pid))
    return not sessions <= {os.getsid(helper), leader}


@contextmanager
def harness(
    backend: str, mode: str
) -> Generator[tuple[subprocess.Popen[bytes], dict[str, object]]]:
    """A harness in a process of its own, with `TREE` running."""
    command = [sys.executable, "-c", SUBJECT, backend, TREE, mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ["full", "portable"])
async def test_nothing_survives_a_killed_harness(anyio_backend: str, mode: str) -> None:
    # case: F-06
    with harness(anyio_backend, mode) as (process, facts):
        helper = facts["helper"]
        assert isinstance(helper, int)

        def family() -> list[int]:
            """All processes below the helper, by the mark also those that left it."""
            env = Path(f"/proc/{facts['leader']}/environ").read_bytes().split(b"\0")
            (mark,) = [v.partition(b"=")[2] for v in env if v.startswith(b"DSH_PROCESS_MARK=")]
            return sorted({*descendants(helper), *marked(mark.decode())})

        leader = facts["leader"]
        assert isinstance(leader, int)
        await eventually(lambda: len(family()) >= 6 and has_daemon(family(), helper, leader))
        pids = family()
        assert os.path.isdir(str(facts["spill"]))  # noqa: ASYNC240
        process.kill()
        await wait_dead([*pids, helper], within_s=2.0)
    assert not os.path.exists(str(facts["spill"]))  # noqa: ASYNC240


def test_a_harness_that_exits_without_closing_leaves_nothing() -> None:
    subject = (
        "import anyio, os\n"
        "from dsh.process import Supervisor\n"
        "async def main():\n"
        "    s = await Supervisor().__aenter__()\n"
        "    child = await s.spawn(['sleep', '300'], stdout='null', stderr='null')\n"
        "    print(child.pid, s.helper_pid, flush=True)\n"
        "    os._exit(0)\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", subject], stdout=subprocess.PIPE, check=True)
    pids = [int(pid) for pid in done.stdout.split()]
    anyio.run(lambda: wait_dead(pids, within_s=2.0))


async def started(supervisor: Supervisor) -> tuple[Child, int, list[int]]:
    """A running `TREE`: the child, its monitor, every process of it."""
    out = supervisor.collector()
    child = await supervisor.spawn(["bash", "-c", TREE], stdout=out, stderr="null")
    helper, monitor = supervisor.helper_pid, parent_of(child.pid)
    assert helper is not None
    assert monitor is not None
    await eventually(lambda: has_daemon(descendants(monitor), helper, child.pid))
    return child, monitor, descendants(monitor)


async def test_a_killed_monitor_takes_its_command_along(supervisor: Supervisor) -> None:
    child, monitor, pids = await started(supervisor)
    os.kill(monitor, signal.SIGKILL)
    with pytest.raises(MonitorLostError):
        await child.wait()
    await wait_dead(pids, within_s=2.0)
    with anyio.fail_after(5):
        await child.wait_gone()
    again = await run(supervisor, ["echo", "on we go"])
    assert again.stdout.snapshot().text == "on we go\n"


async def test_a_killed_spare_monitor_is_replaced(supervisor: Supervisor) -> None:
    await run(supervisor, ["true"])
    helper = supervisor.helper_pid
    assert helper is not None

    def spares() -> list[int]:
        return [pid for pid in descendants(helper) if is_alive(pid)]

    for _ in range(2):
        await eventually(lambda: len(spares()) == 2)
        killed = spares()
        for spare in killed:
            os.kill(spare, signal.SIGKILL)
        await wait_dead(killed)
        done = await run(supervisor, ["echo", "on"])
        assert done.stdout.snapshot().text == "on\n"
        assert supervisor.helper_pid == helper


async def test_a_command_that_kills_its_parent(supervisor: Supervisor) -> None:
    with pytest.raises(MonitorLostError), anyio.fail_after(5):
        await run(supervisor, ["bash", "-c", "kill -KILL $PPID; sleep 300"])
    assert supervisor.children == ()


async def test_polite_signals_do_not_end_a_monitor(supervisor: Supervisor) -> None:
    script = "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; echo still here"
    done = await run(supervisor, ["bash", "-c", script])
    assert done.stdout.snapshot().text == "still here\n"


async def test_a_killed_helper_is_replaced_and_its_commands_stay_watched(
    supervisor: Supervisor,
) -> None:
    child, _, pids = await started(supervisor)
    helper = supervisor.helper_pid
    assert helper is not None
    os.kill(helper, signal.SIGKILL)
    await wait_dead([helper])
    done = await run(supervisor, ["echo", "new"])
    assert done.stdout.snapshot().text == "new\n"
    assert supervisor.helper_pid != helper
    assert is_alive(child.pid)
    await child.kill_and_wait()
    await wait_dead(pids, within_s=0.5)


async def test_helper_and_monitor_killed_together(supervisor: Supervisor) -> None:
    child, monitor, pids = await started(supervisor)
    helper = supervisor.helper_pid
    assert helper is not None
    os.kill(helper, signal.SIGKILL)
    os.kill(monitor, signal.SIGKILL)
    with anyio.fail_after(5):
        await child.wait_gone()
    await wait_dead(pids, within_s=2.0)


async def test_a_forked_copy_of_the_harness_does_not_keep_commands_alive() -> None:
    subject = (
        "import anyio, os, sys, time\n"
        "from dsh.process import Supervisor\n"
        "async def main():\n"
        "    async with Supervisor() as s:\n"
        "        child = await s.spawn(['sleep', '300'], stdout='null', stderr='null')\n"
        "        copy = os.fork()\n"  # holds every descriptor of the harness
        "        if copy == 0: time.sleep(300)\n"
        "        print(child.pid, copy, flush=True)\n"
        "        os.kill(os.getpid(), 9)\n"
        "anyio.run(main)\n"
    )

    def run() -> list[int]:
        with tempfile.TemporaryFile() as out:
            subprocess.run([sys.executable, "-c", subject], stdout=out, check=False)
            out.seek(0)
            return [int(pid) for pid in out.read().split()]

    pid, copy = await anyio.to_thread.run_sync(run)
    try:
        await wait_dead([pid], within_s=2.0)
    finally:
        os.kill(copy, signal.SIGKILL)
