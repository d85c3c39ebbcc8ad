"""Up to where a log may be forked."""

from __future__ import annotations

from collections.abc import Sequence

from dsh.session._event import SessionEvent
from dsh.session._event_types import TurnEnd
from dsh.session.errors import ForkError

__all__ = ["fork_boundary"]


def fork_boundary(session_id: str, events: Sequence[SessionEvent], boundary: object = None) -> int:
    """Return how many leading events a fork copies.

    Args:
        session_id: The session to fork, for the error.
        events: Its log.
        boundary: Sequence number of the last event to copy; None copies the whole log.

    Raises:
        ForkError: Code `INVALID_BOUNDARY` or `OPEN_TURN`.
    """
    if boundary is None:
        if not events:
            return 0
        boundary = len(events) - 1
    if type(boundary) is not int or not 0 <= boundary < len(events):
        raise ForkError(
            f"cannot fork session {session_id!r} at {boundary!r}: its log has {len(events)} events",
            code=ForkError.INVALID_BOUNDARY,
            hint="name the sequence number of a turn/end",
        )
    event = events[boundary]
    if not isinstance(event.data, TurnEnd):
        raise ForkError(
            f"cannot fork session {session_id!r} at {boundary}: {event.type} stands there, and "
            "only a turn/end closes a turn",
            code=ForkError.OPEN_TURN,
            hint="name the sequence number of an earlier turn/end",
        )
    return boundary + 1
