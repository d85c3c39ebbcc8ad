"""Turns of a stored log, and a new session that begins with some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from dsh.core import now_ms
from dsh.session import SessionEvent, SessionHeader, TurnEnd, TurnStart
from dsh.session_persistence import SessionPersistence
from dsh.sessions._find import short_id
from dsh.sessions.errors import UnknownTurn

__all__ = ["fork_session"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a turn stands in its log."""

    number: int
    """Counted from 1."""
    start: int
    """Seq of its `turn/start`."""
    end: int | None
    """Seq of its `turn/end`; None while it is open."""


def turns_of(events: Sequence[SessionEvent]) -> list[Turn]:
    """Return the turns of a log in their order."""
    turns: list[Turn] = []
    for event in events:
        data = event.data
        if isinstance(data, TurnStart):
            turns.append(Turn(data.turn, event.seq, None))
        elif isinstance(data, TurnEnd) and turns:
            turns[-1] = Turn(turns[-1].number, turns[-1].start, event.seq)
    return turns


def find_turn(session_id: str, turns: Sequence[Turn], number: int) -> Turn:
    """Return one turn.

    Raises:
        UnknownTurn: There is none with that number.
    """
    for turn in turns:
        if turn.number == number:
            return turn
    name = short_id(session_id)
    if not turns:
        raise UnknownTurn(f"session {name} has no turn yet")
    noun = "turn" if len(turns) == 1 else "turns"
    raise UnknownTurn(
        f"session {name} has no turn {number}: it has {len(turns)} {noun}",
        hint=f"`dsh sessions show {name}` shows them",
    )


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
    assert last.end is not None  # what `inspect` returns is closed
    events = stored.events[: last.end + 1]
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
