"""What a look at every record of a stored session finds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Damage", "IntegrityReport"]


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong with a stored session."""

    where: str
    """The place: a line of a file, a row of a table."""
    what: str
    """What is wrong there."""
    seq: int | None = None
    """Sequence number of the event that should stand there, if it is known."""


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """What became of a session in storage."""

    session_id: str
    """The session."""
    location: str | None
    """Where it is kept."""
    events: int
    """How many events can be read before the first damage, or in all."""
    damage: tuple[Damage, ...] = ()
    """What is wrong, in the order of the log."""
    torn: bool = False
    """Whether the log breaks off in a record that was never written completely.

    That is what a crash leaves. It is no damage: loading the session repairs it."""
    interrupted: bool = False
    """Whether a turn is open at its end; loading the session closes it."""
    copy: str | None = None
    """Where a copy was kept before a repair."""

    @property
    def sound(self) -> bool:
        """Whether the session can be loaded."""
        return not self.damage
