"""The helper program: starts commands, watches over them, leaves nothing of them behind.

It is run by `dsh.process._launcher` as a separate interpreter (`-I -S`, empty environment). This
module and the three it uses (`_monitor`, `_platform`, `_table`) import only the standard library
and each other. One process of it serves a whole harness and plays two roles:

- the **root** waits on one socket. Each message is one byte with descriptors attached (SCM_RIGHTS):
  the command's control socket first, its standard streams after it. Each goes to a monitor, which
  was forked ahead where possible: forking an interpreter is most of what a command costs.
- a **monitor** reads what to run from the control socket, starts it in a session of its own,
  reports, and stays until no process of the command is left. On Linux it is a child subreaper:
  whatever daemonises itself is re-parented to the monitor, never lost.

Both end the command when the other side is gone: the control socket reports EOF, and (Linux) a
pidfd of the harness becomes readable. Should a monitor be killed, the root adopts and kills what
it watched. Elsewhere than on Linux an escaped daemon is found by the mark in its environment.

The control socket carries JSON lines. To the monitor: the request, then `{"op": "kill", "grace"}`,
`{"op": "signal", "number"}`, `{"op": "count"}`. From the monitor: `{"ev": "started", "pid"}` or
`{"ev": "failed", "step", "errno", "what"}`; `{"ev": "exit", "status", "left", "killed"}`;
`{"ev": "count", "left"}`; `{"ev": "gone"}`.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Final

from dsh.process._monitor import Lines, Monitor
from dsh.process._platform import Platform, Wakeup, reap
from dsh.process._table import descendants, signal_all

__all__ = ["main", "receive_fds"]

_MAX_FDS: Final = 64
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_ORPHAN_ROUNDS: Final = 500


class Root:
    """Forks a monitor per request, and cleans up after a monitor that was killed."""

    def __init__(self, sock: socket.socket, spill: str, platform: Platform) -> None:
        self.sock = sock
        self.spill = spill
        self.platform = platform
        self.wakeup = Wakeup()
        self.monitors: set[int] = set()
        self.spare: tuple[int, socket.socket] | None = None
        """A monitor without a command yet, and where it waits for one."""
        self.orphan_rounds = 0
        self.open = True

    def run(self) -> None:
        """Serve until the harness is gone and so is every monitor."""
        self.platform.adopt(b"dsh-helper")
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        poll.register(self.wakeup.reading, select.POLLIN)
        if self.platform.harness >= 0:
            poll.register(self.platform.harness, select.POLLIN)
        while self.open or self.monitors or self.orphan_rounds:
            for fd, _ in poll.poll(10.0 if self.orphan_rounds else None):
                if fd == self.wakeup.reading:
                    self.wakeup.drain()
                elif fd == self.platform.harness or not self._serve():
                    poll.unregister(fd)
                    self.open = False
            self._tend()
            if self.open and self.spare is None:
                self._fork_spare()
        if self.spare is not None:
            pid, sock = self.spare
            sock.close()
            os.waitpid(pid, 0)

    def _tend(self) -> None:
        """Reap monitors; kill what a dead monitor left, which the kernel gave to this process."""
        ended, childless = reap()
        for pid, status in ended:
            if pid in self.monitors:
                self.monitors.discard(pid)
                if status != 0:
                    self.orphan_rounds = _ORPHAN_ROUNDS
            elif self.spare is not None and pid == self.spare[0]:
                self.spare[1].close()
                self.spare = None
        if not self.orphan_rounds:
            return
        mine = self.monitors if self.spare is None else {*self.monitors, self.spare[0]}
        lost = descendants(os.getpid(), frozenset(mine))
        if childless or not lost:
            self.orphan_rounds = 0
            return
        self.orphan_rounds -= 1
        signal_all(lost, signal.SIGKILL, frozenset((os.getpid(),)))

    def _serve(self) -> bool:
        """Take one request; False at EOF."""
        try:
            data, fds, flags = receive_fds(self.sock)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        if flags & socket.MSG_CTRUNC or not fds:
            # Out of descriptors here: closing the control socket is the answer.
            for fd in fds:
                os.close(fd)
            return True
        pid = self._hand_over(fds) or self._fork(fds)
        if pid:
            self.monitors.add(pid)
        for fd in fds:
            os.close(fd)
        return True

    def _hand_over(self, fds: list[int]) -> int:
        """Give a request to the spare monitor; its pid, or 0 if there is none."""
        if self.spare is None:
            return 0
        (pid, sock), self.spare = self.spare, None
        with sock:
            try:
                socket.send_fds(sock, [b"S"], fds)
            except OSError:
                return 0
        return pid

    def _fork(self, fds: list[int]) -> int:
        """Fork a monitor for a request; its pid, or 0 when the command was told why not."""
        try:
            pid = os.fork()
        except OSError as error:
            with socket.socket(fileno=os.dup(fds[0])) as control:
                failure = {"step": "fork", "errno": error.errno, "what": "a monitor process"}
                Lines(control).write({"ev": "failed", **failure})
            return 0
        if pid == 0:
            self._become_monitor(lambda: fds)
        return pid

    def _fork_spare(self) -> None:
        """Fork a monitor ahead of the next request."""
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError:
            return  # the next request tries again, and says why not
        if pid == 0:
            ours.close()
            self._become_monitor(lambda: receive_fds(theirs)[1])
        theirs.close()
        self.spare = (pid, ours)

    def _become_monitor(self, take: Callable[[], list[int]]) -> None:
        status = 1
        try:
            self.wakeup.close()
            self.sock.close()
            monitor = Monitor(self.platform, Wakeup())
            if fds := take():
                monitor.run(Lines(socket.socket(fileno=fds[0])), fds[1:])
            status = 0
        except BaseException:  # noqa: BLE001 - reported on stderr, the root sees the status
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)

    def clean(self) -> None:
        """Remove the spill files of a harness that could not do it itself."""
        if self.spill and os.path.isdir(self.spill) and not os.path.islink(self.spill):
            import shutil

            shutil.rmtree(self.spill, ignore_errors=True)


def receive_fds(sock: socket.socket) -> tuple[bytes, list[int], int]:
    """Read one request byte with its descriptors, none of which a child will inherit."""
    size = _MAX_FDS * 4
    cloexec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, flags, _ = sock.recvmsg(1, socket.CMSG_SPACE(size), cloexec)
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            usable = len(payload) - len(payload) % 4
            fds += memoryview(payload)[:usable].cast("i").tolist()
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, fds, flags


def main(arguments: list[str]) -> None:
    """Run the root.

    Args:
        arguments: Descriptor of the socket, directory of the spill files or an empty string,
            `full` or `portable`.
    """
    fd, spill, mode = arguments
    sock = socket.socket(fileno=int(fd))
    sock.set_inheritable(False)
    sock.setblocking(False)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    root = Root(sock, spill, Platform(portable=mode == "portable"))
    # Forked monitors share these pages for as long as the collector does not write to them.
    gc.collect()
    gc.freeze()
    gc.disable()
    root.run()
    root.clean()
