"""The supervisor: starts children and answers for all of them."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc

from dsh.process._child import Child
from dsh.process._environment import child_environment
from dsh.process._helper._process_table import MARK
from dsh.process._launcher import Helper, acquire, release
from dsh.process._output import DEFAULT_MAX_BYTES, DEFAULT_SPILL_BYTES, OutputCollector
from dsh.process._plan import StartPlan, Stdin, Stdout, request_of
from dsh.process._spill import DEFAULT_TOTAL_BYTES, SpillStore
from dsh.process._streams import FdSendStream
from dsh.process.errors import SupervisorClosedError

__all__ = ["Supervisor"]

_logger = logging.getLogger(__name__)

_CLOSE_MARGIN_S: Final = 5.0
_DRAIN_S: Final = 1.0
DEFAULT_GRACE_MS: Final = 3000.0


class Supervisor:
    """Starts child processes and makes sure that none outlives it.

    Use it as an async context manager, in one task; a plugin does that with `ctx.enter`. Any task
    of the same event loop may then start children. Leaving the context kills every child with all
    of its descendants, waits for them, and removes the spill files.

    Each child runs in a session of its own, so it has no terminal, under a monitor process that
    finds whatever the child starts, also daemons that changed their session. All supervisors of a
    program share one helper process, which starts with the first child and ends with the last
    supervisor. Should the harness be killed, the helper still kills all children.

    Args:
        spill_dir: Parent of this supervisor's directory for long outputs; by default a directory
            of the process under the system's temporary one.
        max_total_spill_bytes: Limit for all spill files of this supervisor together.
        portable: Use only what every Unix has: no child subreaper, no pidfds. That is what macOS
            gets; elsewhere it is for tests.
    """

    def __init__(
        self,
        *,
        spill_dir: str | os.PathLike[str] | None = None,
        max_total_spill_bytes: int = DEFAULT_TOTAL_BYTES,
        portable: bool = False,
    ) -> None:
        self.spill = SpillStore(
            None if spill_dir is None else Path(spill_dir), max_total_bytes=max_total_spill_bytes
        )
        """Where long outputs are kept."""
        self._portable = portable
        self._helper: Helper | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._scopes: set[anyio.CancelScope] = set()
        self._children: dict[Child, None] = {}
        self._run_id = secrets.token_hex(8)
        self._started = 0

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        self._helper = acquire(portable=self._portable)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        helper, self._helper = self._helper, None
        tasks, self._tasks = self._tasks, None
        with anyio.CancelScope(shield=True):
            await self._kill_all()
        for scope in list(self._scopes):
            scope.cancel()
        try:
            if tasks is not None:
                await tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                if helper is not None:
                    await release(helper)
            self.spill.close()

    async def _kill_all(self) -> None:
        children = list(self._children)
        for child in children:
            child.kill("disposed")
        grace = max((child.grace_ms for child in children), default=0) / 1000
        with anyio.move_on_after(grace + _CLOSE_MARGIN_S) as scope:
            for child in children:
                await child.wait_gone()
        # Whoever got the pipes handed over from a child may hold them for ever.
        with anyio.move_on_after(_DRAIN_S):
            for child in children:
                await child.wait_drained()
        if scope.cancelled_caught:
            left = [child.pid for child in children if not child.is_gone]
            _logger.error("processes withstood SIGKILL and were left behind: %s", left)

    def _is_open(self) -> bool:
        return self._tasks is not None and self._helper is not None

    @property
    def children(self) -> tuple[Child, ...]:
        """Children of which a process still runs, oldest first."""
        return tuple(self._children)

    @property
    def helper_pid(self) -> int | None:
        """Process id of the shared helper, or None while none runs."""
        return None if self._helper is None else self._helper.pid

    def collector(
        self,
        name: str = "stdout",
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_spill_bytes: int = DEFAULT_SPILL_BYTES,
    ) -> OutputCollector:
        """Make a collector whose overflow goes to this supervisor's spill files."""
        return OutputCollector(
            name, max_bytes=max_bytes, max_spill_bytes=max_spill_bytes, store=self.spill
        )

    # ── starting ─────────────────────────────────────────────────────────────────────────────

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stdin = None,
        stdout: Stdout = "pipe",
        stderr: Stdout = "pipe",
        fds: Mapping[int, int] | None = None,
        grace_ms: float = DEFAULT_GRACE_MS,
    ) -> Child:
        """Start a child and return once it runs.

        Args:
            argv: Program and arguments, no shell involved. A name without a slash is looked up
                along the child's own `PATH`.
            cwd: Working directory; the harness's own where it is not given.
            env: Complete environment; `child_environment()` where it is not given.
            stdin: See `Stdin`.
            stdout: See `Stdout`.
            stderr: See `Stdout`.
            fds: Further descriptors: number in the child to the descriptor here. Nothing else is
                inherited.
            grace_ms: Milliseconds between SIGTERM and SIGKILL when it is killed.

        Raises:
            SpawnError: It cannot be started; nothing of it runs.
            SupervisorClosedError: Outside of the supervisor's context.
        """
        if self._helper is None or self._tasks is None:
            raise SupervisorClosedError(
                "the supervisor is closed, so it starts no children", hint="enter it first"
            )
        environment = dict(child_environment() if env is None else env)
        mark = environment[MARK] = f"{self._run_id}-{self._started}"
        self._started += 1
        request = request_of(argv, cwd, environment, grace_ms)
        plan = StartPlan(argv[0])
        try:
            plan.prepare(stdin, stdout, stderr, fds or {})
            channel, pid = await plan.launch(self._helper, request)
        except BaseException:
            plan.abandon()
            raise
        if not self._is_open():  # closed while this task waited
            channel.close()
            plan.abandon()
            raise SupervisorClosedError("the supervisor was closed while a child was starting")
        child = Child(channel, pid, tuple(argv), mark, grace_ms)
        child.stdin, child.stdout, child.stderr = plan.stdin, plan.stdout, plan.stderr
        child.pumps = plan.pumps
        self._children[child] = None
        self._host(lambda: child.watch(self._forget))
        for pump in plan.pumps:
            self._host(pump.run)
        if isinstance(stdin, bytes) and (feed := child.stdin) is not None:
            child.stdin = None
            self._host(lambda: _feed(feed, stdin))
        return child

    # ── hosting ──────────────────────────────────────────────────────────────────────────────

    def _forget(self, child: Child) -> None:
        self._children.pop(child, None)

    def _host(self, body: Callable[[], Awaitable[object]]) -> None:
        """Run `body` until it ends or the supervisor has closed, whatever is cancelled outside."""
        assert self._tasks is not None
        scope = anyio.CancelScope(shield=True)
        self._scopes.add(scope)
        self._tasks.start_soon(self._guarded, body, scope)

    async def _guarded(
        self, body: Callable[[], Awaitable[object]], scope: anyio.CancelScope
    ) -> None:
        try:
            with scope:
                await body()
        except Exception:
            _logger.exception("a task of the process supervisor failed")
        finally:
            self._scopes.discard(scope)


async def _feed(stream: FdSendStream, data: bytes) -> None:
    """Write and close; a child that does not read is no failure."""
    try:
        await stream.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        return
    finally:
        stream.close()
