"""Where a user's and a project's files are, and how private files are read and written."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from dsh.loader.errors import StateFileError

FILE_NAME: Final = "dsh.yaml"
"""Name of a deployment file, in the user's folder and in a project."""

MAX_FILE_BYTES: Final = 1024 * 1024
"""A deployment, trust or key file larger than this is refused unread."""


def user_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the user's own folder: `DSH_HOME`, or `~/.dsh`; `None` where no home is known.

    The folder may not exist; nothing is created.
    """
    environ = os.environ if environ is None else environ
    named = environ.get("DSH_HOME")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    home = environ.get("HOME") or os.path.expanduser("~")
    return Path(home, ".dsh") if os.path.isabs(home) else None


def state_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder of what dsh remembers: `$DSH_HOME/state`, or the platform's state folder.

    The folder may not exist; nothing is created.
    """
    environ = os.environ if environ is None else environ
    if environ.get("DSH_HOME"):
        folder = user_folder(environ)
        return None if folder is None else folder / "state"
    if user_folder(environ) is None:
        return None
    # a quarter of the time budget of a start; only trust questions need it
    from platformdirs import user_state_path

    return user_state_path("dsh", appauthor=False)


def find_project_file(cwd: Path) -> Path | None:
    """Return the nearest `dsh.yaml` from `cwd` upwards to the repository root.

    Outside a repository only `cwd` itself is looked at, so a file that a stranger left in `/tmp`
    or another shared ancestor is never picked up.
    """
    here = Path(os.path.abspath(cwd))
    found: Path | None = None
    for folder in (here, *here.parents):
        candidate = folder / FILE_NAME
        if found is None and os.path.lexists(candidate):
            found = candidate
        if os.path.lexists(folder / ".git"):
            return found
    own = here / FILE_NAME
    return own if found == own else None


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
        _make_folder(path.parent)
        _write_new(temporary, data)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # the reason above is the one worth telling
            temporary.unlink(missing_ok=True)
        raise StateFileError(f"{path}: cannot be written: {error.strerror}") from error


_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)


def _make_folder(folder: Path) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def _write_new(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
