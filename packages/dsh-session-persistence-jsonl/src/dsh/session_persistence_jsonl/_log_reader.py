"""Reading a log: its events as far as they are sound, and what is wrong behind them.

A process that dies leaves a last line without its end: that is torn, and was never acknowledged.
Anything else that does not fit is damage. It is told apart by what follows it: where a whole line
stands behind it, nothing may be dropped, so the log is refused; a damaged last line is cut off by a
load, kept aside, and remembered in what the repair says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final, cast

from dsh.session import SessionEvent, SessionHeader, header_from_wire
from dsh.session.errors import SessionFormatError
from dsh.session_persistence import Damage, FormatUnsupported, SessionCorrupt
from dsh.session_persistence_jsonl._content import Content
from dsh.session_persistence_jsonl._lines import is_sealed, seed_of, unsealed
from dsh.session_persistence_jsonl._rows import RowError, read_line

__all__ = ["Scan", "read_header", "scan"]

_TURN_END: Final = b'{"type":"turn/end"'


@dataclass(slots=True)
class Scan:
    """What reading a log came to."""

    header: SessionHeader
    events: list[SessionEvent] = field(default_factory=list[SessionEvent])
    """Those before the first damage."""
    good: int = 0
    """How many bytes of the text hold them."""
    damage: list[Damage] = field(default_factory=list[Damage])
    """What is wrong, in the order of the log."""
    unsupported: FormatUnsupported | None = None
    """Why the first thing that cannot be read is not damage."""
    committed: bool = False
    """Whether the first damage stands in or before a turn that has ended."""
    torn: bool = False
    """Whether the log breaks off inside a line or a frame."""
    lines_cut: bool = False
    """Whether whole lines follow the sound part."""


def read_header(line: bytes, path: Path) -> SessionHeader:
    """Read the first line of a log.

    Raises:
        FormatUnsupported: Another version wrote it.
        SessionCorrupt: It is no header, or damaged.
    """
    sealed = is_sealed(line)
    wire = _object_of(line)
    if wire is None:
        raise _no_header(path, "its first line is no JSON object")
    if wire.get("type") != "session":
        raise _no_header(path, "its first line is no session header")
    told_crc = wire.pop("crc", None)
    if not sealed and told_crc is not None:
        raise _no_header(path, "the checksum of its first line does not fit")
    del wire["type"]
    try:
        header = header_from_wire(wire)
    except SessionFormatError as error:
        if error.code == SessionFormatError.UNSUPPORTED_VERSION:
            raise FormatUnsupported(error.message, hint=error.hint, location=str(path)) from error
        raise _no_header(path, error.message) from error
    if not sealed:
        raise _no_header(path, "its first line has no checksum")
    return header


def scan(content: Content, path: Path, header: SessionHeader | None = None) -> Scan:
    """Read a whole log.

    Args:
        content: What the file holds.
        path: The file, for messages.
        header: What to take for the header where the first line is known to be none.

    Raises:
        FormatUnsupported: Another version wrote it.
        SessionCorrupt: The header is no header, or damaged.
    """
    lines = BytesIO(content.text)
    first = lines.readline()
    if header is None:
        if not first.endswith(b"\n"):
            raise _no_header(path, _no_first_line(content), _LOST)
        header = read_header(first, path)
    found = Scan(header, good=len(first))
    events, seed = found.events, seed_of(header.id)
    number = 1
    for line in lines:
        number += 1
        if line[-1:] != b"\n":
            found.torn = True
            # a line that only lost its end, or had it damaged, is worth keeping too
            found.lines_cut |= any(is_sealed(text + b"\n", seed) for text in (line, line[:-1]))
            break
        problem = _take(line, events, seed)
        if problem is None:
            found.good += len(line)
            continue
        _note(found, path, number, problem, len(events))
        _look_behind(found, path, number, line, lines)
        break
    if content.broken is not None:
        found.damage.append(_broken_frame(content, path, number))
        found.committed = True  # what lies behind it cannot be looked at
        found.lines_cut = True
    found.torn |= content.torn
    return found


def _take(line: bytes, events: list[SessionEvent], seed: int) -> str | FormatUnsupported | None:
    """Add the events of a line; return what is wrong with it."""
    if not is_sealed(line, seed):
        return "its checksum does not fit"
    before = len(events)
    try:
        for event in read_line(unsealed(line), events):
            if event.seq != len(events):  # of a row that can only be the first
                return f"seq {event.seq} stands where seq {before} should"
            events.append(event)
    except RowError as error:
        del events[before:]
        return f"a packed row is malformed: {error}"
    except SessionFormatError as error:
        # its checksum fits, so no disk did this: it says more than this version understands
        return FormatUnsupported(error.message, hint=error.hint or _NEWER)
    return None


_NEWER: Final = "open this session with the version that wrote it, or a newer one"


def _note(
    found: Scan, path: Path, number: int, problem: str | FormatUnsupported, seq: int | None
) -> None:
    if isinstance(problem, FormatUnsupported):
        if not found.damage:
            found.unsupported = problem
        problem = problem.message
    found.damage.append(Damage(f"{path}:{number}", problem, seq))


def _look_behind(found: Scan, path: Path, number: int, line: bytes, lines: BytesIO) -> None:
    """Look through the lines from the first damaged one on."""
    found.lines_cut = True
    seed = seed_of(found.header.id)
    expected: int | None = None
    for behind in (line, *lines):
        if behind[-1:] != b"\n":
            found.torn = True
            break
        if behind is not line:
            number += 1
        # a damaged turn end was one
        found.committed |= behind.startswith(_TURN_END)
        if not is_sealed(behind, seed):
            expected = None
            if behind is not line:
                _note(found, path, number, "its checksum does not fit", None)
            continue
        # no crash leaves a whole line behind one that is not
        found.committed |= behind is not line
        expected = _follow(found, path, number, behind, expected, behind is not line)


def _follow(
    found: Scan,
    path: Path,
    number: int,
    line: bytes,
    expected: int | None,
    tell: bool,
) -> int | None:
    """Check a sound line behind damage against the one before it; return the seq after it."""
    try:
        events = list(read_line(unsealed(line), None))
    except RowError as error:
        if tell:
            _note(found, path, number, f"a packed row is malformed: {error}", expected)
        return None
    except SessionFormatError as error:
        if tell:
            _note(found, path, number, error.message, expected)
        return None
    if tell and expected is not None and events[0].seq != expected:
        _note(
            found, path, number, f"seq {events[0].seq} stands where seq {expected} should", expected
        )
    return events[-1].seq + 1


def _object_of(line: bytes) -> dict[str, Any] | None:
    try:
        # the version of an unknown form is worth as_storage_errors, so any JSON object will do
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _no_first_line(content: Content) -> str:
    if content.broken is not None:
        return f"its first frame cannot be decompressed: {content.broken}"
    return "it has no complete first line" if content.text else "it is empty"


def _broken_frame(content: Content, path: Path, number: int) -> Damage:
    at = content.frames[-1][0]
    return Damage(f"{path}, byte {at}", f"a frame cannot be decompressed: {content.broken}")


_LOST: Final = "restore the file from a backup, or remove it"


def _no_header(path: Path, problem: str, hint: str | None = None) -> SessionCorrupt:
    return SessionCorrupt(
        f"a session log cannot be read: {problem}",
        hint=hint,
        location=f"{path}:1",
    )
