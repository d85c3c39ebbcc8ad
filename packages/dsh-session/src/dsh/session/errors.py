"""Errors of the session log, its loader and the session store.

SessionError
├── EventRefusedError    SURFACE_OP_MISSING, SURFACE_OP_UNEXPECTED, BAD_PROVENANCE,
│                        REENTRANT_APPEND
├── EnclosureError       NOT_ENCLOSED, TURN_MISMATCH, STEP_MISMATCH
├── SurfaceError         REPLACE_START_NOT_FOUND, REPLACE_END_NOT_FOUND, REPLACE_REVERSED,
│                        CORRUPT_SURFACE
├── HeaderFoldError      CORRUPT_HEADER
├── SeedError            SEED_GAP, SEED_NOT_JSON, SEED_SURFACE_OP, SEED_SURFACE
├── SessionFormatError   UNSUPPORTED_VERSION, UNKNOWN_SURFACE_TYPE, MALFORMED_EVENT,
│                        MALFORMED_HEADER
├── SessionTypeError     DUPLICATE_EVENT_TYPE, BAD_EVENT_TYPE   (also a TypeError)
├── SessionStoreError    SESSION_ALREADY_EXISTS, SESSION_NOT_LIVE, CWD_NOT_ABSOLUTE,
│                        SESSION_ATTACHED, ALREADY_ANNOUNCED
└── ForkError            SESSION_ALREADY_EXISTS, SESSION_NOT_FOUND, SESSION_NOT_LIVE,
                         INVALID_BOUNDARY, OPEN_TURN

A payload that is no lossless JSON raises the kernel's `NotJsonError` (NOT_JSON, JSON_TOO_DEEP).
"""

from __future__ import annotations

from dsh.core import DshError

__all__ = [
    "EnclosureError",
    "EventRefusedError",
    "ForkError",
    "HeaderFoldError",
    "SeedError",
    "SessionError",
    "SessionFormatError",
    "SessionStoreError",
    "SessionTypeError",
    "SurfaceError",
]


class SessionError(DshError):
    """Anything a session, its loader or the store refuses."""

    code = "SESSION"


class EventRefusedError(SessionError):
    """`append` refused an event; the log is unchanged."""

    code = "EVENT_REFUSED"
    SURFACE_OP_MISSING = "SURFACE_OP_MISSING"
    SURFACE_OP_UNEXPECTED = "SURFACE_OP_UNEXPECTED"
    BAD_PROVENANCE = "BAD_PROVENANCE"
    REENTRANT_APPEND = "REENTRANT_APPEND"


class EnclosureError(SessionError):
    """An event does not stand where its turn or step is open; the log is unchanged."""

    code = "NOT_ENCLOSED"
    NOT_ENCLOSED = "NOT_ENCLOSED"
    TURN_MISMATCH = "TURN_MISMATCH"
    STEP_MISMATCH = "STEP_MISMATCH"


class SurfaceError(SessionError):
    """A replace names no range of the surface, or a surface cannot be read."""

    code = "CORRUPT_SURFACE"
    REPLACE_START_NOT_FOUND = "REPLACE_START_NOT_FOUND"
    REPLACE_END_NOT_FOUND = "REPLACE_END_NOT_FOUND"
    REPLACE_REVERSED = "REPLACE_REVERSED"
    CORRUPT_SURFACE = "CORRUPT_SURFACE"


class HeaderFoldError(SessionError):
    """A request-header delta stands before any snapshot, or does not fit the one before it."""

    code = "CORRUPT_HEADER"


class SeedError(SessionError):
    """A seed log cannot start a session; the message names the index, the seq or the type."""

    code = "SEED"
    SEED_GAP = "SEED_GAP"
    SEED_NOT_JSON = "SEED_NOT_JSON"
    SEED_SURFACE_OP = "SEED_SURFACE_OP"
    SEED_SURFACE = "SEED_SURFACE"


class SessionFormatError(SessionError):
    """A stored header or event is not in a form that this version can read without losing it."""

    code = "FORMAT"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    UNKNOWN_SURFACE_TYPE = "UNKNOWN_SURFACE_TYPE"
    MALFORMED_EVENT = "MALFORMED_EVENT"
    MALFORMED_HEADER = "MALFORMED_HEADER"


class SessionTypeError(SessionError, TypeError):
    """An event type is declared wrongly or declared twice."""

    code = "BAD_EVENT_TYPE"
    BAD_EVENT_TYPE = "BAD_EVENT_TYPE"
    DUPLICATE_EVENT_TYPE = "DUPLICATE_EVENT_TYPE"


class SessionStoreError(SessionError):
    """The store cannot list, announce or flush this session."""

    code = "SESSION_STORE"
    SESSION_ALREADY_EXISTS = "SESSION_ALREADY_EXISTS"
    SESSION_NOT_LIVE = "SESSION_NOT_LIVE"
    CWD_NOT_ABSOLUTE = "CWD_NOT_ABSOLUTE"
    SESSION_ATTACHED = "SESSION_ATTACHED"
    ALREADY_ANNOUNCED = "ALREADY_ANNOUNCED"


class ForkError(SessionError):
    """A fork was refused; no child was made."""

    code = "FORK"
    SESSION_ALREADY_EXISTS = "SESSION_ALREADY_EXISTS"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SESSION_NOT_LIVE = "SESSION_NOT_LIVE"
    INVALID_BOUNDARY = "INVALID_BOUNDARY"
    OPEN_TURN = "OPEN_TURN"
