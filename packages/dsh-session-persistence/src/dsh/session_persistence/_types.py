"""What a session store hands out."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.session import SessionEvent, SessionHeader

__all__ = ["RawArtifact", "SessionSnapshot", "StoredSession"]


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as read: balanced, so that an agent can go on from it."""

    header: SessionHeader
    """What is known of the session besides its events."""
    events: tuple[SessionEvent, ...]
    """The whole log; an interrupted turn has been closed (see `inspect` and `load`)."""


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """One line of a listing."""

    header: SessionHeader
    """What is known of the session besides its events."""
    revision: str
    """Opaque; stays the same until the stored content changes."""
    archived: bool = False
    """Whether the session has been put away."""


@dataclass(frozen=True, slots=True)
class RawArtifact:
    """A stored session as the store keeps it, for export and for people."""

    filename: str
    """A name to save it under, without a path."""
    text: str
    """The content, in whatever format the store keeps."""
