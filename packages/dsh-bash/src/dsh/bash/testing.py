"""The contract suite of the bash seam, for every provider.

A provider's test file names the provider and inherits the tests:

    from dsh.bash.testing import BashContract
    from my_wheel import MyBash

    class TestMyBash(BashContract):
        provider = MyBash

The tests run under the anyio pytest plugin (`anyio_mode = "auto"`). They use commands any
POSIX system has, so a provider that runs elsewhere than on this machine can take part too.
"""

# The tests' names are their documentation.
# ruff: noqa: D102, ERA001

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import anyio

from dsh.bash._executor import BashExecutor
from dsh.bash._tasks import BashRead, BashTask
from dsh.bash._types import BashRequest, BashResult, OwnerToken
from dsh.bash.errors import BashAbortedError, BashSpawnError, InvalidTimeoutError, UnknownTaskError
from dsh.core import App, Context
from dsh.llm import CancelSignal

__all__ = ["BashContract", "bash_app", "read_until", "run", "start"]

_FOREVER = "while :; do sleep 0.05; done"
_NOWHERE = "/no/such/directory"
_DEADLINE_S = 20.0


@asynccontextmanager
async def bash_app(
    provider: type[BashExecutor], config: Mapping[str, Any] | None = None
) -> AsyncGenerator[tuple[App, BashExecutor]]:
    """Open an app with nothing in it but one bash provider.

    Args:
        provider: The class.
        config: Its configuration.
    """
    async with App() as app:
        mount = app.mount(provider, dict(config or {}))
        await mount.settled()
        yield app, app[BashExecutor]


async def run(bash: BashExecutor, command: str, **request: Any) -> BashResult:
    """Resolve and run a command."""
    return await bash.run(bash.resolve(BashRequest(command=command, **request)))


def start(bash: BashExecutor, command: str, **request: Any) -> BashTask:
    """Resolve and start a background command."""
    return bash.start_task(bash.resolve(BashRequest(command=command, **request)))


async def read_until(bash: BashExecutor, task: BashTask, text: str) -> str:
    """Read a task until what came contains `text`; returns all that came.

    Raises:
        TimeoutError: It does not come.
    """
    seen = ""
    with anyio.fail_after(_DEADLINE_S):
        while text not in seen:
            seen += bash.read_output(task.id).delta
            await anyio.sleep(0.005)
    return seen


