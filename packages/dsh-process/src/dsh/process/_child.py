"""A supervised child process as its user sees it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from dsh.process._channel import Channel
from dsh.process._helper._process_table import kill_marked
from dsh.process._output import OutputCollector
from dsh.process._streams import FdReceiveStream, FdSendStream
from dsh.process.errors import MonitorLostError

__all__ = ["Child", "ExitStatus"]

_logger = logging.getLogger(__name__)
_DRAIN_ROUNDS = 64
KILL_MARGIN_S = 5.0
"""Seconds a killed command is waited for beyond its grace; more only a stuck disk needs."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: exactly one of the two is set."""

    code: int | None
    """Exit code."""
    signal: str | None
    """Name of the signal it died of, e.g. `SIGTERM`."""

    @classmethod
    def from_wait(cls, status: int) -> ExitStatus:
        """Read a wait status."""
        number = status & 0x7F
        if number == 0:
            return cls(status >> 8 & 0xFF, None)
        try:
            return cls(None, signal.Signals(number).name)
        except ValueError:
            return cls(None, f"SIG{number}")


@dataclass(frozen=True, slots=True)
class Pump:
    """A collected stream on its way from the pipe to the collector."""

    stream: FdReceiveStream
    collector: OutputCollector

    async def run(self) -> None:
        """Move bytes until the last writer has closed."""
        try:
            while True:
                self.collector.feed(await self.stream.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError, OSError):
            return
        finally:
            self.collector.finish()
            self.stream.close()

    def sweep(self) -> None:
        """Take what is in the pipe now, so that a late event loop loses nothing."""
        try:
            for _ in range(_DRAIN_ROUNDS):
                self.collector.feed(self.stream.receive_nowait())
        except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError, OSError):
            return


class Child:
    """A running command with everything it starts. Made by `Supervisor.spawn`.

    Leaving `async with child` (or `aclose`) kills what is left of it. Whoever lets go of a child
    without that leaves it to the supervisor, which kills it when it is closed.

    Attributes:
        pid: Process id; also the id of its session and of its process group.
        argv: What was started.
        stdin: Stream to its standard input, where one was asked for.
        stdout: Stream from its standard output, where one was asked for.
        stderr: Stream from its standard error, where one was asked for.
        grace_ms: Default time between SIGTERM and SIGKILL.
    """

    def __init__(
        self, channel: Channel, pid: int, argv: tuple[str, ...], mark: str, grace_ms: float
    ) -> None:
        self.pid = pid
        self.argv = argv
        self.grace_ms = grace_ms
        self.stdin: FdSendStream | None = None
        self.stdout: FdReceiveStream | None = None
        self.stderr: FdReceiveStream | None = None
        self.pumps: list[Pump] = []
        self._channel = channel
        self._mark = mark
        self._cause: str | None = None
        self._ended_by: str | None = None
        self._status: ExitStatus | None = None
        self._exited = anyio.Event()
        self._gone = anyio.Event()
        self._counted: anyio.Event | None = None
        self._left = 0

    # ── what is known ────────────────────────────────────────────────────────────────────────

    @property
    def status(self) -> ExitStatus | None:
        """How the process itself ended, or None while it runs."""
        return self._status

    @property
    def ended_by(self) -> str | None:
        """Cause given to the kill that ended the process; None if it ended by itself.

        Of several kills the first one's cause counts.
        """
        return self._ended_by

    @property
    def killed(self) -> bool:
        """Whether `kill` has been called."""
        return self._cause is not None

    @property
    def left(self) -> int:
        """Processes still running when that was last known: at the exit, or at a `count`."""
        return self._left

    @property
    def is_gone(self) -> bool:
        """Whether the process and everything it started has ended."""
        return self._gone.is_set()

    async def wait(self) -> ExitStatus:
        """Wait until the process itself has ended; what it started may live on.

        Raises:
            MonitorLostError: Its monitor was killed, so nobody knows.
        """
        await self._exited.wait()
        if self._status is None:
            raise MonitorLostError(
                f"how {self.argv[0]!r} (pid {self.pid}) ended is unknown: the process that watched"
                " over it was killed",
                hint="everything it had started has been killed",
            )
        return self._status

    async def wait_gone(self) -> None:
        """Wait until the process and everything it started has ended."""
        await self._gone.wait()

    async def wait_drained(self) -> None:
        """Wait until the collected streams have ended."""
        for pump in self.pumps:
            await pump.collector.finished.wait()

    async def count(self) -> int:
        """Ask how many processes of this child are running, itself included."""
        if self._gone.is_set():
            return 0
        if self._counted is None:
            self._counted = anyio.Event()
            self._channel.send_now({"op": "count"})
        await self._counted.wait()
        return self._left

    # ── what can be done ─────────────────────────────────────────────────────────────────────

    def kill(self, cause: str = "killed", *, grace_ms: float | None = None) -> bool:
        """End the process and everything it started: SIGTERM now, SIGKILL after the grace.

        Does not wait. A later call never restarts the grace, it can only shorten it.

        Args:
            cause: Word for `ended_by`.
            grace_ms: Milliseconds until SIGKILL; 0 sends SIGKILL at once.

        Returns:
            Whether this call is the one that ends it.
        """
        if self._gone.is_set():
            return False
        grace = self.grace_ms if grace_ms is None else grace_ms
        first = self._cause is None
        if first:
            self._cause = cause
        if first or grace_ms is not None:
            self._channel.send_now({"op": "kill", "grace": max(0.0, grace)})
        return first

    def send_signal(self, number: int) -> None:
        """Send a signal to the process group; nothing happens once the process has ended."""
        self._channel.send_now({"op": "signal", "number": int(number)})

    async def aclose(self) -> None:
        """Close the streams, kill what is left and wait for it, at most grace plus 5 s."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        await self.kill_and_wait("closed")

    async def kill_and_wait(self, cause: str = "killed") -> None:
        """Kill and wait until nothing is left, cancelled or not; at most grace plus 5 s."""
        self.kill(cause)
        with anyio.move_on_after(self.grace_ms / 1000 + KILL_MARGIN_S, shield=True):
            await self._gone.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ── for the supervisor ───────────────────────────────────────────────────────────────────

    async def watch(self, on_gone: Callable[[Child], object]) -> None:
        """Follow the monitor's reports to the end. Run once, by the supervisor."""
        try:
            while not self._gone.is_set():
                message = await self._channel.read()
                if message is None:
                    await self._lost()
                    break
                self._note(message, on_gone)
        finally:
            self._channel.close()
            self._finish(on_gone)

    def _note(self, message: Mapping[str, Any], on_gone: Callable[[Child], object]) -> None:
        match message["ev"]:
            case "exit":
                self._status = ExitStatus.from_wait(message["status"])
                self._left = message["left"]
                self._ended_by = self._cause if message["killed"] else None
                self._exited.set()
            case "count":
                self._left = message["left"]
                self._answer_count()
            case "gone":
                self._left = 0
                self._finish(on_gone)
            case _:
                return

    def _finish(self, on_gone: Callable[[Child], object]) -> None:
        self._exited.set()
        self._gone.set()
        self._answer_count()
        on_gone(self)

    def _answer_count(self) -> None:
        if self._counted is not None:
            self._counted.set()
            self._counted = None

    async def _lost(self) -> None:
        _logger.warning("the monitor of %r (pid %d) was killed", self.argv[0], self.pid)
        self._ended_by = self._cause
        await anyio.to_thread.run_sync(kill_marked, self._mark)
