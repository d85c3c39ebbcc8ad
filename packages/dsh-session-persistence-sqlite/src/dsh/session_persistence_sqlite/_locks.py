"""Which process writes which session."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsh.paths import make_folder
from dsh.session_persistence import PersistenceError, SessionInUse

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["Locks", "file_stem"]

_OPENING: Final = "open.lock"
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def file_stem(session_id: str) -> str:
    """Return a file name for a session id, without suffix; different ids get different names.

    A plain id stays readable. Any other is hashed: it may be long, contain anything, or differ
    from another one by case alone, which some file systems ignore.
    """
    if _PLAIN.fullmatch(session_id):
        return f"id-{session_id}"
    return f"hash-{hashlib.sha256(session_id.encode(errors='surrogatepass')).hexdigest()[:40]}"


class Locks:
    """Locks of the operating system, one file per session: a process that dies lets go of all.

    A row in the database could not do this: whoever wrote it may be gone, and nobody can tell
    for sure. A file beside each lock that is held says who holds it; for people only. It cannot
    be the lock itself, which some versions of filelock empty when they try to take it.

    Args:
        folder: Where the lock files are; made when it is first needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, BaseFileLock] = {}

    def acquire(self, session_id: str) -> bool:
        """Take the lock of a session.

        Returns:
            Whether this call took it; False if it was held here already.

        Raises:
            SessionInUse: Another process has it, or another store of this one.
        """
        if session_id in self._held:
            return False
        from filelock import Timeout

        path = self._path(session_id)
        make_folder(self._folder)
        lock = _lock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise SessionInUse(
                f"session {session_id!r} is being written by {self._owner(session_id)}",
                hint="end it there, or wait until it has ended",
                location=str(path),
            ) from error
        self._held[session_id] = lock
        with suppress(OSError):  # it only helps whoever is refused
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with os.fdopen(
                os.open(self._note(session_id), flags, 0o600), "w", encoding="utf-8"
            ) as note:
                note.write(f"process {os.getpid()} on {socket.gethostname()}")
        return True

    def release(self, session_id: str) -> None:
        """Let go of a session; does nothing if it is not held."""
        lock = self._held.pop(session_id, None)
        if lock is not None:
            with suppress(OSError):
                self._note(session_id).unlink()
            lock.release()

    def release_all(self) -> None:
        """Let go of everything."""
        for session_id in tuple(self._held):
            self.release(session_id)

    def forget(self, session_id: str) -> None:
        """Delete the lock file of a session that is gone; the lock has to be held."""
        with suppress(OSError):  # an empty file is left over, no more
            self._path(session_id).unlink(missing_ok=True)

    def while_opening(self, timeout_s: float) -> BaseFileLock:
        """Return a lock, taken, that keeps two processes from making one database at once.

        Raises:
            PersistenceError: Another process takes too long.
        """
        from filelock import Timeout

        make_folder(self._folder)
        lock = _lock(self._folder / _OPENING)
        try:
            lock.acquire(timeout=timeout_s, poll_interval=0.01)
        except Timeout as error:
            raise PersistenceError(
                "another process has been opening the database for too long",
                hint="end it, or raise busy_timeout_ms",
                location=lock.lock_file,
            ) from error
        return lock

    def tidy(self) -> None:
        """Take the folder away if no session ever had a lock in it."""
        with suppress(OSError):
            if [path.name for path in self._folder.iterdir()] == [_OPENING]:
                (self._folder / _OPENING).unlink()
                self._folder.rmdir()

    def _path(self, session_id: str) -> Path:
        return self._folder / f"{file_stem(session_id)}.lock"

    def _note(self, session_id: str) -> Path:
        return self._folder / f"{file_stem(session_id)}.holder"

    def _owner(self, session_id: str) -> str:
        try:
            told = self._note(session_id).read_text(encoding="utf-8", errors="replace")
        except OSError:
            told = ""
        return told.strip()[:200] or "another process"


def _lock(path: Path) -> BaseFileLock:
    # importing the wheel, to look at its settings for example, does without it
    from filelock import FileLock

    # taken and let go of by different worker threads
    return FileLock(path, mode=0o600, thread_local=False)
