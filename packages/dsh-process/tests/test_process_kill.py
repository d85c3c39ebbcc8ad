"""Ending commands: timeouts, cancellation, trees, daemons, things that do not want to die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from dsh.process import (
    Child,
    Ending,
    MonitorLostError,
    Supervisor,
    SupervisorClosedError,
    finish,
)
from dsh.process.testing import eventually, is_alive, parent_of, run, wait_dead, zombies

DAEMON = (
    f"{sys.executable} -I -S -c '"
    "import os, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    'os.write(1, b"%d\\n" % os.getpid())\n'
    "time.sleep(300)'"
)
"""A shell command that leaves a daemon of the old school and prints its pid."""


class Signal:
    """The smallest cancel signal."""

    def __init__(self) -> None:
        self.aborted = False
        self.callbacks: list[Callable[[], object]] = []

    def on_abort(self, fn: Callable[[], object], /) -> Callable[[], object]:
        self.callbacks.append(fn)
        if self.aborted:
            fn()
        return lambda: self.callbacks.remove(fn)

    def fire(self) -> None:
        self.aborted = True
        for callback in list(self.callbacks):
            callback()


async def lines(child: Child, count: int) -> list[str]:
    """Read `count` lines of a child's standard output."""
    assert child.stdout is not None
    text = ""
    with anyio.fail_after(5):
        while text.count("\n") < count:
            text += (await child.stdout.receive()).decode()
    return text.split()


async def finish_while(
    body: Callable[[], Coroutine[object, object, None]],
    child: Child,
    *,
    timeout_ms: float,
    cancel: Signal,
) -> Ending:
    """`finish` with `body` running beside it."""
    endings: list[Ending] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(body)
        endings.append(await finish(child, timeout_ms=timeout_ms, cancel=cancel))
    return endings[0]


async def test_a_timeout_kills_and_says_so(supervisor: Supervisor) -> None:
    # case: BASH-02
    done = await run(supervisor, ["bash", "-c", "echo so far; sleep 60"], timeout_ms=150)
    ending = done.ending
    assert (ending.timed_out, ending.cancelled) == (True, False)
    assert (ending.exit_code, ending.signal) == (None, "SIGTERM")
    assert done.stdout.snapshot().text == "so far\n"


async def test_a_trap_that_exits_cleanly_still_timed_out(supervisor: Supervisor) -> None:
    # case: BASH-03
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    done = await run(supervisor, ["bash", "-c", script], timeout_ms=300)
    assert (done.ending.exit_code, done.ending.timed_out) == (0, True)


