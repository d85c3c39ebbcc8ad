"""What a session store hands out."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsh.session import SessionEvent, SessionHeader
from dsh.session_persistence.errors import PersistenceError

__all__ = [
    "RawArtifact",
    "SessionSnapshot",
    "SessionSummary",
    "StoredSession",
    "UnreadableSession",
]


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as read: balanced, so that an agent can go on from it."""

    header: SessionHeader
    """What is known of the session besides its events."""
    events: tuple[SessionEvent, ...]
    """The whole log; an interrupted turn has been closed (see `inspect` and `load`)."""
    lost: bool = False
    """Whether its last record was damaged, so that what it held is not among the events."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """What a listing tells about a session besides its header."""

    title: str | None = None
    """First line of the first prompt, shortened and printable; None before there is one."""
    turns: int = 0
    """How many turns were opened."""
    events: int = 0
    """How many events the log has."""
    updated_at: int | None = None
    """Time of the last event in epoch milliseconds."""
    ended: str | None = None
    """Kind of the reason the last turn ended with; None while it is open or before the first."""
    damaged: bool = False
    """Whether the log is known to break off in damage. A listing need not look for it."""


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """One line of a listing."""

    header: SessionHeader
    """What is known of the session besides its events."""
    revision: str
    """Opaque; stays the same until the stored content changes."""
    archived: bool = False
    """Whether the session has been put away."""
    summary: SessionSummary = field(default_factory=SessionSummary)
    """What the log comes to; it may lag behind a session that another process writes."""
    size: int | None = None
    """Bytes it takes in storage; None if the store cannot say."""


@dataclass(frozen=True, slots=True)
class UnreadableSession:
    """Something that is stored and in no listing, because it cannot be read."""

    where: str
    """The place: a file, a folder, a row of a table."""
    error: PersistenceError
    """Why: `SessionCorrupt` for damage, `FormatUnsupported` where another version or an extra
    reads it, `PersistenceError` itself where the system does not let it be read."""
    session_id: str | None = None
    """Whose place it is; None if the place does not tell."""


@dataclass(frozen=True, slots=True)
class RawArtifact:
    """A stored session as the store keeps it, for export and for people."""

    filename: str
    """A name to save it under, without a path."""
    text: str
    """The content, in whatever format the store keeps."""
