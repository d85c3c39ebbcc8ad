"""What the system says, as errors of the seam that name the path and the way out."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dsh.session_persistence import PersistenceError

__all__ = ["as_storage_errors", "storage_error"]

_HINTS: Final = {
    errno.ENOSPC: "the disk is full: make room, then try again",
    errno.EDQUOT: "your quota of the disk is used up: make room, then try again",
    errno.EROFS: "the disk can only be read: set `folder` to a place that can be written",
    errno.EACCES: "give yourself access to it, or set `folder` to another place",
    errno.EPERM: "give yourself access to it, or set `folder` to another place",
    errno.ENOTDIR: "a file stands where a folder is needed: move it, or set `folder`",
    errno.EEXIST: "a file stands where a folder is needed: move it, or set `folder`",
    errno.EISDIR: "a folder stands where a file is needed: move it away",
    errno.ENAMETOOLONG: "set `folder` to a shorter path",
    errno.ELOOP: "links in the path lead in a circle: mend them, or set `folder`",
    errno.EIO: "the disk failed: look at the system's log, and make a copy while you can",
    errno.EMFILE: "too many files are open: close some sessions, or raise `ulimit -n`",
    errno.ENFILE: "too many files are open on this machine",
}


def storage_error(error: OSError, path: Path, attempted: str) -> PersistenceError:
    """Return the error of the seam for one of the system.

    Args:
        error: What the system said.
        path: What it was said about.
        attempted: What was tried, as a participle: `written`, `read`.
    """
    reason = error.strerror or str(error) or type(error).__name__
    return PersistenceError(
        f"the session store could not be {attempted}: {reason}",
        hint=_HINTS.get(error.errno or 0),
        location=str(path),
    )


@contextmanager
def as_storage_errors(path: Path, attempted: str) -> Generator[None]:
    """Turn errors of the system inside into errors of the seam."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path, attempted) from error
