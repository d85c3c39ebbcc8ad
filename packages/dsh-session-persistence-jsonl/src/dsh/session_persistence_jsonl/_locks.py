"""One writer a session, among all processes of this machine."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from filelock import BaseFileLock

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

    __slots__ = ("_folder", "_lock")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: BaseFileLock | None = None

    def take(self) -> bool:
        """Take it, if nobody has it.

        Raises:
            OSError: The folder cannot be written.
        """
        # a program that only lists and reads does without it
        from filelock import FileLock, Timeout

        # calls come from one worker thread and from another
        lock = FileLock(self._folder / LOCK, mode=0o600, thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        self._lock = lock
        # the lock is what counts, so a full disk does not matter here
        with suppress(OSError):
            text = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
            file = os.open(self._folder / HOLDER, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as out:
                out.write(text)
        return True

    def give_up(self) -> None:
        """Let others take it, if it is taken."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                (self._folder / HOLDER).unlink()
            lock.release()

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
