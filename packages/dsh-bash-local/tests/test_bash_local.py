"""What local commands do beyond the contract."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from pydantic import ValidationError

from dsh.bash import (
    BashDisposedError,
    BashError,
    BashExecutor,
    BashLostError,
    BashRequest,
    BashResult,
    BashSpawnError,
    BashSpec,
    SandboxFacts,
)
from dsh.bash.testing import bash_app, read_until, run
from dsh.bash_local import Launch, LocalBash
from dsh.core import App, ConfigError, MountState, entry_points, secrets
from dsh.process import Child, SpillFile, SpillStore
from dsh.process.testing import eventually, is_alive, wait_dead

SECRET = "sk-live-fedcba9876543210"


def test_it_is_found_under_its_name() -> None:
    groups = ("dsh.plugins", "dsh.seam.bash")
    found = [[p for p in entry_points(group) if p.name == "bash-local"] for group in groups]
    assert [[point.load() for point in points] for points in found] == [[LocalBash], [LocalBash]]
    assert LocalBash.name == "bash-local"


@pytest.mark.parametrize(
    "field", ["timeout_ms", "max_timeout_ms", "max_output_bytes", "grace_ms", "drain_ms"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
async def test_numbers_must_be_positive(field: str, value: float) -> None:
    async with App() as app:
        with pytest.raises((ConfigError, ValidationError), match=field):
            await app.mount(LocalBash, {field: value}).settled()


async def test_the_end_is_shown_and_the_whole_is_kept() -> None:
    # case: BASH-07
    async with bash_app(LocalBash, {"max_output_bytes": 500}) as (_, bash):
        result = await run(bash, "for n in $(seq 1 200); do echo line $n; done")
        exact = await run(bash, "printf '%0500d' 7")
        out = result.stdout
        assert len(out.text) <= 500
        assert out.text.endswith("line 200\n")
        assert "line 1\n" not in out.text
        assert out.spill_path is not None
        path = Path(out.spill_path)
        whole = path.read_text("utf-8").splitlines()  # noqa: ASYNC240
        assert (whole[0], whole[-1], len(whole)) == ("line 1", "line 200", 200)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600  # noqa: ASYNC240
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (exact.stdout.truncated, exact.stdout.spill_path) == (False, None)
    assert not path.exists(), "spill files leave with the executor"  # noqa: ASYNC240


class LateDisk(SpillStore):
    """A store whose files fail when they are closed, as on a full network disk."""

    def create(self, stream: str) -> SpillFile:
        file = super().create(stream)

        def close() -> None:
            SpillFile.close(file)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        file.close = close
        return file


class LateDiskBash(LocalBash):
    """Local bash on such a disk."""

    async def start(self) -> None:
        await super().start()
        self._supervisor.spill = LateDisk()


async def test_a_disk_that_fails_late_costs_only_the_path() -> None:
    # case: BASH-08
    async with bash_app(LateDiskBash, {"max_output_bytes": 500}) as (_, bash):
        result = await run(bash, "seq 1 1000")
        assert isinstance(bash, LateDiskBash)
    assert result.exit_code == 0
    assert (result.stdout.truncated, result.stdout.spill_path) == (True, None)
    assert result.stdout.text.endswith("1000\n")


async def test_the_hosts_credentials_stay_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    # case: BASH-09
    for name in ("X_API_KEY", "X_TOKEN", "X_PLAIN", "DSH_AMBIENT"):
        monkeypatch.setenv(name, f"value-of-{name}")
    async with bash_app(LocalBash) as (_, bash):
        result = await run(bash, "env | grep -E '^(X_|DSH_A)'")
    assert result.stdout.text == "X_PLAIN=value-of-X_PLAIN\n"


async def test_a_secret_is_in_no_environment_and_in_no_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # case: F-44
    secrets.add(SECRET)
    monkeypatch.setenv("INNOCENT_NAME", f"prefix {SECRET}")
    (tmp_path / ".env").write_text(f"DEEPSEEK_API_KEY={SECRET}\n", encoding="utf-8")
    async with bash_app(LocalBash, {"cwd": str(tmp_path), "max_output_bytes": 200}) as (_, bash):
        result = await run(
            bash, "env; cat .env; tr '\\0' '\\n' < /proc/$PPID/environ; cat .env >&2"
        )
        task = bash.start_task(bash.resolve(BashRequest(command="cat .env; seq 100; cat .env")))
        await task.done()
        read = bash.read_output(task.id)
        assert result.stdout.text.endswith(f"DEEPSEEK_API_KEY={secrets.MASK}\n")
        assert SECRET not in result.stderr.text + read.delta
        assert read.stdout_spill_path is not None
        spilled = Path(read.stdout_spill_path).read_text("utf-8")  # noqa: ASYNC240
        assert SECRET not in spilled
        assert spilled.count(secrets.MASK) == 2


async def test_start_up_files_are_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (".bashrc", ".bash_profile", ".profile", "env"):
        (tmp_path / name).write_text("echo hijacked\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env"))
    monkeypatch.setenv("BASH_FUNC_ls%%", "() { echo hijacked; }")
    async with bash_app(LocalBash) as (_, bash):
        result = await run(bash, "ls /dev/null; shopt -q login_shell || echo no login")
    assert result.stdout.text == "/dev/null\nno login\n"


async def test_a_shell_that_is_not_there() -> None:
    async with bash_app(LocalBash, {"shell": "no-such-shell"}) as (_, bash):
        with pytest.raises(BashSpawnError, match="no-such-shell") as caught:
            await run(bash, "true")
    assert caught.value.errno == errno.ENOENT


async def test_nul_characters_are_refused() -> None:
    async with bash_app(LocalBash) as (_, bash):
        with pytest.raises(BashSpawnError, match="NUL"):
            await run(bash, "echo a\0b")


def test_a_directory_that_may_not_be_entered(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    subject = (
        "import anyio\n"
        "from dsh.bash import BashSpawnError\n"
        "from dsh.bash.testing import bash_app, run\n"
        "from dsh.bash_local import LocalBash\n"
        "async def main():\n"
        "    async with bash_app(LocalBash) as (_, bash):\n"
        "        try:\n"
        f"            await run(bash, 'echo ran', workdir={str(closed)!r})\n"
        "        except BashSpawnError as error:\n"
        "            print(error.code, error)\n"
        "anyio.run(main)\n"
    )
    # Root may enter any directory, unless it gives the right to do so away.
    prefix = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", subject], capture_output=True, text=True, check=False
    )
    closed.chmod(0o700)
    assert done.stdout.startswith("WORKDIR_UNUSABLE"), done.stderr
    assert "Permission denied" in done.stdout


async def test_a_grandchild_dies_with_its_task() -> None:
    # case: BASH-06
    async with bash_app(LocalBash) as (_, bash):
        task = bash.start_task(bash.resolve(BashRequest(command="sleep 60 & echo $!; wait")))
        grandchild = int(await read_until(bash, task, "\n"))
        bash.kill(task.id)
        await wait_dead([grandchild])
        await task.done()


async def test_disposal_waits_until_the_process_is_gone() -> None:
    # case: BASH-05
    async with App() as app:
        mount = app.mount(LocalBash, {"grace_ms": 200})
        await mount.settled()
        bash = app[BashExecutor]
        command = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
        tasks = [bash.start_task(bash.resolve(BashRequest(command=command))) for _ in range(5)]
        pids = [int(await read_until(bash, task, "\n")) for task in tasks]
        with anyio.fail_after(5):
            await mount.dispose()
        assert not any(is_alive(pid) for pid in pids)
        assert {(task.status, task.signal) for task in tasks} == {("killed", "SIGKILL")}
        with pytest.raises(BashDisposedError):
            bash.start_task(bash.resolve(BashRequest(command="true")))
        with pytest.raises(BashDisposedError):
            await run(bash, "true")


class Watched(LocalBash):
    """Local bash that shows what its supervisor runs."""

    @property
    def children(self) -> tuple[Child, ...]:
        return self._supervisor.children


@pytest.mark.parametrize("at_once", [True, False])
async def test_disposal_ends_a_foreground_command(at_once: bool) -> None:
    errors: list[BashError] = []
    async with App() as app:
        mount = app.mount(Watched, None)
        await mount.settled()
        bash = app[BashExecutor]
        async with anyio.create_task_group() as tasks:

            async def foreground() -> None:
                try:
                    await run(bash, "sleep 60")
                except BashError as error:
                    errors.append(error)

            tasks.start_soon(foreground)
            if not at_once:
                assert isinstance(bash, Watched)
                await eventually(lambda: bool(bash.children))
            else:
                await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(5):
                await mount.dispose()
    assert [type(error) for error in errors] == [BashDisposedError]


async def test_what_an_ended_task_left_behind_can_still_be_killed() -> None:
    async with bash_app(LocalBash) as (_, bash):
        task = bash.start_task(bash.resolve(BashRequest(command="sleep 60 & echo $!")))
        pid = int(await read_until(bash, task, "\n"))
        with anyio.fail_after(5):
            await task.done()
        assert (task.status, task.exit_code, task.left) == ("completed", 0, 1)
        assert bash.kill(task.id)
        await wait_dead([pid])
        await eventually(lambda: task.left == 0)
        assert task.status == "completed"
        assert not bash.kill(task.id)


async def test_a_command_that_kills_its_monitor_is_lost_not_fatal() -> None:
    async with bash_app(LocalBash) as (_, bash):
        with pytest.raises(BashLostError):
            await run(bash, "kill -KILL $PPID; sleep 60")
        task = bash.start_task(bash.resolve(BashRequest(command="kill -KILL $PPID; sleep 60")))
        with anyio.fail_after(5):
            await task.done()
        assert task.status == "killed"
        assert (await run(bash, "echo on")).stdout.text == "on\n"


async def test_two_hundred_megabytes() -> None:
    # case: F-35
    async with bash_app(LocalBash) as (_, bash):
        result = await run(bash, "yes | head -c 200M")
        small = await run(bash, "yes | head -c 10M")
        assert small.stdout.spill_path is not None
        assert Path(small.stdout.spill_path).stat().st_size == 10 << 20  # noqa: ASYNC240
    assert result.exit_code == 0
    assert result.stdout.truncated
    assert len(result.stdout.text) == 64_000
    assert result.stdout.spill_path is None
    assert "67108864" in str(result.stdout.spill_note)


async def test_finished_tasks_are_forgotten_at_last(anyio_backend: str) -> None:
    async with bash_app(LocalBash) as (_, bash):
        for _ in range(260):
            await bash.start_task(bash.resolve(BashRequest(command=":"))).done()
        await eventually(lambda: all(task.left == 0 for task in bash.list()))
        assert len(bash.list()) == 256
        assert bash.get("bash-1") is None
        assert bash.read_output("bash-260").delta == ""


class Confined(LocalBash):
    """A confining executor in small: runs everything under `env -u`, reports what happened."""

    async def launch(self, spec: BashSpec) -> Launch:
        plain = await super().launch(spec)
        return Launch(("env", "-u", "HOME", *plain.argv), {"CONFINED": "1"}, plain.fds, "a fact")

    def classify(
        self,
        spec: BashSpec,
        launch: Launch,
        exit_code: int | None,
        signal: str | None,
        stderr: str,
    ) -> SandboxFacts | None:
        assert launch.facts == "a fact"
        return SandboxFacts("read-only", denied=exit_code != 0 and "denied" in stderr)


async def test_a_sibling_confines_by_wrapping_the_argument_list() -> None:
    async with bash_app(Confined) as (_, bash):
        result = await run(bash, 'echo "${HOME-none} $CONFINED"; echo denied >&2; exit 1')
        long = await run(bash, f"echo {'x' * 200_000} | wc -c; echo ${{HOME-none}}")
        task = bash.start_task(bash.resolve(BashRequest(command="true")))
        await task.done()
    assert result.stdout.text == "none 1\n"
    assert result.sandbox == SandboxFacts("read-only", denied=True)
    assert long.stdout.text == "200001\nnone\n"
    assert task.sandbox == SandboxFacts("read-only", denied=False)


class Refusing(LocalBash):
    """A confining executor that cannot confine."""

    async def launch(self, spec: BashSpec) -> Launch:
        raise BashError("no sandbox here", code="SANDBOX_UNAVAILABLE")


async def test_a_launch_that_refuses_runs_nothing() -> None:
    async with bash_app(Refusing) as (_, bash):
        with pytest.raises(BashError, match="no sandbox here"):
            await run(bash, "true")
        task = bash.start_task(bash.resolve(BashRequest(command="true")))
        await task.done()
        assert "no sandbox here" in bash.read_output(task.id).delta
    assert task.status == "killed"


HARNESS = """
import sys, json, anyio
from dsh.bash import BashRequest
from dsh.bash.testing import bash_app, run, read_until
from dsh.bash_local import LocalBash
COMMAND = sys.argv[2]
async def main():
    async with bash_app(LocalBash) as (app, bash), anyio.create_task_group() as tasks:
        task = bash.start_task(bash.resolve(BashRequest(command=COMMAND)))
        text = await read_until(bash, task, "ready")
        tasks.start_soon(lambda: run(bash, "sleep 299"))
        print(json.dumps([int(word) for word in text.split() if word.isdigit()]), flush=True)
        await anyio.sleep_forever()
