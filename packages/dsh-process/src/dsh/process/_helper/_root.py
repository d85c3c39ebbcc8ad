"""The root of the helper program: hands commands to monitors, and cleans up after them."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import Final

from dsh.process._helper._monitor import Lines, Monitor
from dsh.process._helper._platform import Platform, Wakeup, reap
from dsh.process._helper._process_table import descendants, signal_all

__all__ = ["main", "receive_fds"]

_MAX_FDS: Final = 64
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_ORPHAN_ROUNDS: Final = 500
_MAX_IDLE: Final = 4
"""How many monitors without a command are kept for the next ones."""


class Root:
    """Hands requests to monitors, and cleans up after a monitor that was killed."""

    def __init__(self, sock: socket.socket, spill: str, platform: Platform) -> None:
        self.sock = sock
        self.spill = spill
        self.platform = platform
        self.wakeup = Wakeup()
        self.poll = select.poll()
        self.monitors: dict[int, socket.socket] = {}
        """Every monitor, and where it waits for its next command."""
        self.idle: list[int] = []
        """The monitors without a command, the one used last at the end."""
        self.by_fd: dict[int, int] = {}
        self.orphan_rounds = 0
        self.open = True

    def run(self) -> None:
        """Serve until the harness is gone and so is every monitor."""
        self.platform.adopt(b"dsh-helper")
        poll = self.poll
        poll.register(self.sock, select.POLLIN)
        poll.register(self.wakeup.reading, select.POLLIN)
        if self.platform.harness >= 0:
            poll.register(self.platform.harness, select.POLLIN)
        while self.open or self.monitors or self.orphan_rounds:
            for fd, _ in poll.poll(10.0 if self.orphan_rounds else None):
                if fd == self.wakeup.reading:
                    self.wakeup.drain()
                elif fd in self.by_fd:
                    self._heard_of(self.by_fd[fd])
                elif self.open and (fd == self.platform.harness or not self._serve()):
                    self._close()
            self._tend()
            if self.open and not self.idle:
                self._fork()

    def _close(self) -> None:
        """Take no more requests; monitors without a command end, the others when it is over."""
        self.open = False
        self.poll.unregister(self.sock)
        if self.platform.harness >= 0:
            self.poll.unregister(self.platform.harness)
        for pid in self.idle:
            self._retire(pid)
        self.idle.clear()

    def _retire(self, pid: int) -> None:
        """Close the socket on which a monitor waits for its next command, so that it ends."""
        sock = self.monitors[pid]
        if (fd := sock.fileno()) >= 0:
            self.poll.unregister(fd)
            del self.by_fd[fd]
            sock.close()

    def _heard_of(self, pid: int) -> None:
        """A monitor has nothing left of its command, or is dead."""
        try:
            data = self.monitors[pid].recv(1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and self.open and len(self.idle) < _MAX_IDLE:
            self.idle.append(pid)
        else:
            self._retire(pid)

    def _tend(self) -> None:
        """Reap monitors; kill what a dead monitor left, which the kernel gave to this process."""
        ended, childless = reap()
        for pid, status in ended:
            if pid not in self.monitors:
                continue
            self._retire(pid)
            del self.monitors[pid]
            if pid in self.idle:
                self.idle.remove(pid)
            elif status != 0:
                self.orphan_rounds = _ORPHAN_ROUNDS
        if not self.orphan_rounds:
            return
        lost = descendants(os.getpid(), frozenset(self.monitors))
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
        # Truncated: out of descriptors here; closing the control socket is the answer.
        if fds and not flags & socket.MSG_CTRUNC:
            self._hand_over(fds)
        for fd in fds:
            os.close(fd)
        return True

    def _hand_over(self, fds: list[int]) -> None:
        """Give a request to a monitor without a command, or to a new one."""
        while self.idle or self._fork(fds):
            try:
                socket.send_fds(self.monitors[self.idle.pop()], [b"S"], fds)
            except OSError:
                continue  # it was killed; `_tend` forgets it
            return

    def _fork(self, held: Sequence[int] = ()) -> bool:
        """Fork a monitor; False when that cannot be.

        Args:
            held: Descriptors of the request that waits for it: the monitor gets its own by message,
                and the first one is told if there is no monitor.
        """
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError as error:
            if held:
                with socket.socket(fileno=os.dup(held[0])) as sock:
                    failure = {"step": "fork", "errno": error.errno, "what": "a monitor process"}
                    Lines(sock).write({"ev": "failed", **failure})
            return False
        if pid == 0:
            ours.close()
            for fd in held:
                os.close(fd)
            self._become_monitor(theirs)
        theirs.close()
        ours.setblocking(False)
        self.monitors[pid] = ours
        self.by_fd[ours.fileno()] = pid
        self.poll.register(ours, select.POLLIN)
        self.idle.append(pid)
        return True

    def _become_monitor(self, sock: socket.socket) -> None:
        status = 1
        try:
            self.wakeup.close()
            self.sock.close()
            for other in self.monitors.values():
                other.close()
            wakeup = Wakeup()
            while fds := receive_fds(sock)[1]:
                monitor = Monitor(self.platform, wakeup)
                lines = Lines(socket.socket(fileno=fds[0]))
                monitor.run(lines, fds[1:])
                lines.sock.close()
                if not monitor.spotless:
                    break
                sock.send(b"I")
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