async def test_a_child_that_ignores_sigterm_dies_of_sigkill(supervisor: Supervisor) -> None:
    # case: BASH-05
    child = await supervisor.spawn(
        ["bash", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done"], grace_ms=200
    )
    await lines(child, 1)
    assert child.kill("timeout")
    assert not child.kill("other"), "a second kill does not start over"
    with anyio.fail_after(5):
        status = await child.wait()
        await child.wait_gone()
    assert status.signal == "SIGKILL"
    assert child.ended_by == "timeout"
    assert not child.kill()


async def test_a_later_kill_can_only_shorten_the_grace(supervisor: Supervisor) -> None:
    child = await supervisor.spawn(
        ["bash", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done"], grace_ms=600_000
    )
    await lines(child, 1)
    child.kill()
    child.kill(grace_ms=0)
    with anyio.fail_after(5):
        assert (await child.wait()).signal == "SIGKILL"


async def test_the_whole_tree_dies_with_the_timeout(supervisor: Supervisor) -> None:
    # case: F-03
    script = f"echo $$; bash -c \"{sys.executable} -c 'while 1: pass'\""
    with anyio.fail_after(10):
        done = await run(supervisor, ["bash", "-c", script], timeout_ms=1000, grace_ms=500)
    assert done.ending.timed_out
    assert done.ending.left == 0
    leader = int(done.stdout.snapshot().text)
    with pytest.raises(ProcessLookupError):
        os.killpg(leader, 0)


async def test_a_grandchild_dies_with_its_shell(supervisor: Supervisor) -> None:
    # case: BASH-06
    child = await supervisor.spawn(["bash", "-c", "sleep 60 & echo $!; wait"])
    (grandchild,) = map(int, await lines(child, 1))
    child.kill()
    await child.wait_gone()
    assert not is_alive(grandchild)


async def test_a_daemon_does_not_escape(supervisor: Supervisor) -> None:
    child = await supervisor.spawn(["bash", "-c", f"{DAEMON}; exit 0"])
    (daemon,) = map(int, await lines(child, 1))
    assert (await child.wait()).code == 0
    assert os.getsid(daemon) not in (child.pid, os.getsid(0))
    assert await child.count() == 1
    child.kill()
    with anyio.fail_after(5):
        await child.wait_gone()
    assert not is_alive(daemon)


async def test_a_stopped_process_dies_of_sigterm(supervisor: Supervisor) -> None:
    child = await supervisor.spawn(["bash", "-c", "echo $$; kill -STOP $$"], grace_ms=600_000)
    await lines(child, 1)
    child.kill()
    with anyio.fail_after(5):
        assert (await child.wait()).signal == "SIGTERM"


async def test_a_process_that_forks_itself_away_is_caught(supervisor: Supervisor) -> None:
    hopper = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.write(1, b'hopping\\n')\n"
        "while True:\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
    )
    child = await supervisor.spawn([sys.executable, "-I", "-S", "-c", hopper], grace_ms=50)
    await lines(child, 1)
    await child.wait()
    child.kill()
    with anyio.fail_after(20):
        await child.wait_gone()


async def test_a_fork_bomb_of_moderate_size(supervisor: Supervisor) -> None:
    bomb = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for depth in range(7):\n"  # 128 processes
        "    if not os.fork() and depth % 3 == 0: os.setsid()\n"
        "os.write(1, b'x\\n')\n"
        "time.sleep(300)\n"
    )
    child = await supervisor.spawn([sys.executable, "-I", "-S", "-c", bomb], grace_ms=100)
    await lines(child, 128)
    assert await child.count() == 128
    child.kill()
    with anyio.fail_after(10):
        await child.wait_gone()
    assert (await child.wait()).signal == "SIGKILL"


async def test_a_background_child_outlives_its_shell_but_not_the_supervisor() -> None:
    # case: F-01
    async with Supervisor() as supervisor:
        with anyio.fail_after(1):
            done = await run(supervisor, ["bash", "-c", "sleep 60 & echo $!; echo done"])
        pid, word = done.stdout.snapshot().text.split()
        assert word == "done"
        assert done.ending.left == 1
        assert is_alive(int(pid))
        assert len(supervisor.children) == 1
    assert not is_alive(int(pid))


async def test_output_of_a_survivor_goes_on_being_collected(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    # case: F-01
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = await run(supervisor, ["bash", "-c", f"(read x <{fifo}; echo late) & echo early"])
    assert done.ending.left >= 1
    assert done.stdout.snapshot().text == "early\n"
    await anyio.to_thread.run_sync(lambda: fifo.write_text("go\n"))
    with anyio.fail_after(5):
        await done.stdout.finished.wait()
    assert done.stdout.snapshot().text == "early\nlate\n"


async def test_a_survivor_without_the_pipes_costs_no_drain(supervisor: Supervisor) -> None:
    with anyio.fail_after(5):
        done = await run(
            supervisor, ["bash", "-c", "sleep 60 >/dev/null 2>&1 & echo done"], drain_ms=600_000
        )
    assert done.ending.left == 1
    assert done.ending.exit_code == 0


async def test_cancel_kills_and_is_no_timeout(supervisor: Supervisor) -> None:
    signal_ = Signal()
    out, err = supervisor.collector(), supervisor.collector("stderr")
    child = await supervisor.spawn(["sleep", "60"], stdout=out, stderr=err)

    async def fire() -> None:
        await anyio.wait_all_tasks_blocked()
        signal_.fire()

    ending = await finish_while(fire, child, timeout_ms=60_000, cancel=signal_)
    assert (ending.cancelled, ending.timed_out, ending.signal) == (True, False, "SIGTERM")
    assert signal_.callbacks == []


async def test_the_first_cause_counts(supervisor: Supervisor) -> None:
    signal_ = Signal()
    script = "trap '' TERM; echo r; while :; do sleep 0.05; done"
    out, err = supervisor.collector(), supervisor.collector("stderr")
    child = await supervisor.spawn(["bash", "-c", script], stdout=out, stderr=err, grace_ms=300)

    async def fire_late() -> None:
        await eventually(lambda: child.killed)
        signal_.fire()

    ending = await finish_while(fire_late, child, timeout_ms=200, cancel=signal_)
    assert (ending.timed_out, ending.cancelled, ending.signal) == (True, False, "SIGKILL")


async def test_a_signal_that_fired_before_ends_it_at_once(supervisor: Supervisor) -> None:
    signal_ = Signal()
    signal_.fire()
    with anyio.fail_after(5):
        done = await run(supervisor, ["sleep", "60"], cancel=signal_)
    assert (done.ending.cancelled, done.ending.exit_code) == (True, None)


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 3, 5, 8, 13, 30])
async def test_being_cancelled_outside_leaves_nothing(
    supervisor: Supervisor, delay_ms: int
) -> None:
    with anyio.move_on_after(delay_ms / 1000):
        await run(supervisor, ["bash", "-c", "sleep 60 & sleep 60"], grace_ms=500)
    await eventually(lambda: supervisor.children == ())
    done = await run(supervisor, ["echo", "next"])
    assert done.stdout.snapshot().text == "next\n"


