"""Up to where a log may be forked."""

from __future__ import annotations

from dsh.session._payloads import TurnEnd
from dsh.session._session import Session
from dsh.session.errors import ForkError

__all__ = ["fork_boundary"]


def fork_boundary(source: Session, boundary: object) -> int:
    """Return how many leading events a fork copies.

    Args:
        source: The session to fork.
        boundary: Sequence number of the last event to copy; None copies the whole log.

    Raises:
        ForkError: Code `INVALID_BOUNDARY` or `OPEN_TURN`.
    """
    if boundary is None:
        if source.seq == 0:
            return 0
        boundary = source.seq - 1
    if type(boundary) is not int or not 0 <= boundary < source.seq:
        raise ForkError(
            f"cannot fork session {source.id!r} at {boundary!r}: its log has {source.seq} events",
            code=ForkError.INVALID_BOUNDARY,
            hint="name the sequence number of a turn/end",
        )
    event = source.events[boundary]
    if not isinstance(event.data, TurnEnd):
        raise ForkError(
            f"cannot fork session {source.id!r} at {boundary}: {event.type} stands there, and "
            "only a turn/end closes a turn",
            code=ForkError.OPEN_TURN,
            hint="name the sequence number of an earlier turn/end",
        )
    return boundary + 1
