"""The monitor of one command, as forked by the helper's root."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import time
from typing import Any, Final, cast

from dsh.process._helper._platform import Platform, Wakeup, reap
from dsh.process._helper._process_table import (
    MARK,
    alive,
    descendants,
    group_members,
    marked,
    signal_all,
    signal_group,
)

__all__ = ["Lines", "Monitor", "spawn"]

ORPHAN_GRACE: Final = 0.5
"""Seconds between SIGTERM and SIGKILL once the harness is gone."""
GIVE_UP: Final = 10.0
"""Seconds a monitor without a harness goes on killing what it has no right to kill."""
_FIRST_ROUND_MS: Final = 2.0
_LAST_ROUND_MS: Final = 250.0
_EXEC_MISSES: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


class Lines:
    """JSON lines over the control socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.eof = False
        self._buffer = b""

    def read(self) -> dict[str, Any] | None:
        """The next message; None at EOF, or when a non-blocking socket has no whole line."""
        while b"\n" not in self._buffer:
            try:
                data = self.sock.recv(65536)
            except BlockingIOError:
                return None
            except OSError:
                data = b""
            if not data:
                self.eof = True
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast("dict[str, Any]", json.loads(line))

    def write(self, *messages: dict[str, Any]) -> None:
        """Send; a peer that is gone or stuck does not matter to the monitor."""
        with contextlib.suppress(OSError):
            self.sock.send(b"".join(json.dumps(m).encode() + b"\n" for m in messages))


