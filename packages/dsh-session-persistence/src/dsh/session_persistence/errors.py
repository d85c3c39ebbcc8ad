"""Errors of session stores.

PersistenceError          STORAGE_FAILED
├── StoredSessionNotFound SESSION_NOT_FOUND
├── StoredSessionExists   SESSION_ALREADY_EXISTS
├── SessionInUse          SESSION_IN_USE
├── SessionCorrupt        SESSION_CORRUPT
├── FormatUnsupported     FORMAT_UNSUPPORTED
├── AppendRefused         NOT_CONTIGUOUS, NOT_JSON, MALFORMED_HEADER
└── RawUnsupported        RAW_UNSUPPORTED
"""

from __future__ import annotations

from typing import Final

from dsh.core import DshError, NotJsonError
from dsh.session.errors import ForkError, LiveSessionError, SessionFormatError

__all__ = [
    "AppendRefused",
    "FormatUnsupported",
    "PersistenceError",
    "RawUnsupported",
    "SessionCorrupt",
    "SessionInUse",
    "StoredSessionExists",
    "StoredSessionNotFound",
]


class PersistenceError(DshError):
    """A store could not do what was asked; used as it is when reading or writing failed.

    Args:
        message: What went wrong and for which session.
        code: Stable identifier; subclasses set it.
        hint: What to do about it.
        location: Where the session is kept, if the store can say so.
    """

    code = "STORAGE_FAILED"
    session_id: str | None = None
    """The session it is about, where it was looked up by something else than its id."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        location: str | None = None,
    ) -> None:
        self.location = location
        where = message if location is None else f"{message} ({location})"
        super().__init__(where, code=code, hint=hint)


class StoredSessionNotFound(PersistenceError, LookupError):
    """No stored session has this id."""

    code = ForkError.SESSION_NOT_FOUND

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"no stored session has the id {session_id!r}", hint="list the sessions for their ids"
        )


class StoredSessionExists(PersistenceError):
    """The id is stored or reserved already."""

    code = LiveSessionError.SESSION_ALREADY_EXISTS

    def __init__(self, session_id: str, location: str | None = None) -> None:
        super().__init__(
            f"session {session_id!r} is stored or reserved already",
            hint="resume it, or choose another id",
            location=location,
        )


class SessionInUse(PersistenceError):
    """A live session owns the id, in this process or in another one."""

    code = "SESSION_IN_USE"


class SessionCorrupt(PersistenceError):
    """Something that was stored completely is damaged; nothing was changed.

    Args:
        message: What is damaged.
        hint: What to do where salvaging is no help; left out where it is.
        location: Where the session is kept, if the store can say so.
    """

    code = "SESSION_CORRUPT"

    def __init__(
        self, message: str, *, hint: str | None = None, location: str | None = None
    ) -> None:
        self.salvageable = hint is None
        """Whether `salvage` is what helps."""
        super().__init__(message, hint=hint or _SALVAGE, location=location)


_SALVAGE: Final = "salvage it: that keeps a copy and everything that stands before the damage"


class FormatUnsupported(PersistenceError):
    """Another version wrote the session; it is left as it is."""

    code = "FORMAT_UNSUPPORTED"


class AppendRefused(PersistenceError, ValueError):
    """A header or a batch cannot be stored; nothing of it was."""

    code = "NOT_CONTIGUOUS"
    NOT_CONTIGUOUS = "NOT_CONTIGUOUS"
    """The first event is not the next one of the log, or there is a gap inside."""
    NOT_JSON = NotJsonError.code
    """A payload would not survive a JSON round trip."""
    MALFORMED_HEADER = SessionFormatError.MALFORMED_HEADER
    """The header is not one that could be read again."""


class RawUnsupported(PersistenceError):
    """This store keeps nothing that could be exported as text."""

    code = "RAW_UNSUPPORTED"
