"""Errors of the session log, its loader and the live sessions.

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
├── LiveSessionError    SESSION_ALREADY_EXISTS, SESSION_NOT_LIVE, CWD_NOT_ABSOLUTE,
│                        SESSION_ATTACHED, ALREADY_ANNOUNCED
├── ForkError            SESSION_ALREADY_EXISTS, SESSION_NOT_FOUND, SESSION_NOT_LIVE,
│                        INVALID_BOUNDARY, OPEN_TURN
└── RebuildError         STEP_NOT_FOUND, NO_REQUEST

A payload that is no lossless JSON raises the kernel's `NotJsonError` (NOT_JSON, JSON_TOO_DEEP).
"""

from __future__ import annotations

from dsh.core import DshError

__all__ = [
    "EnclosureError",
    "EventRefusedError",
    "ForkError",
    "HeaderFoldError",
    "LiveSessionError",
    "RebuildError",
    "SeedError",
    "SessionError",
    "SessionFormatError",
    "SessionTypeError",
    "SurfaceError",
]


class SessionError(DshError):
    """Anything a session, its loader or the service `sessions` refuses."""

    code = "SESSION"


class EventRefusedError(SessionError):
    """`append` refused an event; the log is unchanged."""

    code = "EVENT_REFUSED"
    SURFACE_OP_MISSING = "SURFACE_OP_MISSING"
    """The type stands in the history, and no surface operation was given."""
    SURFACE_OP_UNEXPECTED = "SURFACE_OP_UNEXPECTED"
    """A surface operation was given for a type that is log-only."""
    BAD_PROVENANCE = "BAD_PROVENANCE"
    """A source is no sequence number of an earlier event."""
    REENTRANT_APPEND = "REENTRANT_APPEND"
    """An observer or validator appended while an event was being committed."""


class EnclosureError(SessionError):
    """An event does not stand where its turn or step is open; the log is unchanged."""

    code = "NOT_ENCLOSED"
    NOT_ENCLOSED = "NOT_ENCLOSED"
    """The event stands outside of a turn."""
    TURN_MISMATCH = "TURN_MISMATCH"
    """The event names another turn than the open or the next one."""
    STEP_MISMATCH = "STEP_MISMATCH"
    """The event names another step than the open or the next one."""


class SurfaceError(SessionError):
    """A replace names no range of the surface, or a surface cannot be read."""

    code = "CORRUPT_SURFACE"
    REPLACE_START_NOT_FOUND = "REPLACE_START_NOT_FOUND"
    """The first event of the range does not stand on the surface."""
    REPLACE_END_NOT_FOUND = "REPLACE_END_NOT_FOUND"
    """The last event of the range does not stand on the surface."""
    REPLACE_REVERSED = "REPLACE_REVERSED"
    """The range ends before it starts."""
    CORRUPT_SURFACE = "CORRUPT_SURFACE"
    """A tool result stands before its call."""


class HeaderFoldError(SessionError):
    """A request-header delta stands before any snapshot, or does not fit the one before it."""

    code = "CORRUPT_HEADER"


class SeedError(SessionError):
    """A seed log cannot start a session; the message names the index, the seq or the type."""

    code = "SEED"
    SEED_GAP = "SEED_GAP"
    """The sequence numbers do not count from 0 without gaps."""
    SEED_NOT_JSON = "SEED_NOT_JSON"
    """A payload would not survive a JSON round trip."""
    SEED_SURFACE_OP = "SEED_SURFACE_OP"
    """An event has a surface operation that its type does not take, or lacks one."""
    SEED_SURFACE = "SEED_SURFACE"
    """A surface operation does not fit the surface before it."""


class SessionFormatError(SessionError):
    """A stored header or event is not in a form that this version can read without losing it."""

    code = "FORMAT"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    """Another version wrote the session."""
    UNKNOWN_SURFACE_TYPE = "UNKNOWN_SURFACE_TYPE"
    """A type that stands in the history is declared by no installed wheel."""
    MALFORMED_EVENT = "MALFORMED_EVENT"
    """An event lacks something, or holds what does not fit."""
    MALFORMED_HEADER = "MALFORMED_HEADER"
    """The header lacks something, or holds what does not fit."""


class SessionTypeError(SessionError, TypeError):
    """An event type is declared wrongly or declared twice."""

    code = "BAD_EVENT_TYPE"
    BAD_EVENT_TYPE = "BAD_EVENT_TYPE"
    """The name is not `family/name` in lower case."""
    DUPLICATE_EVENT_TYPE = "DUPLICATE_EVENT_TYPE"
    """Another live class has the type."""


class LiveSessionError(SessionError):
    """The service `sessions` cannot list, announce or flush this session."""

    code = "LIVE_SESSION"
    SESSION_ALREADY_EXISTS = "SESSION_ALREADY_EXISTS"
    """A live session has the id."""
    SESSION_NOT_LIVE = "SESSION_NOT_LIVE"
    """The session is not the one that is live under its id."""
    CWD_NOT_ABSOLUTE = "CWD_NOT_ABSOLUTE"
    """The working directory is not an absolute path."""
    SESSION_ATTACHED = "SESSION_ATTACHED"
    """The session is listed already, here or by another service."""
    ALREADY_ANNOUNCED = "ALREADY_ANNOUNCED"
    """`session/created` was emitted for it before."""


class ForkError(SessionError):
    """A fork was refused; no child was made."""

    code = "FORK"
    SESSION_ALREADY_EXISTS = LiveSessionError.SESSION_ALREADY_EXISTS
    """The child's id is taken."""
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    """No live session has the id to fork from."""
    SESSION_NOT_LIVE = LiveSessionError.SESSION_NOT_LIVE
    """The session to fork from is not the one that is live under its id."""
    INVALID_BOUNDARY = "INVALID_BOUNDARY"
    """The log to fork from has no event of this number."""
    OPEN_TURN = "OPEN_TURN"
    """The event at the boundary is no `turn/end`."""


class RebuildError(SessionError):
    """A log does not tell of the request that was asked for."""

    code = "REBUILD"
    STEP_NOT_FOUND = "STEP_NOT_FOUND"
    """The log has no such turn, or the turn no such step."""
    NO_REQUEST = "NO_REQUEST"
    """The step ended before its request was made."""
