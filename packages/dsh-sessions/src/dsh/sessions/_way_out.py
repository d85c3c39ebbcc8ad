"""What can be done about a session that is in use or damaged, in the same words everywhere."""

from __future__ import annotations

from dsh.session_persistence import PersistenceError, SessionCorrupt, SessionInUse
from dsh.sessions._find import short_id
from dsh.sessions._text import one_line

__all__ = ["trouble_of", "way_out"]


def trouble_of(error: PersistenceError) -> str:
    """Return what a store says is wrong; who uses a session, without where it is kept.

    Args:
        error: What the store raised.
    """
    if isinstance(error, SessionInUse) and error.location is not None:
        return error.message.removesuffix(f" ({error.location})")
    return error.message


def way_out(error: PersistenceError, session_id: str | None = None) -> str | None:
    """Return what a person can do about an error of a store, with the command to type.

    Args:
        error: What the store raised.
        session_id: The session, or the beginning of its id, if one is meant.
    """
    known = error.session_id if session_id is None else session_id
    name = "ID" if known is None else one_line(short_id(known), 40)
    if isinstance(error, SessionInUse):
        return f"wait until it has ended, or go on with a copy: dsh run --fork {name}"
    if isinstance(error, SessionCorrupt) and error.salvageable:
        return f"`dsh sessions verify --repair {name}` keeps a copy and what can be read"
    return error.hint
