"""The database as a file: whose it is, who may read it, and how one is made."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from dsh.paths import make_folder, sync_folder
from dsh.session_persistence import PersistenceError

__all__ = ["FileId", "check_file", "file_id", "make_file", "make_private"]

FileId = tuple[int, int]
"""Device and number of a file."""

# The database itself must never be opened here except by SQLite: its locks belong to the process,
# and closing any descriptor of the file drops them all.


def check_file(file: Path) -> bool:
    """Return whether the database exists, and refuse what should not be opened.

    Raises:
        PersistenceError: It is a link, no regular file, or another person's.
    """
    for path in (file, *_companions(file)):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            raise PersistenceError(
                "this is a symbolic link, which is not followed",
                hint="name the file it points to",
                location=str(path),
            )
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise PersistenceError(
                f"this is {kind}, not a database", hint="name another file", location=str(path)
            )
        if sys.platform != "win32" and found.st_uid != os.geteuid():
            raise PersistenceError(
                f"this belongs to user {found.st_uid}, not to you",
                hint="take it over with chown, or name a file of your own",
                location=str(path),
            )
    return file.exists()


def make_file(file: Path) -> None:
    """Make an empty file that only its owner may read, with the folders above it."""
    make_folder(file.parent)
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | _CLOEXEC, 0o600)
    os.close(descriptor)
    sync_folder(file.parent)


def make_private(file: Path) -> None:
    """Take from others what they may do with the database and the files beside it.

    SQLite gives a new file beside the database the mode of the database.
    """
    if sys.platform == "win32":
        return
    for path in (file, *_companions(file)):
        try:
            if stat.S_IMODE(path.lstat().st_mode) & 0o177:
                path.chmod(0o600)
        except FileNotFoundError:
            continue


def file_id(file: Path) -> FileId | None:
    """Return which file has this name right now; None if none has."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _companions(file: Path) -> tuple[Path, ...]:
    return tuple(file.with_name(file.name + suffix) for suffix in ("-wal", "-shm", "-journal"))


_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