class BashContract:
    """What every provider of the bash seam does. Derive, set `provider`, done."""

    provider: ClassVar[type[BashExecutor]]
    """The class under test."""
    config: ClassVar[Mapping[str, Any]] = {}
    """Configuration it needs in every test."""
    graceful: ClassVar[Mapping[str, Any]] = {}
    """Configuration that makes it wait 200 ms between SIGTERM and SIGKILL, if it can."""

    def executor(self, **config: Any) -> AbstractAsyncContextManager[tuple[App, BashExecutor]]:
        """An app with the provider."""
        return bash_app(self.provider, {**self.config, **config})

    # ── foreground ───────────────────────────────────────────────────────────────────────────

    async def test_exit_code_is_a_fact(self) -> None:
        # case: BASH-01
        async with self.executor() as (_, bash):
            result = await run(bash, "echo failing; exit 3")
        assert (result.exit_code, result.signal) == (3, None)
        assert (result.timed_out, result.aborted) == (False, False)
        assert result.stdout.text == "failing\n"
        assert not result.stdout.truncated

    async def test_streams_are_separate(self) -> None:
        async with self.executor() as (_, bash):
            result = await run(bash, "echo out; echo err >&2")
        assert (result.stdout.text, result.stderr.text) == ("out\n", "err\n")

    async def test_timeout_is_a_fact(self) -> None:
        # case: BASH-02
        async with self.executor() as (_, bash):
            result = await run(bash, "sleep 60", timeout_ms=100)
        assert (result.timed_out, result.aborted, result.timeout_ms) == (True, False, 100)
        assert (result.exit_code, result.signal) == (None, "SIGTERM")

    async def test_timeout_with_a_trap_that_exits_cleanly(self) -> None:
        # case: BASH-03
        async with self.executor() as (_, bash):
            result = await run(bash, f"trap 'exit 0' TERM; {_FOREVER}", timeout_ms=500)
        assert (result.timed_out, result.exit_code, result.signal) == (True, 0, None)

    async def test_a_suicide_is_neither_timeout_nor_abort(self) -> None:
        # case: BASH-04
        async with self.executor() as (_, bash):
            result = await run(bash, "kill -TERM $$")
        assert (result.signal, result.timed_out, result.aborted) == ("SIGTERM", False, False)

    async def test_a_command_that_ignores_sigterm_is_killed(self) -> None:
        # case: BASH-05
        async with self.executor(**self.graceful) as (_, bash):
            with anyio.fail_after(_DEADLINE_S):
                result = await run(bash, f"trap '' TERM; {_FOREVER}", timeout_ms=300)
        assert (result.signal, result.timed_out) == ("SIGKILL", True)

    async def test_abort_is_a_fact(self) -> None:
        signal = CancelSignal()
        results: list[BashResult] = []
        async with self.executor() as (_, bash), anyio.create_task_group() as tasks:

            async def abort() -> None:
                await anyio.wait_all_tasks_blocked()
                signal.abort("no longer wanted")

            tasks.start_soon(abort)
            with anyio.fail_after(_DEADLINE_S):
                results.append(await run(bash, "sleep 60", signal=signal))
        assert results[0].aborted
        assert not results[0].timed_out

    async def test_an_aborted_signal_starts_nothing(self) -> None:
        signal = CancelSignal()
        signal.abort()
        async with self.executor() as (_, bash):
            assert await _raised(BashAbortedError, lambda: run(bash, "true", signal=signal))

    async def test_a_missing_directory_is_a_spawn_failure(self) -> None:
        async with self.executor() as (_, bash):
            error = await _raised(BashSpawnError, lambda: run(bash, "true", workdir=_NOWHERE))
        assert _NOWHERE in str(error)
        assert isinstance(error, OSError)

    async def test_no_state_survives_a_command(self) -> None:
        async with self.executor() as (_, bash):
            await run(bash, "cd /; export LEFT_BEHIND=1; f() { :; }")
            result = await run(bash, 'echo "${LEFT_BEHIND-gone}"; type f')
        assert result.stdout.text == "gone\n"
        assert result.exit_code == 1

    async def test_the_directory_is_honoured(self) -> None:
        async with self.executor(cwd="/usr") as (_, bash):
            configured = await run(bash, "pwd")
            relative = await run(bash, "pwd", workdir="bin/..")
            absolute = await run(bash, "pwd", workdir="/")
        assert configured.stdout.text == relative.stdout.text == "/usr\n"
        assert absolute.stdout.text == "/\n"

    async def test_stdin(self) -> None:
        # case: BASH-10
        async with self.executor() as (_, bash):
            none = await run(bash, "cat; test -c /dev/stdin && echo device")
            some = await run(bash, "cat", stdin=b"given")
            ignored = await run(bash, "exit 7", stdin=b"x" * (1 << 20))
        assert none.stdout.text == "device\n"
        assert some.stdout.text == "given"
        assert ignored.exit_code == 7

    async def test_request_environment_wins(self) -> None:
        # case: BASH-09
        async with self.executor() as (_, bash):
            result = await run(
                bash, 'echo "$DSH_OVERRIDE_KEY $TERM"', env={"DSH_OVERRIDE_KEY": "k", "TERM": "t"}
            )
            plain = await run(bash, 'echo "$NO_COLOR $TERM $PAGER $GIT_PAGER"')
        assert result.stdout.text == "k t\n"
        assert plain.stdout.text == "1 dumb cat cat\n"

    async def test_there_is_no_terminal(self) -> None:
        # case: F-05
        async with self.executor() as (_, bash):
            with anyio.fail_after(_DEADLINE_S):
                result = await run(bash, "read x </dev/tty")
        assert result.exit_code != 0

    async def test_a_background_child_does_not_delay_the_result(self) -> None:
        # case: F-01
        async with self.executor() as (_, bash):
            with anyio.fail_after(_DEADLINE_S):
                result = await run(bash, "sleep 60 & echo done")
        assert result.stdout.text == "done\n"
        assert result.left == 1

    async def test_output_that_is_not_text(self) -> None:
        # case: F-32
        async with self.executor() as (_, bash):
            result = await run(bash, r"printf 'a\377b'")
        assert result.stdout.text == "a\ufffdb"
        assert result.stdout.undecodable

    async def test_a_long_command(self) -> None:
        async with self.executor() as (_, bash):
            text = "x" * 300_000
            result = await run(bash, f"cat <<'END' | wc -c\n{text}\nEND\nexit 5")
        assert int(result.stdout.text) == 300_001
        assert result.exit_code == 5

    async def test_commands_that_look_like_options(self) -> None:
        async with self.executor() as (_, bash):
            result = await run(bash, "-x")
        assert result.exit_code == 127

    # ── resolving ────────────────────────────────────────────────────────────────────────────

    async def test_resolve_fills_in_and_caps(self) -> None:
        async with self.executor(timeout_ms=1000, max_timeout_ms=2000, cwd="/usr") as (_, bash):
            spec = bash.resolve(BashRequest(command="true"))
            capped = bash.resolve(BashRequest(command="true", timeout_ms=1e9))
        assert (spec.workdir, spec.timeout_ms, capped.timeout_ms) == ("/usr", 1000, 2000)
        assert (spec.owner, spec.stdin, spec.env, spec.signal) == (None, None, None, None)

    async def test_resolve_refuses_nonsense(self) -> None:
        async with self.executor() as (_, bash):
            for timeout in (0, -1, float("nan"), float("inf")):
                request = BashRequest(command="true", timeout_ms=timeout)
                error = await _raised(InvalidTimeoutError, partial(bash.resolve, request))
                assert "request.timeout_ms" in str(error)

    # ── background ───────────────────────────────────────────────────────────────────────────

    async def test_reads_deliver_everything_once(self) -> None:
        # case: BASH-11
        async with self.executor() as (_, bash):
            task = start(bash, "echo first; read x </dev/null; echo second")
            assert task.id == "bash-1"
            with anyio.fail_after(_DEADLINE_S):
                await task.done()
            assert bash.read_output(task.id).delta == "first\nsecond\n"
            assert bash.read_output(task.id).delta == ""
            assert (task.status, task.exit_code) == ("completed", 0)

    async def test_reads_while_it_runs(self) -> None:
        # case: BASH-11
        async with self.executor() as (_, bash):
            task = start(bash, f"echo first; {_FOREVER}")
            assert await read_until(bash, task, "first") == "first\n"
            assert bash.read_output(task.id).delta == ""
            assert task.status == "running"

    async def test_standard_error_is_set_apart_in_reads(self) -> None:
        async with self.executor() as (_, bash):
            task = start(bash, "printf out; echo err >&2")
            await task.done()
            read = bash.read_output(task.id)
        assert isinstance(read, BashRead)
        assert read.delta == "out\n[stderr]\nerr\n"

    async def test_a_background_command_that_cannot_start(self) -> None:
        # case: BASH-12
        ended: list[BashTask] = []
        async with self.executor() as (app, bash):
            bash.on_task_done(app.ctx, ended.append)
            task = start(bash, "true", workdir=_NOWHERE)
            with anyio.fail_after(_DEADLINE_S):
                await task.done()
            assert "spawn failed" in bash.read_output(task.id).delta
        assert task.status == "killed"
        assert ended == [task]

    async def test_kill(self) -> None:
        # case: BASH-06
        async with self.executor() as (_, bash):
            task = start(bash, "sleep 60 & echo $!; wait")
            await read_until(bash, task, "\n")
            assert bash.kill(task.id)
            assert task.status == "killed"
            with anyio.fail_after(_DEADLINE_S):
                await task.done()
            assert (task.status, task.signal) == ("killed", "SIGTERM")
            assert not bash.kill(task.id)

    async def test_kill_right_after_start(self) -> None:
        async with self.executor() as (_, bash):
            task = start(bash, "sleep 60")
            assert bash.kill(task.id)
            with anyio.fail_after(_DEADLINE_S):
                await task.done()
        assert task.status == "killed"

    async def test_a_background_command_has_no_timeout_but_a_signal(self) -> None:
        signal = CancelSignal()
        async with self.executor() as (_, bash):
            task = start(bash, f"echo on; {_FOREVER}", timeout_ms=1, signal=signal)
            await read_until(bash, task, "on")
            assert not task.settled
            signal.abort()
            with anyio.fail_after(_DEADLINE_S):
                await task.done()
        assert task.status == "killed"

    async def test_unknown_tasks(self) -> None:
        async with self.executor() as (_, bash):
            assert bash.get("bash-9") is None
            assert bash.owner_of("bash-9") is None
            for call in (bash.read_output, bash.kill):
                error = await _raised(UnknownTaskError, partial(call, "bash-9"))
                assert 'unknown bash task "bash-9"' in str(error)

    async def test_tasks_are_listed_in_order_with_their_owners(self) -> None:
        # case: BASH-13
        async with self.executor() as (_, bash):
            first = start(bash, "true", owner=OwnerToken("a"))
            second = start(bash, "sleep 60", owner=OwnerToken(""))
            third = start(bash, "true")
            await first.done()
            assert bash.list() == (first, second, third)
            assert bash.get(second.id) is second
            assert [bash.owner_of(task.id) for task in bash.list()] == ["a", "", None]

    async def test_a_listener_that_raises_starves_nobody(self) -> None:
        # case: BASH-15
        ended: list[BashTask] = []

        def broken(task: BashTask) -> None:
            raise RuntimeError("broken listener")

        async with self.executor() as (app, bash):
            bash.on_task_done(app.ctx, broken)
            bash.on_task_done(app.ctx, ended.append)
            gone = bash.on_task_done(app.ctx, ended.append)
            await gone.dispose()
            task = start(bash, "true")
            with anyio.fail_after(_DEADLINE_S):
                await task.done()
        assert ended == [task]

    async def test_listeners_leave_with_their_owner(self) -> None:
        ended: list[BashTask] = []

        def listen(ctx: Context, config: object) -> None:
            ctx[BashExecutor].on_task_done(ctx, ended.append)

        async with self.executor() as (app, bash):
            mount = app.ctx.when((BashExecutor,), lambda ctx: listen(ctx, None))
            await mount.settled()
            await mount.dispose()
            await start(bash, "true").done()
        assert ended == []

    async def test_disposal_kills_and_waits_and_tells_nobody(self) -> None:
        # case: BASH-05
        ended: list[BashTask] = []
        async with self.executor(**self.graceful) as (app, bash):
            bash.on_task_done(app.ctx, ended.append)
            task = start(bash, f"trap '' TERM; echo on; {_FOREVER}")
            await read_until(bash, task, "on")
        assert task.status == "killed"
        assert task.settled
        assert ended == []


async def _raised(kind: type[Exception], call: Callable[[], Any]) -> Exception:
    """The error of type `kind` that `call`, or awaiting what it returns, raises."""
    try:
        value = call()
        if inspect.isawaitable(value):
            await value
    except kind as error:
        return error
    raise AssertionError(f"nothing raised {kind.__name__}")
