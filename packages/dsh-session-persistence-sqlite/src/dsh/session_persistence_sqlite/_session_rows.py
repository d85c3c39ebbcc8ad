"""Sessions as rows: a header that never changes, a state that does, and a checksum of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from dsh.session import (
    SESSION_FORMAT_VERSION,
    SessionEvent,
    SessionHeader,
    TurnEnd,
    header_from_wire,
)
from dsh.session.errors import SessionFormatError
from dsh.session_persistence import (
    FormatUnsupported,
    SessionCorrupt,
    SessionSnapshot,
    SessionSummary,
    UnreadableSession,
)
from dsh.session_persistence_sqlite._storage_errors import located

__all__ = [
    "EMPTY",
    "HEADER_COLUMNS",
    "HEADER_DAMAGE",
    "SESSION_COLUMNS",
    "STATE_COLUMNS",
    "STATE_DAMAGE",
    "STATE_SELECTION",
    "SessionRow",
    "State",
    "header_values",
    "revision_of",
    "state_of",
]

_HEADER: Final = tuple(field.name for field in fields(SessionHeader))
_FIXED: Final = (*_HEADER, "incarnation")
_STATE: Final = ("revision", "events", "committed", "size", "title", "turns", "updated_at", "ended")
HEADER_COLUMNS: Final = (*_FIXED, "header_crc")
"""The columns of a session that never change; see `header_values`."""

STATE_COLUMNS: Final = (*_STATE, "state_crc")
"""The columns of a session that change with its log; see `State.values`."""

_COLUMNS: Final = (*HEADER_COLUMNS, *STATE_COLUMNS, "archived")

SESSION_COLUMNS: Final = ", ".join(_COLUMNS)
"""What is read of a session, in the order `SessionRow.read` wants."""


HEADER_DAMAGE: Final = "the checksum of its header does not match"
STATE_DAMAGE: Final = "the checksum of its counters does not match"


@dataclass(frozen=True, slots=True)
class State:
    """What changes in a session's row when its log grows."""

    revision: int
    """Counts the changes of the stored log."""
    events: int
    """How many events were stored."""
    committed: int
    """How many of them there are up to the last `turn/end`, that one included."""
    size: int
    """Bytes of those events."""
    summary: SessionSummary

    def grown(self, events: tuple[SessionEvent, ...], size: int, summary: SessionSummary) -> State:
        """Return the state after a batch that is not empty."""
        committed = self.committed
        for event in reversed(events):
            if isinstance(event.data, TurnEnd):
                committed = event.seq + 1
                break
        return State(self.revision + 1, events[-1].seq + 1, committed, self.size + size, summary)

    def values(self) -> tuple[Any, ...]:
        """Return the values of the columns, in order, the checksum last."""
        summary = self.summary
        columns = (
            self.revision,
            self.events,
            self.committed,
            self.size,
            summary.title,
            summary.turns,
            summary.updated_at,
            summary.ended,
        )
        return (*columns, _crc_of(columns))


STATE_SELECTION: Final = ", ".join(STATE_COLUMNS)
"""What is read of a session to go on with it, in the order `state_of` wants."""


def state_of(row: tuple[Any, ...]) -> State | None:
    """Return the state from a row of `STATE_SELECTION`; None if its checksum does not match."""
    values = [
        value.decode(errors="replace") if isinstance(value, bytes) else value for value in row[:-1]
    ]
    return _state(values) if _crc_of(values) == row[-1] else None


def _state(values: Iterable[Any]) -> State:
    revision, events, committed, size, title, turns, updated_at, ended = values
    summary = SessionSummary(title, turns, events, updated_at, ended)
    return State(revision, events, committed, size, summary)


EMPTY: Final = State(0, 0, 0, 0, SessionSummary())
"""The state of a session before its first batch."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session's row as it lies there."""

    columns: dict[str, Any]
    """Its values by column, texts as text."""
    state: State

    @classmethod
    def read(cls, row: Iterable[Any]) -> SessionRow:
        """Take a row of `SESSION_COLUMNS`."""
        columns: dict[str, Any] = {
            column: value.decode(errors="replace") if isinstance(value, bytes) else value
            for column, value in zip(_COLUMNS, row, strict=True)
        }
        return cls(columns, _state(columns[column] for column in _STATE))

    @property
    def header_sound(self) -> bool:
        """Whether the checksum of the header matches."""
        told: int = self.columns["header_crc"]
        return _crc_of(self.columns[name] for name in _FIXED) == told

    @property
    def state_sound(self) -> bool:
        """Whether the checksum of the state matches."""
        told: int = self.columns["state_crc"]
        return _crc_of(self.columns[name] for name in _STATE) == told

    @property
    def id(self) -> str:
        """The session's id."""
        session_id: str = self.columns["id"]
        return session_id

    @property
    def archived(self) -> bool:
        """Whether it was put away."""
        return bool(self.columns["archived"])

    def header(self) -> SessionHeader:
        """Return the header.

        Raises:
            SessionCorrupt: It is damaged.
            FormatUnsupported: Another version wrote it.
        """
        if not self.header_sound:
            raise SessionCorrupt(f"session {self.id!r}: {HEADER_DAMAGE} (row of sessions)")
        columns = self.columns
        if columns["version"] != SESSION_FORMAT_VERSION:
            try:
                return header_from_wire({"id": self.id, "version": columns["version"]})
            except SessionFormatError as error:
                raise FormatUnsupported(error.message, hint=error.hint) from error
        return SessionHeader(**{name: columns[name] for name in _HEADER})

    def revision(self, store_id: str) -> str:
        """Return the revision a listing shows."""
        return revision_of(store_id, self.columns["incarnation"], self.state.revision)

    def snapshot(self, store_id: str) -> SessionSnapshot:
        """Return the line of a listing; raises as `header`."""
        summary = self.state.summary
        if not self.state_sound:
            summary = replace(summary, damaged=True)
        return SessionSnapshot(
            self.header(), self.revision(store_id), self.archived, summary, self.state.size
        )

    def unreadable(self, file: Path) -> UnreadableSession | None:
        """Return why the session is in no listing; None if it is in one."""
        try:
            self.header()
        except (SessionCorrupt, FormatUnsupported) as error:
            where = f"{file}, row of sessions with id {self.id!r}"
            return UnreadableSession(where, located(error, file), self.id)
        return None


def header_values(header: SessionHeader, incarnation: str) -> tuple[Any, ...]:
    """Return the values of the columns that never change, the checksum last."""
    columns = [getattr(header, column) for column in _HEADER]
    return (*columns, incarnation, _crc_of([*columns, incarnation]))


def revision_of(store_id: str, incarnation: str | bytes, revision: int) -> str:
    """Return what a listing shows: which database, which session of that id, which state."""
    if isinstance(incarnation, bytes):
        incarnation = incarnation.decode(errors="replace")
    return f"{store_id}.{incarnation}.{revision}"


def _crc_of(columns: Iterable[Any]) -> int:
    return crc32(json.dumps(list(columns)).encode())
