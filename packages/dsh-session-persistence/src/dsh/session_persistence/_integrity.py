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
    """What is not as it was written, or was written by another version, in the order of the log.
    A session with damage may load all the same: what stands behind the last turn that has ended
    is cut off and kept aside, unless another version can read it."""
    torn: bool = False
    """Whether the log breaks off in a record that was never written completely.

    That is what a crash leaves. It is no damage: loading the session cuts it off."""
    interrupted: bool = False
    """Whether a turn is open at its end; loading the session closes it."""
    copy: str | None = None
    """Where a copy was kept before a repair."""

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged; a log that is torn or breaks off in a turn is sound."""
        return not self.damage