async def test_leaving_the_supervisor_by_cancellation_kills_everything() -> None:
    pids: list[int] = []
    with anyio.CancelScope() as scope:
        async with Supervisor() as supervisor:
            child = await supervisor.spawn(["bash", "-c", f"{DAEMON}; sleep 60 & echo $!; wait"])
            pids = [child.pid, *map(int, await lines(child, 2))]
            scope.cancel()
            await anyio.sleep_forever()
    assert not any(is_alive(pid) for pid in pids)
    await wait_dead(pids, within_s=0.1)


async def test_closing_waits_for_the_escalation() -> None:
    # case: BASH-05
    async with Supervisor() as supervisor:
        child = await supervisor.spawn(
            ["bash", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done"], grace_ms=200
        )
        await lines(child, 1)
    assert not is_alive(child.pid)
    assert child.ended_by == "disposed"
    assert child.status is not None
    assert child.status.signal == "SIGKILL"


async def test_a_signal_reaches_the_group(supervisor: Supervisor) -> None:
    child = await supervisor.spawn(
        ["bash", "-c", "trap 'echo usr1' USR1; echo r; while :; do sleep 0.02; done"]
    )
    await lines(child, 1)
    child.send_signal(signal.SIGUSR1)
    assert await lines(child, 1) == ["usr1"]
    await child.aclose()
    assert child.is_gone


async def test_no_zombies_pile_up_under_a_living_command(supervisor: Supervisor) -> None:
    child = await supervisor.spawn(
        ["bash", "-c", "for n in {1..20}; do (setsid sleep 0 &); done; wait; echo r; read x"],
        stdin="pipe",
    )
    await lines(child, 1)

    async def only_the_shell_is_left() -> bool:
        return await child.count() == 1

    await eventually(only_the_shell_is_left)
    monitor = parent_of(child.pid)
    assert monitor is not None
    await eventually(lambda: zombies(monitor) == [])
    await child.aclose()


@pytest.mark.parametrize("checkpoints", range(6))
async def test_closing_while_a_child_is_being_started(checkpoints: int) -> None:
    outcomes: list[object] = []
    async with anyio.create_task_group() as tasks:
        async with Supervisor() as supervisor:
            await run(supervisor, ["true"])

            async def start() -> None:
                try:
                    outcomes.append(await supervisor.spawn(["sleep", "60"]))
                except (SupervisorClosedError, MonitorLostError) as error:
                    outcomes.append(error)

            tasks.start_soon(start)
            for _ in range(checkpoints):
                await anyio.lowlevel.checkpoint()
        with anyio.fail_after(5):
            await eventually(lambda: len(outcomes) == 1)
    (outcome,) = outcomes
    if isinstance(outcome, Child):
        assert outcome.is_gone
        assert not is_alive(outcome.pid)
        await outcome.aclose()
