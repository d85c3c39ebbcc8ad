"""Logging the header of each request, once and as small as it can be."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.session._event import SessionEvent
from dsh.session._event_types import RequestHeaderReason, RequestHeaderSnapshot
from dsh.session._request_header import RequestHeader, canonical_header
from dsh.session._request_header_fold import apply_header_delta, diff_header
from dsh.session._session import Session

__all__ = ["HeaderRecord", "record_request_header"]


@dataclass(slots=True)
class HeaderRecord:
    """What one loop instance has logged of its request headers; make one per instance."""

    anchored: bool = False
    """Whether this instance has logged a header."""


def record_request_header(
    session: Session, state: HeaderRecord, header: RequestHeader
) -> SessionEvent | None:
    """Log whatever makes `header` the header in force; call it once per request, before it.

    The first call of an instance logs a snapshot (reason `initial` if the log has no header,
    else `resume`, even if nothing changed). Later calls log nothing, an amendment, or a snapshot
    with reason `fallback` where no amendment can express the change.

    Returns:
        The event, or None if the header was in force already.

    Raises:
        NotJsonError: The header would not survive a JSON round trip.
        EnclosureError: No turn is open.
        Exception: What a validator raised.
    """
    header = canonical_header(header)
    current = session.request_header()
    if not state.anchored or current is None:
        reason: RequestHeaderReason = "initial" if current is None else "resume"
        event = session.append(RequestHeaderSnapshot(header, reason))
        state.anchored = True
        return event
    delta = diff_header(current, header)
    if delta is None:
        return None
    if apply_header_delta(current, delta) == header:
        return session.append(delta)
    return session.append(RequestHeaderSnapshot(header, "fallback"))
