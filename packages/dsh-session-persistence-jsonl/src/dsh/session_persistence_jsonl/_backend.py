"""The backend: one append-only file of JSON lines a session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dsh.core import json as djson
from dsh.paths import make_folder, sync_folder
from dsh.session import (
    SessionEvent,
    SessionHeader,
    encode_event,
    header_to_wire,
    interrupted_turn_closers,
)
from dsh.session_persistence import (
    AppendRefused,
    Damage,
    FormatUnsupported,
    IntegrityReport,
    PersistenceError,
    RawArtifact,
    SessionCorrupt,
    SessionInUse,
    SessionSnapshot,
    SessionSummary,
    StoredSessionExists,
    StoredSessionNotFound,
    UnreadableSession,
)
from dsh.session_persistence.backend import Backend, StoredLog, summarize
from dsh.session_persistence_jsonl import _files
from dsh.session_persistence_jsonl._content import Content, compress, plain_content, zstd_content
from dsh.session_persistence_jsonl._failures import telling
from dsh.session_persistence_jsonl._folders import Folders, LogFile
from dsh.session_persistence_jsonl._lines import seal
from dsh.session_persistence_jsonl._listing import Found, Listing, in_place
from dsh.session_persistence_jsonl._lock import LOCK, SessionLock
from dsh.session_persistence_jsonl._names import decode_segment, encode_segment
from dsh.session_persistence_jsonl._pack import Packer
from dsh.session_persistence_jsonl._scan import Scan, scan

__all__ = ["JsonlBackend"]


_UNSURE: Final = ""
"""Revision of a log behind which a failed write may have left something."""


@dataclass(slots=True)
class _Tail:
    """Where a log that is written here ends."""

    revision: str
    size: int
    next_seq: int
    packer: Packer


@dataclass(frozen=True, slots=True)
class _Rest:
    """What follows the last complete event of a log."""

    good: int
    """How many bytes of the text stand before it."""
    whole_lines: bool
    """Whether there is more than the beginning of one line."""


class JsonlBackend(Backend):
    """Keeps each session in a folder of its own below `root`.

    Args:
        root: The store's folder; it is made when something is written.
        compressed: Whether new sessions are compressed; those that exist stay as they are.
        packed: Whether runs of deltas are written as one row; rows are read in any case.
    """

    supports_raw = True

    def __init__(self, root: Path, *, compressed: bool = False, packed: bool = True) -> None:
        self._compressed = compressed
        self._packed = packed
        self._folders = Folders(root)
        self._listing = Listing(self._folders, self._summarized)
        self._locks: dict[str, SessionLock] = {}
        self._tails: dict[str, _Tail] = {}

    def open(self) -> None:
        """See `Backend.open`; nothing is made before something is written."""

    def close(self) -> None:
        """See `Backend.close`."""
        for session_id in tuple(self._locks):
            self.release(session_id)
        self._listing.close()

    # --- between processes ----------------------------------------------------------------

    def acquire(self, session_id: str) -> None:
        """See `Backend.acquire`."""
        if session_id in self._locks:
            return
        log, _ = self._need(session_id)
        lock = SessionLock(log.folder)
        self._take(session_id, lock, log.folder)
        if not log.path.exists():  # it was removed or put away a moment ago
            lock.give_up()
            del self._locks[session_id]
            self._folders.note(session_id, None)
            self.acquire(session_id)

    def _take(self, session_id: str, lock: SessionLock, folder: Path) -> None:
        with telling(folder, "locked"):
            taken = lock.take()
        if not taken:
            holder = lock.holder() or "another process"
            raise SessionInUse(
                f"session {session_id!r} is in use by {holder}",
                hint="close it there, or fork it",
                location=str(folder),
            )
        self._locks[session_id] = lock

    def release(self, session_id: str) -> None:
        """See `Backend.release`."""
        self._tails.pop(session_id, None)
        lock = self._locks.pop(session_id, None)
        if lock is None:
            return
        log = self._folders.known(session_id)
        if log is not None:
            self._listing.settle(log)
        lock.give_up()

    # --- reading --------------------------------------------------------------------------

    def revision(self, session_id: str) -> str | None:
        """See `Backend.revision`."""
        found = self._find(session_id)
        return None if found is None else _files.revision_of(found[1])

    def read(self, session_id: str) -> StoredLog:
        """See `Backend.read`."""
        log, _ = self._need(session_id)
        content, stat = self._content(log)
        found = self._scan(session_id, log, content)
        _refuse_newer(found, session_id)
        if found.damage and (found.committed or not found.events):
            raise _corrupt(found, session_id)
        if not found.events:
            raise StoredSessionNotFound(session_id)
        rest = _rest(found)
        revision = _files.revision_of(stat)
        if rest is None and session_id in self._locks:
            self._tails[session_id] = _Tail(revision, stat.st_size, len(found.events), Packer())
        lost = found.lines_cut or bool(found.damage)
        return StoredLog(found.header, tuple(found.events), revision, rest, lost)

    def list(self, archived: bool) -> Iterable[SessionSnapshot]:
        """See `Backend.list`."""
        with telling(self._folders.root, "listed"):
            return self._listing.snapshots(archived)

    def unreadable(self) -> Iterable[UnreadableSession]:
        """See `Backend.unreadable`."""
        with telling(self._folders.root, "listed"):
            return self._listing.unreadable()

    @property
    def place(self) -> str | None:
        """See `Backend.place`."""
        return str(self._folders.root)

    def locate(self, header: SessionHeader) -> str | None:
        """See `Backend.locate`."""
        known = self._folders.known(header.id)
        place = known or self._folders.place(header.id, header.cwd, self._compressed)
        return str(place.path)

    def read_raw(self, session_id: str) -> RawArtifact | None:
        """See `Backend.read_raw`; a compressed log is handed out decompressed."""
        found = self._find(session_id)
        if found is None:
            return None
        content, _ = self._content(found[0])
        name = f"{encode_segment(session_id)}.jsonl"
        return RawArtifact(name, content.text.decode("utf-8", "replace"))

    # --- writing --------------------------------------------------------------------------

    def write(
        self, header: SessionHeader, events: Sequence[SessionEvent], summary: SessionSummary
    ) -> None:
        """See `Backend.write`."""
        session_id, start = header.id, events[0].seq
        found = self._find(session_id)
        if found is None:
            if start:
                raise _not_contiguous(session_id, start, 0)
            self._create(header, events, summary)
            return
        log, stat = found
        if start == 0:
            raise StoredSessionExists(session_id, str(log.path))
        self.acquire(session_id)
        tail = self._tail(session_id, log, stat)
        if start != tail.next_seq:
            raise _not_contiguous(session_id, start, tail.next_seq)
        # if this fails, the packer has taken note of what is not there
        self._tails[session_id] = replace(tail, revision=_UNSURE, packer=Packer())
        data = self._encoded(tail.packer, events, log)
        with telling(log.path, "written"):
            stat = _files.append(log.path, data, tail.size)
        self._wrote(log, stat, header, summary, _Tail("", 0, start + len(events), tail.packer))

    def _create(
        self, header: SessionHeader, events: Sequence[SessionEvent], summary: SessionSummary
    ) -> None:
        session_id = header.id
        log = self._folders.place(session_id, header.cwd, self._compressed)
        packer = Packer()
        data = self._head(header, log) + self._encoded(packer, events, log)
        with telling(log.folder, "made"):
            made = make_folder(log.folder)
        lock = SessionLock(log.folder)
        try:
            self._take(session_id, lock, log.folder)
            try:
                if self._find(session_id) is not None:
                    raise StoredSessionExists(session_id, str(log.path))
                if not made:
                    _files.tidy(log.folder)
                stat = _published(log.path, data, session_id)
            except BaseException:
                lock.give_up()
                del self._locks[session_id]
                raise
        except BaseException:
            if made:
                _forget(log.folder)
            raise
        self._folders.note(session_id, log)
        self._wrote(log, stat, header, summary, _Tail("", 0, len(events), packer))

    def _wrote(
        self,
        log: LogFile,
        stat: os.stat_result,
        header: SessionHeader,
        summary: SessionSummary,
        tail: _Tail,
    ) -> None:
        revision = _files.revision_of(stat)
        self._tails[header.id] = replace(tail, revision=revision, size=stat.st_size)
        self._listing.wrote(log, stat, header, summary)

    def _tail(self, session_id: str, log: LogFile, stat: os.stat_result) -> _Tail:
        """Return where a log ends that is locked; what a failed write left there goes first."""
        tail = self._tails.get(session_id)
        if tail is not None and tail.revision == _UNSURE and tail.size <= stat.st_size:
            if tail.size < stat.st_size:
                with telling(log.path, "cut"):
                    _files.truncate(log.path, tail.size)
            return tail
        if tail is None or tail.revision != _files.revision_of(stat):
            stored = self.read(session_id)
            if stored.rest is not None:
                self.cut(stored)
                self.read(session_id)
            tail = self._tails[session_id]
        return tail

    def _encoded(self, packer: Packer, events: Sequence[SessionEvent], log: LogFile) -> bytes:
        rows = packer.rows(events) if self._packed else map(encode_event, events)
        text = b"".join(map(seal, rows))
        return compress(text, log.path) if log.compressed else text

    def _head(self, header: SessionHeader, log: LogFile) -> bytes:
        line = seal(djson.dumps({"type": "session", **header_to_wire(header)}))
        return compress(line, log.path) if log.compressed else line

    def cut(self, log: StoredLog) -> None:
        """See `Backend.cut`."""
        session_id = log.header.id
        file, _ = self._need(session_id)
        content, stat = self._content(file)
        rest = log.rest
        if not isinstance(rest, _Rest) or _files.revision_of(stat) != log.revision:
            raise AppendRefused(
                f"session {session_id!r} has changed since it was read",
                location=str(file.path),
            )
        with telling(file.path, "cut"):
            if content.torn:  # nobody knows what is in the part that is missing
                start, _ = content.frame_at(rest.good)
                _files.keep_aside(file.folder, "cut", file.suffix, content.raw[start:])
            elif rest.whole_lines:
                _files.keep_aside(file.folder, "cut", ".jsonl", content.text[rest.good :])
            _shorten(file, content, rest.good)
        self._tails.pop(session_id, None)

    def set_archived(self, session_id: str, archived: bool) -> None:
        """See `Backend.set_archived`; the log is renamed in its folder."""
        log, _ = self._need(session_id)
        if log.archived is archived:
            return
        target = log.put(archived)
        with telling(log.path, "renamed"):
            if os.path.lexists(target.path):
                raise PersistenceError(
                    f"session {session_id!r} has two logs",
                    hint="move one of them to another place",
                    location=str(target.path),
                )
            log.path.rename(target.path)
            self._folders.note(session_id, target)
            sync_folder(target.folder)
        self._listing.moved(log, target)

    def remove(self, session_id: str) -> None:
        """See `Backend.remove`."""
        log, _ = self._need(session_id)
        if os.name == "nt":  # a folder with an open file in it does not move there
            self.release(session_id)
        with telling(log.folder, "removed"):
            _files.delete_folder(log.folder)
        self._tails.pop(session_id, None)
        self._folders.note(session_id, None)
        self._listing.gone(log)

    # --- for people -----------------------------------------------------------------------

    def verify(self, session_id: str) -> IntegrityReport:
        """See `Backend.verify`."""
        log, _ = self._need(session_id)
        content, _ = self._content(log)
        found, problem = _examined(session_id, log, content)
        try:
            _check_place(found, session_id, log)
        except SessionCorrupt as error:
            damage = Damage(str(log.path), _without_place(error))
            return IntegrityReport(session_id, str(log.path), 0, (damage,))
        return _report(found, session_id, log, problem)

    def salvage(self, session_id: str) -> IntegrityReport:
        """See `Backend.salvage`; a header that is damaged is made anew."""
        log, _ = self._need(session_id)
        content, stat = self._content(log)
        found, problem = _examined(session_id, log, content)
        _check_place(found, session_id, log)
        report = _report(found, session_id, log, problem)
        if report.sound:
            return report
        _refuse_newer(found, session_id)
        if not found.events:
            raise PersistenceError(
                f"nothing of session {session_id!r} can be saved: no event before the damage",
                hint="restore the file from a backup, or remove the session",
                location=str(log.path),
            )
        header = None
        if problem is not None:
            header = self._header_anew(session_id, log, found.events[0].time)
        with telling(log.path, "salvaged"):
            copy = _files.keep_aside(log.folder, "damaged", log.suffix, content.raw)
            if _files.revision_of(log.path.stat()) != _files.revision_of(stat):
                raise AppendRefused(f"session {session_id!r} has changed meanwhile")
            if header is None:
                _shorten(log, content, found.good)
            else:
                rest = content.text[content.text.index(b"\n") + 1 : found.good]
                rest = compress(rest, log.path) if log.compressed else rest
                _files.replace(log.path, self._head(header, log) + rest)
        self._tails.pop(session_id, None)
        return replace(report, copy=str(copy))

    def _header_anew(self, session_id: str, log: LogFile, began: int) -> SessionHeader:
        """Return the header that the index remembers, or what the place and the log tell of it."""
        known = self._listing.header_of(log)
        if known is not None and known.id == session_id:
            return known
        return SessionHeader(id=session_id, created_at=began)

    # --- inside ---------------------------------------------------------------------------

    def _find(self, session_id: str) -> tuple[LogFile, os.stat_result] | None:
        with telling(self._folders.root, "read"):
            return self._folders.find(session_id)

    def _need(self, session_id: str) -> tuple[LogFile, os.stat_result]:
        found = self._find(session_id)
        if found is None:
            raise StoredSessionNotFound(session_id)
        return found

    def _content(self, log: LogFile) -> tuple[Content, os.stat_result]:
        with telling(log.path, "read"):
            data, stat = _files.read_stable(log.path)
        content = zstd_content(data, log.path) if log.compressed else plain_content(data)
        return content, stat

    def _scan(self, session_id: str, log: LogFile, content: Content) -> Scan:
        found = scan(content, log.path)
        _check_place(found, session_id, log)
        return found

    def _summarized(self, log: LogFile) -> Found:
        """Read a log for a listing."""
        owner = decode_segment(log.folder.name)
        try:
            content, _ = self._content(log)
            found = scan(content, log.path)
            if not found.events and not found.damage:
                return None
            if not in_place(found.header, str(log.path)):
                raise _misplaced(owner or log.folder.name, found.header.id, log)
        except PersistenceError as error:
            gone = isinstance(error.__cause__, FileNotFoundError)
            # it is remembered, and would keep all that was read with it
            error.__context__ = error.__cause__ = None
            return (
                None
                if gone
                else UnreadableSession(str(log.path), error.with_traceback(None), owner)
            )
        damaged = bool(found.damage) and found.unsupported is None
        return found.header, replace(summarize(found.events), damaged=damaged)


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


def _check_place(found: Scan, session_id: str, log: LogFile) -> None:
    if found.header.id != session_id:
        raise _misplaced(session_id, found.header.id, log)


def _misplaced(owner: str, found: str, log: LogFile) -> SessionCorrupt:
    return SessionCorrupt(
        f"the log in the place of session {owner!r} is that of {found!r}",
        hint="move its folder back to where it was",
        location=str(log.path),
    )


def _without_place(error: PersistenceError) -> str:
    """Return what an error says without the place, which is told beside it."""
    return error.message.removesuffix(f" ({error.location})")


def _published(path: Path, data: bytes, session_id: str) -> os.stat_result:
    try:
        with telling(path, "written"):
            return _files.publish(path, data)
    except PersistenceError as error:
        if isinstance(error.__cause__, FileExistsError):
            raise StoredSessionExists(session_id, str(path)) from error
        raise


def _forget(folder: Path) -> None:
    """Take away a folder that was made for a session that could not be written."""
    for step in ((folder / LOCK).unlink, folder.rmdir):
        try:
            step()
        except OSError:
            continue


def _rest(found: Scan) -> _Rest | None:
    return _Rest(found.good, found.lines_cut) if found.damage or found.torn else None


def _refuse_newer(found: Scan, session_id: str) -> None:
    """Raise if the first thing that cannot be read is none that may be cut: another version can."""
    if found.unsupported is not None:
        raise FormatUnsupported(
            f"session {session_id!r} cannot be read here: {found.unsupported.message}",
            hint=found.unsupported.hint,
            location=found.damage[0].where,
        )


def _corrupt(found: Scan, session_id: str) -> SessionCorrupt:
    first = found.damage[0]
    seq = "" if first.seq is None else f" at seq {first.seq}"
    return SessionCorrupt(
        f"session {session_id!r} is damaged{seq}: {first.what}",
        location=first.where,
    )


def _not_contiguous(session_id: str, start: int, expected: int) -> AppendRefused:
    return AppendRefused(
        f"session {session_id!r} continues at seq {expected}, but the batch starts at {start}"
    )


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


def _shorten(log: LogFile, content: Content, good: int) -> None:
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