anyio.run(main, backend=sys.argv[1])
"""


@contextmanager
def running(arguments: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """A process whose output is read."""
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_nothing_survives_a_killed_harness(anyio_backend: str) -> None:
    # case: F-06
    daemon = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "os.write(1, b'%d\\n' % os.getpid())\n"
        "time.sleep(300)"
    )
    command = (
        f'echo $$; sleep 300 & echo $!; {sys.executable} -I -S -c "{daemon}"; '
        "(trap '' TERM; sleep 300) & echo $!; sleep 0.1; echo ready; wait"
    )
    arguments = [sys.executable, "-c", HARNESS, anyio_backend, command]
    with running(arguments) as harness:
        assert harness.stdout is not None
        pids = json.loads(harness.stdout.readline())
        assert len(pids) == 4
        assert all(is_alive(pid) for pid in pids)
        harness.kill()
        await wait_dead(pids, within_s=2.0)


async def test_mounting_twice_leaves_nothing() -> None:
    async with App() as app:
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(2):
            mount = app.mount(LocalBash, None)
            await mount.settled()
            result: BashResult = await run(app[BashExecutor], "seq 100000")
            assert result.stdout.spill_path is not None
            await mount.dispose()
            assert mount.state is MountState.DISPOSED
        assert sorted(os.listdir("/proc/self/fd")) == before
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text("utf-8")  # noqa: ASYNC240
    assert children == ""
