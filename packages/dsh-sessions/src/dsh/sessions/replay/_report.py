"""What a replay came to."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.core import JsonValue

__all__ = ["Divergence", "ReplayReport"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event that came out differently."""

    seq: int
    """Its sequence number."""
    type: str
    """The recorded event's type; where the log had ended, the type of what came then."""
    path: str
    """Where in the event's wire form the two differ: `data.content[0].text`, `type`.

    Empty where one of the two is missing altogether."""
    recorded: JsonValue
    """What the log says there; None where it says nothing."""
    replayed: JsonValue
    """What came out there; None where nothing came."""

    def __str__(self) -> str:
        where = f"event {self.seq} ({self.type})"
        return where if not self.path else f"{where} at {self.path}"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How far a log was played again, and where it came out differently, if it did."""

    turns: int
    """How many turns came out as recorded, complete."""
    steps: int
    """How many steps, that of an open turn included."""
    events: int
    """How many events, those that a fork inherited left out."""
    divergence: Divergence | None
    """The first difference; None if there is none."""
    open: bool = False
    """Whether one more turn was played, which has no end in the log either."""

    @property
    def ok(self) -> bool:
        """Whether everything came out as recorded."""
        return self.divergence is None
