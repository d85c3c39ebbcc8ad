"""One writer a session, among all processes of this machine."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

__all__ = ["HOLDER", "LOCK", "SessionLock"]

LOCK: Final = "lock"
"""Name of the lock in a session's folder. The system drops a lock with its process."""

HOLDER: Final = "lock-holder.json"
"""Name of the file beside it that says who holds the lock; for people, and only if it is held."""


class SessionLock:
    """The right to write the session in a folder.

    Args:
        folder: The session's folder, which exists.
    """

    __slots__ = ("_folder", "_release")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._release: Callable[[], None] | None = None

    def take(self) -> bool:
        """Take it, if nobody has it.

        Raises:
            OSError: The folder cannot be written.
        """
        release = _locked(self._folder / LOCK)
        if release is None:
            return False
        self._release = release
        # the lock is what counts, so a full disk does not matter here
        with suppress(OSError):
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
            file = os.open(self._folder / HOLDER, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as out:
                out.write(text)
        return True

    def give_up(self) -> None:
        """Let others take it, if it is taken."""
        release, self._release = self._release, None
        if release is not None:
            with suppress(OSError):
                (self._folder / HOLDER).unlink()
            release()

    def holder(self) -> str | None:
        """Say who has it, as far as that is known."""
        try:
            told: Any = json.loads((self._folder / HOLDER).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(told, dict):
            return None
        facts = cast("dict[str, object]", told)
        if facts.get("pid") == os.getpid() and facts.get("host") == socket.gethostname():
            return "another store of this process"
        return f"process {facts.get('pid')} on {facts.get('host')}"


if sys.platform == "win32":

    def _locked(path: Path) -> Callable[[], None] | None:
        from filelock import FileLock, Timeout

        # calls come from one worker thread and from another
        lock = FileLock(path, mode=0o600, thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        return lock.release

else:
    import fcntl

    _FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

    def _locked(path: Path) -> Callable[[], None] | None:
        """Lock a file, and return what lets go of it; None if somebody has it.

        It is the lock that filelock takes, without what that loads: importing it takes as long
        as all else that a first write does.
        """
        while True:
            file = os.open(path, _FLAGS, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file).st_nlink:
                    return partial(os.close, file)
            except BlockingIOError:
                os.close(file)
                return None
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # its folder was deleted meanwhile: what is locked is no longer there
