"""What is done to the files of logs, so that each step is there as a whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dsh.paths import sync_folder
from dsh.session_persistence import PersistenceError
from dsh.session_persistence_jsonl._storage_errors import storage_error

__all__ = [
    "append",
    "delete_folder",
    "keep_aside",
    "publish",
    "read_stable",
    "replace",
    "revision_of",
    "tidy",
    "truncate",
]

_TRIES: Final = 8
"""So often a file that changes while it is read is read again."""

_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
_NO_LINKS: Final = {
    errno.EPERM,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.EXDEV,
    errno.EMLINK,
    errno.EINVAL,
}


def revision_of(found: os.stat_result) -> str:
    """Return what changes with the content of a file."""
    return f"{found.st_dev:x}-{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


def read_stable(path: Path) -> tuple[bytes, os.stat_result]:
    """Read a whole file as it was at one moment, with what the system says about it then.

    Raises:
        OSError: It cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        # opening a pipe would wait for somebody who writes
        raise OSError(errno.EINVAL, "it is no file", str(path))
    tries = 0
    while True:
        tries += 1
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            data = file.read(before.st_size)
        after = path.stat()
        same = (
            (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
            and before.st_size == after.st_size == len(data)
            and (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
        )
        # a log only grows, so the beginning of a busy one is as good as the whole
        if same or (tries >= _TRIES and len(data) == before.st_size):
            return data, before


def publish(path: Path, data: bytes) -> os.stat_result:
    """Write a new file: it is there complete and durable, or not at all.

    Raises:
        FileExistsError: There is one.
        OSError: It cannot be written; nothing is left behind.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        _write_new(temporary, data)
        _name(temporary, path)
        try:
            sync_folder(path.parent)
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
        return path.stat()
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def replace(path: Path, data: bytes) -> None:
    """Put another content in the place of a file, in one step.

    Raises:
        OSError: It cannot be written; the file is as it was.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        _write_new(temporary, data)
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def append(path: Path, data: bytes, size: int) -> os.stat_result:
    """Add to the end of a file, durably; if that fails the file is as it was.

    Args:
        path: The file.
        data: What to add.
        size: How long the file is.

    Raises:
        OSError: It cannot be written.
        PersistenceError: It could not be written, nor be brought back to what it was; the next
            attempt does that first.
    """
    with _opened(path) as descriptor:
        os.lseek(descriptor, size, os.SEEK_SET)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError as error:
            _roll_back(descriptor, size, path, error)
            raise
        return os.fstat(descriptor)


def truncate(path: Path, size: int) -> None:
    """Cut a file to a length, durably.

    Raises:
        OSError: It cannot be written.
    """
    with _opened(path) as descriptor:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)


def keep_aside(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Keep bytes in a new file `<stem>-<n><suffix>` of a folder, durably.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    number = 1
    while True:
        path = folder / f"{stem}-{number}{suffix}"
        try:
            publish(path, data)
        except FileExistsError:
            number += 1
        else:
            return path


def tidy(folder: Path) -> None:
    """Delete what processes that died in the middle of a step left in a folder."""
    for leftover in folder.glob("*.tmp"):
        with suppress(OSError):
            leftover.unlink()


def delete_folder(folder: Path) -> None:
    """Delete a folder with what is in it; for everybody else it goes in one step.

    Raises:
        OSError: It cannot be moved away; it is as it was.
    """
    doomed = folder.with_name(f".removed-{secrets.token_hex(6)}")
    folder.rename(doomed)
    with suppress(OSError):
        sync_folder(doomed.parent)
    # whatever cannot be deleted now is out of the way
    shutil.rmtree(doomed, ignore_errors=True)


@contextmanager
def _opened(path: Path) -> Generator[int]:
    descriptor = os.open(path, os.O_RDWR | _CLOEXEC | _BINARY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_new(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC | _BINARY
    descriptor = os.open(path, flags, 0o600)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _name(temporary: Path, path: Path) -> None:
    """Give a finished file its name, if nothing has that."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # no links here. The session's lock is held, so nobody gets between these two lines.
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        os.rename(temporary, path)


def _roll_back(descriptor: int, size: int, path: Path, error: OSError) -> None:
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    except OSError as second:
        failed = storage_error(error, path, "written")
        raise PersistenceError(
            f"{failed.message}; and what was written could not be taken back: {second.strerror}",
            hint=failed.hint,
        ) from error
