"""What the helper uses of the operating system beyond plain POSIX."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

__all__ = ["Platform", "Wakeup", "reap"]

_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36


class Platform:
    """Child subreaper and a handle on the harness, where the system has them.

    Args:
        portable: Use neither, as on a system that has none.
    """

    def __init__(self, *, portable: bool) -> None:
        self.harness = -1
        """A pidfd of the process that started the helper, or -1."""
        self.altered_signals = _altered_signals()
        """Signals a child must get back with their default action."""
        self._prctl: Any = None
        if portable or not sys.platform.startswith("linux"):
            return
        import ctypes

        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        parent = os.getppid()
        try:
            self.harness = os.pidfd_open(parent)
        except OSError:
            return  # an old kernel or a strict filter: the control socket is enough
        if os.getppid() != parent:
            os.close(self.harness)
            self.harness = -1

    def adopt(self, name: bytes) -> bool:
        """Become a child subreaper under a name `ps` shows; False where there is none."""
        if self._prctl is None:
            return False
        self._prctl(_PR_SET_NAME, name, 0, 0, 0)
        return bool(self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def _altered_signals() -> list[int]:
    """Signals that are ignored or handled here, by this program or by inheritance."""
    untouchable = (signal.SIGKILL, signal.SIGSTOP)
    found = {int(signal.SIGCHLD)}
    for number in signal.valid_signals():
        if number not in untouchable and signal.getsignal(number) != signal.SIG_DFL:
            found.add(int(number))
    return sorted(found)


class Wakeup:
    """A pipe that becomes readable when a child changes state."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self._writing, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        try:
            while os.read(self.reading, 4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptors back; a forked monitor makes its own."""
        signal.set_wakeup_fd(-1)
        os.close(self.reading)
        os.close(self._writing)


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Collect every child that ended.

    Returns:
        The pids with their wait statuses, and whether no child is left at all.
    """
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended.append((pid, status))
