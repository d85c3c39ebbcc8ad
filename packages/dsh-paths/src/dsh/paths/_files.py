"""Private files, written so that a crash leaves the old content or the new one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from dsh.paths.errors import StateFileError

__all__ = ["MAX_FILE_BYTES", "make_folder", "read_private", "sync_folder", "write_private"]

MAX_FILE_BYTES: Final = 1024 * 1024
"""A settings, trust or key file larger than this is refused unread."""


def read_private(path: Path, *, limit: int = MAX_FILE_BYTES) -> bytes | None:
    """Return the bytes of a regular file, or `None` where there is none.

    Pipes and devices are refused instead of waited for.

    Raises:
        StateFileError: It is no regular file, unreadable or larger than `limit` bytes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StateFileError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)  # `fdopen` refuses a folder, without its name
        raise StateFileError(f"{path}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise StateFileError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise StateFileError(f"{path}: larger than {limit} bytes")
    return data


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step, readable by its owner alone (0600, new folders 0700).

    A crash or a full disk leaves the old content.

    Raises:
        StateFileError: The file could not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make_folder(path.parent)
        _write_new(temporary, data)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # the reason above is the one worth telling
            temporary.unlink(missing_ok=True)
        raise StateFileError(f"{path}: cannot be written: {error.strerror}") from error


def make_folder(folder: Path) -> bool:
    """Make a folder that its owner alone may enter (0700), with those above it that are missing.

    What exists stays as it is. Each new folder is durable when this returns.

    Returns:
        Whether this call made it.

    Raises:
        OSError: It cannot be made, for example because a file has its name.
    """
    missing: list[Path] = []
    for path in (folder, *folder.parents):
        if path.is_dir():
            break
        missing.append(path)
    made = False
    for path in reversed(missing):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if not path.is_dir():
                raise
            made = False
        else:
            made = True
            try:
                sync_folder(path.parent)
            except OSError:
                with suppress(OSError):  # the next call would take it for durable
                    path.rmdir()
                raise
    return made


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; does nothing on a system that cannot do that.

    Raises:
        OSError: The folder cannot be opened, or its disk failed.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)


def _write_new(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