class Monitor:
    """Runs one command and stays until no process of it is left."""

    def __init__(self, platform: Platform, wakeup: Wakeup) -> None:
        self.wakeup = wakeup
        self.platform = platform
        self.subreaper = platform.adopt(b"dsh-monitor")
        self.mark = ""
        self.grace = 0.0
        self.leader = 0
        """Pid of the command; its session and process group have the same number."""
        self.status: int | None = None
        """Wait status of the command once it was reaped."""
        self.childless = False
        self.kill_at: float | None = None
        """When SIGKILL is due; set by the first kill."""
        self.round_ms = _FIRST_ROUND_MS
        self.abandoned_at: float | None = None

    def run(self, lines: Lines, streams: list[int]) -> None:
        """Start the command and watch it; returns when nothing is left.

        Args:
            lines: The command's control socket.
            streams: The descriptors the command gets; closed here once it has them.
        """
        self.lines = lines
        request = lines.read()
        if request is None:
            return
        self.grace = request["grace"] / 1000
        self.mark = request["env"][MARK]
        failure = self._start(request, streams)
        for fd in streams:
            os.close(fd)
        if failure is not None:
            self.lines.write({"ev": "failed", **failure})
            return
        self.lines.write({"ev": "started", "pid": self.leader})
        self.lines.sock.setblocking(False)
        os.chdir("/")
        self._watch()

    @property
    def spotless(self) -> bool:
        """Whether nothing of the command is left, so that another one can be watched."""
        return self.childless and self.abandoned_at is None

    def _start(self, request: dict[str, Any], streams: list[int]) -> dict[str, Any] | None:
        """Start the command; a failure comes back as the facts of the `failed` message."""
        cwd: str | None = request["cwd"]
        if cwd is not None:
            try:
                os.chdir(cwd)
            except OSError as error:
                return {"step": "cwd", "errno": error.errno, "what": cwd}
        argv: list[str] = request["argv"]
        fds = dict(zip(request["fds"], streams, strict=True))
        reason = self._exec(argv, request["env"], fds)
        return None if reason is None else {"step": "exec", "errno": reason, "what": argv[0]}

    def _exec(self, argv: list[str], env: dict[str, str], fds: dict[int, int]) -> int | None:
        """Try the candidates along `PATH` as execvp does; returns an error number or None."""
        searched = "/" not in argv[0]
        reason = errno.ENOENT
        for path in _candidates(argv[0], env) if searched else [argv[0]]:
            if searched and not os.path.exists(path):
                continue  # cheaper than a start that fails
            try:
                self.leader = spawn(path, argv, env, fds, self.platform.altered_signals)
            except OSError as error:
                number = error.errno or errno.EIO
                if number == errno.ENOENT and os.path.lexists(path):
                    return errno.ENOEXEC  # the file is there, its interpreter is not
                if not searched or number not in _EXEC_MISSES:
                    return number
                reason = number if number == errno.EACCES else reason
            else:
                return None
        return reason

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self.lines.sock, select.POLLIN)
        poll.register(self.wakeup.reading, select.POLLIN)
        if self.platform.harness >= 0:
            poll.register(self.platform.harness, select.POLLIN)
        while not self._settle():
            for fd, _ in poll.poll(self._patience()):
                if fd == self.wakeup.reading:
                    self.wakeup.drain()
                elif fd == self.platform.harness or not self._obey():
                    poll.unregister(fd)
                    self._abandoned()

    def _settle(self) -> bool:
        """Reap, escalate and report; True when no process of the command is left."""
        before = self.status
        self._reap()
        if self._kill_is_due() and not self._is_alone():
            self._signal_tree(signal.SIGKILL)
            self._reap()
        alone = self._is_alone()
        messages: list[dict[str, Any]] = []
        if self.status is not None and before is None:
            left = 0 if alone else self._left()
            killed = self.kill_at is not None
            messages.append({"ev": "exit", "status": self.status, "left": left, "killed": killed})
        if alone:
            messages.append({"ev": "gone"})
        if messages:
            self.lines.write(*messages)
        given_up = self.abandoned_at is not None and time.monotonic() - self.abandoned_at > GIVE_UP
        return alone or given_up

    def _reap(self) -> None:
        ended, self.childless = reap()
        for pid, status in ended:
            if pid == self.leader:
                self.status = status
        if ended:
            self.round_ms = _FIRST_ROUND_MS

    def _kill_is_due(self) -> bool:
        return self.kill_at is not None and time.monotonic() >= self.kill_at

    def _patience(self) -> float | None:
        """Milliseconds until the next round is due."""
        if self.kill_at is not None:
            left_ms = (self.kill_at - time.monotonic()) * 1000
            if left_ms > 0:
                return left_ms + 1
            self.round_ms = min(self.round_ms * 1.5, _LAST_ROUND_MS)
            return self.round_ms
        return None if self.subreaper or self.status is None else _LAST_ROUND_MS

    def _obey(self) -> bool:
        """Carry out what the harness asks; False at EOF."""
        while (order := self.lines.read()) is not None:
            if order["op"] == "kill":
                self._terminate(order["grace"] / 1000)
            elif order["op"] == "signal" and self.status is None:
                signal_group(self.leader, order["number"])
            elif order["op"] == "count":
                self.lines.write({"ev": "count", "left": self._left()})
        return not self.lines.eof

    def _abandoned(self) -> None:
        """The harness let go of this command, or is gone."""
        if self.abandoned_at is None:
            self.abandoned_at = time.monotonic()
            self._terminate(min(self.grace, ORPHAN_GRACE))

    def _terminate(self, grace: float) -> None:
        """SIGTERM everything once; SIGKILL is due after `grace`, never later than said before."""
        due = time.monotonic() + grace
        if self.kill_at is not None:
            self.kill_at = min(self.kill_at, due)
            return
        self.kill_at = due
        if grace > 0:
            self._signal_tree(signal.SIGTERM)
            self._signal_tree(signal.SIGCONT)  # a stopped process would keep SIGTERM pending

    def _members(self) -> list[int]:
        found = descendants(os.getpid())
        if not self.subreaper:
            escaped = [*group_members(self.leader), *marked(self.mark)]
            found = list(dict.fromkeys((*found, *escaped)))
        return found

    def _signal_tree(self, number: int) -> None:
        if self.status is None or not self.subreaper:
            signal_group(self.leader, number)
        parents = frozenset((os.getpid(),)) if self.subreaper else None
        signal_all(self._members(), number, parents)

    def _left(self) -> int:
        """Live processes of the command."""
        return alive(self._members())

    def _is_alone(self) -> bool:
        """Whether the command and everything it started is gone.

        Of a subreaper every descendant is a child or below one, so having no child says it all.
        Elsewhere the process group must be empty too and, after a kill, the mark unseen.
        """
        if self.status is None or not self.childless:
            return False
        if self.subreaper:
            return True
        if self.kill_at is not None:
            return self._left() == 0
        try:
            os.killpg(self.leader, 0)
        except OSError:
            return True
        return False


def _candidates(program: str, env: dict[str, str]) -> list[str]:
    return [os.path.join(part or ".", program) for part in env.get("PATH", os.defpath).split(":")]


def spawn(
    path: str, argv: list[str], env: dict[str, str], fds: dict[int, int], signals: list[int]
) -> int:
    """Start a program in a new session with exactly the given descriptors.

    Args:
        path: The file to execute.
        argv: Its arguments, its own name first.
        env: Its complete environment.
        fds: Descriptor number in the child to the descriptor here; of 0 to 2, those not named
            become `/dev/null`.
        signals: Signals to set back to their default action.

    Returns:
        The process id, which is also the id of its session and group.

    Raises:
        OSError: The program cannot be started; nothing runs then.
    """
    ceiling = max((2, *fds)) + 1
    sources = {target: _above(fd, ceiling) for target, fd in fds.items()}
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY, 0)
        for number in range(3)
        if number not in fds
    ]
    actions += [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in sources.items()]
    try:
        return os.posix_spawn(
            path,
            argv,
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=signals,
        )
    finally:
        for target, fd in sources.items():
            if fd != fds[target]:
                os.close(fd)


def _above(fd: int, ceiling: int) -> int:
    """The same open file under a number no target has, so that no dup2 overwrites a source."""
    if fd >= ceiling:
        return fd
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ceiling)
