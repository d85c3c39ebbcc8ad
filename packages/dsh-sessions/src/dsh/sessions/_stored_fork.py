"""A new stored session that begins with the turns of another one."""

from __future__ import annotations

from uuid import uuid4

from dsh.core import now_ms
from dsh.session import SessionHeader, fork_boundary
from dsh.session_persistence import SessionPersistence
from dsh.sessions._turns import find_turn, turns_of

__all__ = ["fork_session"]


async def fork_session(
    store: SessionPersistence,
    session_id: str,
    turn: int | None = None,
    *,
    cwd: str | None = None,
) -> SessionHeader:
    """Store a new session that begins with the turns of another one.

    The other one is only read. A turn that it breaks off in is closed in the copy.

    Args:
        store: Where both are kept.
        session_id: The session to copy from; its whole id.
        turn: The last turn to copy; the last there is if None.
        cwd: The folder that the new session works in; that of the other one if None.

    Returns:
        The header of the new session.

    Raises:
        UnknownTurn: There is no such turn, or none at all.
        PersistenceError: The session cannot be read, or the new one not be written.
    """
    stored = await store.inspect(session_id)
    turns = turns_of(stored.events)
    last = find_turn(session_id, turns, turns[-1].number if turns and turn is None else turn or 0)
    events = stored.events[: fork_boundary(session_id, stored.events, last.end)]
    header = SessionHeader(
        id=uuid4().hex,
        created_at=now_ms(),
        cwd=stored.header.cwd if cwd is None else cwd,
        parent_session=session_id,
        seed_length=len(events),
    )
    await store.create(header)
    await store.append(header.id, events)
    return header
