"""What SQLite and the system report, told to a person: which file, what, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dsh.session_persistence import FormatUnsupported, PersistenceError, SessionCorrupt

__all__ = ["as_storage_errors", "is_damage", "located"]

_TOLD: Final[dict[int, tuple[str, str]]] = {
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space; nothing that was stored is lost"),
    sqlite3.SQLITE_BUSY: (
        "another process has kept the database locked for too long",
        "end the program that holds it, or raise busy_timeout_ms",
    ),
    sqlite3.SQLITE_READONLY: (
        "the database cannot be written",
        "make the file and its folder writable for you, or name another file",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the database, or a file beside it, cannot be opened",
        "make the file and its folder readable and writable for you, or name another file",
    ),
    sqlite3.SQLITE_PERM: ("access is not permitted", "look at the modes of the file"),
    sqlite3.SQLITE_IOERR: ("reading or writing the disk failed", "look at the disk"),
}
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether SQLite found the file itself damaged."""
    return _code(error) in _DAMAGE


@contextmanager
def as_storage_errors(file: Path, failure: str) -> Generator[None]:
    """Turn errors of SQLite and of the system into ours, and name the file in ours.

    Args:
        file: The database.
        failure: What could not be done, as a clause: `session 's' could not be written`.
    """
    try:
        yield
    except (SessionCorrupt, FormatUnsupported) as error:
        if error.location is not None:
            raise
        raise located(error, file) from error
    except sqlite3.Error as error:
        raise _told(error, file, failure) from error
    except UnicodeDecodeError as error:
        # SQLite's message quotes the damaged text, and Python cannot read it
        raise _damaged(f"{failure}: the database is damaged: its text is no UTF-8", file) from error
    except OSError as error:
        raise PersistenceError(
            f"{failure}: {error.strerror or error}",
            location=str(error.filename or file),
        ) from error


def _told(error: sqlite3.Error, file: Path, failure: str) -> PersistenceError:
    if is_damage(error):
        return _damaged(f"{failure}: the database is damaged: {error}", file)
    what, hint = _TOLD.get(_code(error), (str(error), None))
    name = getattr(error, "sqlite_errorname", None)
    return PersistenceError(
        f"{failure}: {what}" + (f" ({name})" if name else ""),
        hint=hint,
        location=str(file),
    )


def _damaged(message: str, file: Path) -> SessionCorrupt:
    return SessionCorrupt(
        message,
        hint="keep a copy of the file; `sqlite3 FILE .recover` gets out what is readable",
        location=str(file),
    )


def _code(error: sqlite3.Error) -> int:
    # the low byte is the kind, the rest of it a detail
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def located(error: PersistenceError, file: Path) -> PersistenceError:
    """Return an error that says which file it is about."""
    helps = isinstance(error, SessionCorrupt) and error.salvageable
    return type(error)(error.message, hint=None if helps else error.hint, location=str(file))
