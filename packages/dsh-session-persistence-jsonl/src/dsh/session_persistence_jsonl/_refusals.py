"""Why a log that was read is not taken for what it should be."""

from __future__ import annotations

from dsh.session_persistence import FormatUnsupported, SessionCorrupt
from dsh.session_persistence_jsonl._folders import LogFile
from dsh.session_persistence_jsonl._log_reader import Scan

__all__ = ["check_place", "corrupt", "misplaced", "refuse_newer"]


def check_place(found: Scan, session_id: str, log: LogFile) -> None:
    if found.header.id != session_id:
        raise misplaced(session_id, found.header.id, log)


def misplaced(owner: str, found: str, log: LogFile) -> SessionCorrupt:
    return SessionCorrupt(
        f"the log in the place of session {owner!r} is that of {found!r}",
        hint="move its folder back to where it was",
        location=str(log.path),
    )


def refuse_newer(found: Scan, session_id: str) -> None:
    """Raise if the first thing that cannot be read is none that may be cut: another version can."""
    if found.unsupported is not None:
        raise FormatUnsupported(
            f"session {session_id!r} cannot be read here: {found.unsupported.message}",
            hint=found.unsupported.hint,
            location=found.damage[0].where,
        )


def corrupt(found: Scan, session_id: str) -> SessionCorrupt:
    first = found.damage[0]
    seq = "" if first.seq is None else f" at seq {first.seq}"
    return SessionCorrupt(
        f"session {session_id!r} is damaged{seq}: {first.what}",
        location=first.where,
    )
