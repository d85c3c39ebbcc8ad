"""Spill files: where the whole of a long output stays when memory only keeps its end."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["DEFAULT_TOTAL_BYTES", "SpillFile", "SpillStore", "process_root"]

DEFAULT_TOTAL_BYTES: Final = 1 << 30
"""Bytes all spill files of one store may hold together: 1 GiB."""

_root: tuple[int, Path] | None = None


def process_root() -> Path:
    """Name the directory under which this process keeps its spill files.

    It is only made when the first file is. The helper removes it when the process could not.
    """
    global _root
    if _root is None or _root[0] != os.getpid():
        name = f"dsh-{os.getpid()}-{secrets.token_hex(6)}"
        _root = (os.getpid(), Path(tempfile.gettempdir(), name))
    return _root[1]


class SpillFile:
    """One complete stream on disk: owner-only, created exclusively, never through a link."""

    def __init__(self, store: SpillStore, path: Path) -> None:
        self.path = path
        self.size = 0
        """Bytes written so far."""
        self._store = store
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(path, flags, 0o600)

    def write(self, data: bytes) -> None:
        """Append all of `data`.

        Raises:
            OSError: The disk is full or failing; `discard` is what is left to do.
        """
        rest = memoryview(data)
        while rest:
            written = os.write(self._fd, rest)
            rest = rest[written:]
            self.size += written
            self._store.used += written

    def close(self) -> None:
        """Close the file; idempotent.

        Raises:
            OSError: What was written did not reach the disk (late ENOSPC or EIO).
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def discard(self) -> None:
        """Close and remove the file; its room can be used by others."""
        with contextlib.suppress(OSError):
            self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
        self._store.used -= self.size
        self.size = 0


class SpillStore:
    """Hands out spill files in a private directory and removes all of them at the end.

    Args:
        directory: Where the store makes its own directory; a per-process one under the system's
            temporary directory where it is not given.
        max_total_bytes: Limit for all files together; a stream that would pass it is not kept.
    """

    def __init__(
        self, directory: Path | None = None, *, max_total_bytes: int = DEFAULT_TOTAL_BYTES
    ) -> None:
        self.max_total_bytes = max_total_bytes
        self.used = 0
        """Bytes all files hold now."""
        self._parent = directory
        self._directory: Path | None = None
        self._made = 0

    @property
    def directory(self) -> Path | None:
        """The store's own directory, or None before the first file."""
        return self._directory

    def create(self, stream: str) -> SpillFile:
        """Make the file for one stream.

        Args:
            stream: Goes into the file's name, e.g. `stdout`.

        Raises:
            OSError: The directory or the file cannot be made.
        """
        if self._directory is None:
            self._directory = self._make_directory()
        self._made += 1
        name = f"dsh-{os.getpid()}-{self._made}-{secrets.token_hex(6)}-{stream}.log"
        return SpillFile(self, self._directory / name)

    def _make_directory(self) -> Path:
        parent = self._parent
        if parent is None:
            parent = process_root()
            with contextlib.suppress(FileExistsError):
                parent.mkdir(mode=0o700)
        made = parent / f"spill-{secrets.token_hex(6)}"
        made.mkdir(mode=0o700, parents=self._parent is not None)
        return made

    def fits(self, count: int) -> bool:
        """Tell whether `count` more bytes stay within the total limit."""
        return self.used + count <= self.max_total_bytes

    def close(self) -> None:
        """Remove every file and the directory; safe to call twice."""
        directory, self._directory = self._directory, None
        if directory is None:
            return
        with contextlib.suppress(OSError):
            for path in directory.iterdir():
                with contextlib.suppress(OSError):
                    path.unlink()
            directory.rmdir()
        if self._parent is None:
            with contextlib.suppress(OSError):
                process_root().rmdir()  # only when no other store uses it
