"""What is wrong with a log, and saving what stands before it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from dsh.core import json as djson
from dsh.session import SessionHeader, header_to_wire, interrupted_turn_closers
from dsh.session_persistence import (
    AppendRefused,
    Damage,
    IntegrityReport,
    PersistenceError,
    SessionCorrupt,
)
from dsh.session_persistence_jsonl import _files
from dsh.session_persistence_jsonl._content import Content, compress
from dsh.session_persistence_jsonl._folders import LogFile
from dsh.session_persistence_jsonl._lines import seal
from dsh.session_persistence_jsonl._log_reader import Scan, scan
from dsh.session_persistence_jsonl._refusals import check_place, refuse_newer
from dsh.session_persistence_jsonl._storage_errors import as_storage_errors

__all__ = ["header_row", "salvaged", "shorten", "verified"]


def verified(session_id: str, log: LogFile, content: Content) -> IntegrityReport:
    """Return what is wrong with a log, if anything is."""
    found, problem = _examined(session_id, log, content)
    try:
        check_place(found, session_id, log)
    except SessionCorrupt as error:
        damage = Damage(str(log.path), _without_place(error))
        return IntegrityReport(session_id, str(log.path), 0, (damage,))
    return _report(found, session_id, log, problem)


def salvaged(
    session_id: str,
    log: LogFile,
    content: Content,
    stat: os.stat_result,
    remembered: Callable[[LogFile], SessionHeader | None],
) -> IntegrityReport:
    """Keep a copy of a damaged log, then cut it before the damage; a sound one is left alone.

    Args:
        session_id: The session.
        log: Where it is.
        content: What was read there.
        stat: What the file was like then.
        remembered: Returns the header that the index knows of a log.

    Raises:
        PersistenceError: As `Backend.salvage`.
    """
    found, problem = _examined(session_id, log, content)
    check_place(found, session_id, log)
    report = _report(found, session_id, log, problem)
    if report.sound:
        return report
    refuse_newer(found, session_id)
    if not found.events:
        raise PersistenceError(
            f"nothing of session {session_id!r} can be saved: no event before the damage",
            hint="restore the file from a backup, or remove the session",
            location=str(log.path),
        )
    header = None
    if problem is not None:
        header = _header_anew(session_id, remembered(log), found.events[0].time)
    with as_storage_errors(log.path, "salvaged"):
        copy = _files.keep_aside(log.folder, "damaged", log.suffix, content.raw)
        if _files.revision_of(log.path.stat()) != _files.revision_of(stat):
            raise AppendRefused(f"session {session_id!r} has changed meanwhile")
        if header is None:
            shorten(log, content, found.good)
        else:
            rest = content.text[content.text.index(b"\n") + 1 : found.good]
            rest = compress(rest, log.path) if log.compressed else rest
            _files.replace(log.path, header_row(header, log) + rest)
    return replace(report, copy=str(copy))


def header_row(header: SessionHeader, log: LogFile) -> bytes:
    """Return the line that a log begins with."""
    line = seal(djson.dumps({"type": "session", **header_to_wire(header)}))
    return compress(line, log.path) if log.compressed else line


def shorten(log: LogFile, content: Content, good: int) -> None:
    """Cut a log after so many bytes of its text."""
    if not log.compressed:
        _files.truncate(log.path, good)
        return
    start, before = content.frame_at(good)
    if before == good:
        _files.truncate(log.path, start)
        return
    kept = compress(content.text[before:good], log.path)
    _files.replace(log.path, content.raw[:start] + kept)


def _header_anew(session_id: str, known: SessionHeader | None, began: int) -> SessionHeader:
    """Return the header that the index remembers, or what the place and the log tell of it."""
    if known is not None and known.id == session_id:
        return known
    return SessionHeader(id=session_id, created_at=began)


def _examined(session_id: str, log: LogFile, content: Content) -> tuple[Scan, Damage | None]:
    """Read a log as far as it goes, whatever its header is; also tell what is wrong with that.

    Raises:
        FormatUnsupported: Another version wrote it.
    """
    try:
        return scan(content, log.path), None
    except SessionCorrupt as error:
        damage = Damage(error.location or str(log.path), _without_place(error))
        return scan(content, log.path, SessionHeader(id=session_id, created_at=0)), damage


def _report(
    found: Scan, session_id: str, log: LogFile, header: Damage | None = None
) -> IntegrityReport:
    return IntegrityReport(
        session_id,
        str(log.path),
        len(found.events),
        tuple(found.damage) if header is None else (header, *found.damage),
        torn=found.torn,
        interrupted=bool(interrupted_turn_closers(found.events)),
    )


def _without_place(error: PersistenceError) -> str:
    """Return what an error says without the place, which is told beside it."""
    return error.message.removesuffix(f" ({error.location})")
