"""Where the turns of a log stand, and one of them by its number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsh.session import SessionEvent, TurnEnd, TurnStart
from dsh.sessions._find import short_id
from dsh.sessions.errors import UnknownTurn

__all__ = ["Turn", "find_turn", "turns_of"]


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
