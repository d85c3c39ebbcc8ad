"""Events of the live sessions. A session entered through a scope is heard in that scope."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.core import Emit, Parallel
from dsh.session._event import SessionEvent
from dsh.session._session import Session

__all__ = ["SessionCreated", "SessionDisposed", "SessionEventAppended", "SessionFlush"]


@dataclass(frozen=True, slots=True)
class SessionCreated(
    Emit, name="session/created", scope="session.owner", errors="raise", realm="sessions"
):
    """A session is live. A listener that raises takes it back: it is unlisted again."""

    session: Session
    """The session, listed and observed from its next event on."""


@dataclass(frozen=True, slots=True)
class SessionEventAppended(Emit, name="session/event", scope="session.owner", realm="sessions"):
    """An event is in the log. Listeners are contained and may not append."""

    session: Session
    """The session."""
    event: SessionEvent
    """The event as logged, the last of the log."""


@dataclass(frozen=True, slots=True)
class SessionFlush(Parallel, name="session/flush", scope="session.owner", realm="sessions"):
    """Whoever keeps events of this session in a buffer makes them durable now."""

    session: Session
    """The session."""


@dataclass(frozen=True, slots=True)
class SessionDisposed(Emit, name="session/disposed", scope="session.owner", realm="sessions"):
    """A session that had been announced is no longer live."""

    session: Session
    """The session, unlisted; it still holds its log."""
