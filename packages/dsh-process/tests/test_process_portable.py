"""Without Linux's help: what every Unix gets, and what Windows is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import anyio
import pytest

from dsh.process import MonitorLostError, Supervisor
from dsh.process.testing import descendants, is_alive, parent_of, run, wait_dead

DAEMON = (
    f"{sys.executable} -I -S -c '"
    "import os, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    'os.write(1, b"%d\\n" % os.getpid())\n'
    "time.sleep(300)'"
)


async def test_a_daemon_is_found_by_its_mark() -> None:
    async with Supervisor(portable=True) as supervisor:
        child = await supervisor.spawn(["bash", "-c", f"{DAEMON}; read x"], stdin="pipe")
        assert child.stdout is not None
        with anyio.fail_after(5):
            daemon = int(await child.stdout.receive())
        assert os.getsid(daemon) != child.pid
        await child.kill_and_wait()
        assert not is_alive(daemon)


async def test_a_timeout_kills_group_and_daemon() -> None:
    async with Supervisor(portable=True) as supervisor:
        with anyio.fail_after(10):
            done = await run(
                supervisor,
                ["bash", "-c", f"{DAEMON}; sleep 300 & sleep 300"],
                timeout_ms=500,
                grace_ms=300,
            )
        assert (done.ending.timed_out, done.ending.left) == (True, 0)
        assert not is_alive(int(done.stdout.snapshot().text))


async def test_survivors_of_the_group_are_counted_and_killed_at_the_end() -> None:
    async with Supervisor(portable=True) as supervisor:
        done = await run(supervisor, ["bash", "-c", "sleep 300 & echo $!"])
        assert done.ending.left == 1
    assert not is_alive(int(done.stdout.snapshot().text))


async def test_a_killed_monitor_takes_its_command_along() -> None:
    async with Supervisor(portable=True) as supervisor:
        child = await supervisor.spawn(["bash", "-c", "sleep 300; :"])
        monitor = parent_of(child.pid)
        assert monitor is not None
        rest = descendants(monitor)
        os.kill(monitor, signal.SIGKILL)
        with pytest.raises(MonitorLostError):
            await child.wait()
        await wait_dead(rest, within_s=2.0)


def test_windows_can_import_and_is_told_when_starting() -> None:
    subject = (
        "import sys, os\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in {'fcntl', 'resource', 'pwd', 'grp', 'termios'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "import anyio, dsh.core\n"
        "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'): sys.modules.pop(name, None)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import signal, select, socket\n"
        "for name in ('SIGKILL', 'SIGSTOP', 'SIGCHLD', 'SIGHUP', 'SIGQUIT', 'SIGCONT'):\n"
        "    delattr(signal, name)\n"
        "for name in ('pidfd_open', 'posix_spawn', 'killpg', 'getpgid', 'getsid', 'setsid',\n"
        "             'O_NOFOLLOW', 'O_CLOEXEC', 'POSIX_SPAWN_DUP2'):\n"
        "    delattr(os, name)\n"
        "del select.poll, socket.AF_UNIX, socket.send_fds\n"
        "import dsh.process\n"
        "os.name, sys.platform = 'nt', 'win32'\n"
        "try:\n"
        "    dsh.process.Supervisor().__aenter__().send(None)\n"
        "except dsh.process.UnsupportedPlatformError as error:\n"
        "    print(error.code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", subject], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("UNSUPPORTED_PLATFORM"), done.stderr
    assert "win32" in done.stdout
