"""The one helper process of this harness: started when first needed, stopped when last used."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import anyio

from dsh.process._spill import process_root
from dsh.process.errors import (
    ProcessError,
    SpawnError,
    SupervisorClosedError,
    UnsupportedPlatformError,
)

__all__ = ["Helper", "acquire", "release"]

# A stand-in for the namespace package: the helper's modules are found (and their bytecode cached)
# without running this wheel's `__init__`, whose imports the isolated interpreter does not have.
_BOOT: Final = (
    "import sys\n"
    "for name, path in (('dsh', []), ('dsh.process', [sys.argv[1]])):\n"
    "    module = sys.modules[name] = type(sys)(name)\n"
    "    module.__path__ = path\n"
    "from dsh.process._helper._root import main\n"
    "main(sys.argv[2:])\n"
)
_STOP_SECONDS: Final = 15.0
_BUSY: Final = (errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ETOOMANYREFS)
_DEAD: Final = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)


class Helper:
    """The helper process as the harness sees it; shared by every supervisor of the process.

    Nothing here belongs to an event loop: requests are single non-blocking `sendmsg` calls under
    a lock, and all answers come through the commands' own sockets.
    """

    def __init__(self, *, portable: bool) -> None:
        self.portable = portable
        self.owner = os.getpid()
        self.users = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the helper, or None while it is not running."""
        return None if self._process is None else self._process.pid

    async def request(self, fds: list[int]) -> None:
        """Have a monitor forked that owns `fds`: its control socket, then the child's streams.

        Raises:
            SpawnError: The helper cannot be started.
            SupervisorClosedError: It was stopped meanwhile.
        """
        for _ in range(2):
            if self._stopped:
                raise SupervisorClosedError("the supervisor was closed while a child was starting")
            with self._lock:
                sock = self._sock or self._start()
            while True:
                try:
                    with self._lock:
                        socket.send_fds(sock, [b"S"], fds)
                except OSError as error:
                    if error.errno in _BUSY:
                        await anyio.sleep(0.001)
                        continue
                    if error.errno not in _DEAD and self._sock is sock:
                        raise SpawnError.from_report(
                            "send", error.errno or errno.EIO, "a command"
                        ) from error
                    break
                else:
                    return
            self._discard(sock)  # it was killed while idle: a new one takes over
        raise SpawnError(self._explain("the helper process of dsh-process does not stay up"))

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        reading, writing = socket.socketpair()
        ours.setblocking(False)
        reading.setblocking(False)
        writing.setblocking(False)
        mode = "portable" if self.portable else "full"
        arguments = [str(Path(__file__).parent), str(theirs.fileno()), str(process_root()), mode]
        try:
            self._process = subprocess.Popen(
                [_interpreter(), "-I", "-S", "-X", "utf8", "-c", _BOOT, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=writing.fileno(),
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            reading.close()
            raise SpawnError(
                f"cannot start the helper process: {error.strerror}",
                hint="dsh-process runs a Python interpreter of its own to watch over children",
                number=error.errno,
                filename=str(error.filename),
            ) from error
        finally:
            theirs.close()
            writing.close()
        if self._complaints is not None:
            self._complaints.close()
        self._sock, self._complaints = ours, reading
        return ours

    def _discard(self, sock: socket.socket) -> None:
        """Forget a helper that is dead or was stopped, and reap it."""
        with self._lock:
            if self._sock is not sock:
                return
            self._sock = None
            process, self._process = self._process, None
        sock.close()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)

    def _explain(self, message: str) -> str:
        """Add the last line of what the helper wrote to stderr, if it wrote anything."""
        text = b""
        if self._complaints is not None:
            with contextlib.suppress(OSError):
                text = self._complaints.recv(65536)
        lines = text.decode("utf-8", "replace").strip().splitlines()
        return f"{message}: {lines[-1]}" if lines else message

    async def stop(self) -> None:
        """End the helper and wait until it is gone; it first waits for its monitors."""
        self._stopped = True
        sock, process = self._sock, self._process
        if sock is not None and process is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            with anyio.move_on_after(_STOP_SECONDS) as scope:
                await _until_eof(sock)
            if scope.cancelled_caught:
                process.send_signal(signal.SIGKILL)
                process.wait()
            self._discard(sock)
        if self._complaints is not None:
            self._complaints.close()
            self._complaints = None


async def _until_eof(sock: socket.socket) -> None:
    while True:
        try:
            if not sock.recv(64):
                return
        except BlockingIOError:
            await anyio.wait_readable(sock)
        except OSError:
            return


def _interpreter() -> str:
    found = sys.executable or shutil.which("python3")
    if not found:
        raise SpawnError(
            "cannot start the helper process: no Python interpreter is known",
            code=SpawnError.PROGRAM_NOT_FOUND,
            hint="this program seems to be frozen; put python3 on PATH",
        )
    return found


_helpers: dict[bool, Helper] = {}


def acquire(*, portable: bool) -> Helper:
    """Join the users of this process's helper; it is started by its first request.

    Raises:
        UnsupportedPlatformError: Not on Linux or macOS.
    """
    if os.name != "posix":
        raise UnsupportedPlatformError(
            f"dsh-process cannot start children on {sys.platform}",
            hint="use Linux or macOS, or the Windows Subsystem for Linux",
        )
    helper = _helpers.get(portable)
    if helper is None or helper.owner != os.getpid():
        helper = _helpers[portable] = Helper(portable=portable)
    helper.users += 1
    return helper


async def release(helper: Helper) -> None:
    """Leave; the last user stops the helper.

    Raises:
        ProcessError: Released more often than acquired.
    """
    if helper.users <= 0:
        raise ProcessError("the helper was released more often than it was acquired")
    helper.users -= 1
    if helper.users == 0:
        _helpers.pop(helper.portable, None)
        await helper.stop()
