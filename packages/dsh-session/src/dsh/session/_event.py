"""The envelope around each payload, and the operations on the surface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from dsh.session._session_data import SessionData, type_name

__all__ = ["APPEND", "Append", "Replace", "SessionEvent", "SurfaceOp"]


@dataclass(frozen=True, slots=True)
class Append:
    """The event's message goes to the end of the history."""


@dataclass(frozen=True, slots=True)
class Replace:
    """The event's message takes the place of a range of the history.

    Both ends are sequence numbers of events that stand on the surface now, and both are replaced
    too. What counts is their position: an event with a high number can stand before one with a
    low number after an earlier replace.
    """

    start: int
    """Sequence number of the first event replaced."""
    end: int
    """Sequence number of the last event replaced."""


SurfaceOp: TypeAlias = Append | Replace
"""What an event does to the history that the model reads."""

APPEND: Final = Append()
"""The ordinary surface operation."""


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One entry of a session's log. It never changes once it is there."""

    seq: int
    """Index in the log, from 0."""
    time: int
    """Wall clock in epoch milliseconds; not monotonic, never sort by it."""
    data: SessionData
    """The payload; its class is the event type."""
    surface_op: SurfaceOp | None = None
    """Set on every event whose type is surface-eligible, and on no other."""
    source_event_seqs: tuple[int, ...] | None = None
    """Earlier events that this one was made from."""

    @property
    def type(self) -> str:
        """The event type's name, `family/name`."""
        return type_name(self.data)
