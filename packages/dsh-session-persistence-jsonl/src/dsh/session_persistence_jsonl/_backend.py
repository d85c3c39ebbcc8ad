"""The backend: one append-only file of JSON lines a session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from dsh.paths import make_folder, sync_folder
from dsh.session import (
    SessionEvent,
    SessionHeader,
    encode_event,
)
from dsh.session_persistence import (
    AppendRefused,
    IntegrityReport,
    PersistenceError,
    RawArtifact,
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
from dsh.session_persistence_jsonl._folders import Folders, LogFile
from dsh.session_persistence_jsonl._lines import seal, seed_of
from dsh.session_persistence_jsonl._listing import Found, Listing, in_place
from dsh.session_persistence_jsonl._locks import LOCK, SessionLock
from dsh.session_persistence_jsonl._log_reader import Scan, scan
from dsh.session_persistence_jsonl._names import decode_segment, encode_segment
from dsh.session_persistence_jsonl._pack import Packer
from dsh.session_persistence_jsonl._refusals import check_place, corrupt, misplaced, refuse_newer
from dsh.session_persistence_jsonl._salvage import header_row, salvaged, shorten, verified
from dsh.session_persistence_jsonl._storage_errors import as_storage_errors

__all__ = ["JsonlBackend"]


@dataclass(slots=True)
class _Tail:
    """Where a log that is written here ends."""

    revision: str
    size: int
    next_seq: int
    packer: Packer
    dirty: bool = False
    """Whether a write failed, which may have left something behind the end."""


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
        with as_storage_errors(folder, "locked"):
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
        refuse_newer(found, session_id)
        if found.damage and (found.committed or not found.events):
            raise corrupt(found, session_id)
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
        with as_storage_errors(self._folders.root, "listed"):
            return self._listing.snapshots(archived)

    def unreadable(self) -> Iterable[UnreadableSession]:
        """See `Backend.unreadable`."""
        with as_storage_errors(self._folders.root, "listed"):
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
        tail = self._load_tail(session_id, log, stat)
        if start != tail.next_seq:
            raise _not_contiguous(session_id, start, tail.next_seq)
        # if this fails, the packer has taken note of what is not there
        self._tails[session_id] = replace(tail, dirty=True, packer=Packer())
        data = self._encoded(session_id, tail.packer, events, log)
        with as_storage_errors(log.path, "written"):
            stat = _files.append(log.path, data, tail.size)
        self._wrote(log, stat, header, summary, start + len(events), tail.packer)

    def _create(
        self, header: SessionHeader, events: Sequence[SessionEvent], summary: SessionSummary
    ) -> None:
        session_id = header.id
        log = self._folders.place(session_id, header.cwd, self._compressed)
        packer = Packer()
        data = header_row(header, log) + self._encoded(session_id, packer, events, log)
        with as_storage_errors(log.folder, "made"):
            made = make_folder(log.folder)
        lock = SessionLock(log.folder)
        with ExitStack() as undo:
            if made:
                undo.callback(_forget, log.folder)
            self._take(session_id, lock, log.folder)
            undo.callback(self._locks.pop, session_id)
            undo.callback(lock.give_up)
            if self._find(session_id) is not None:
                raise StoredSessionExists(session_id, str(log.path))
            if not made:
                _files.tidy(log.folder)
            stat = _published(log.path, data, session_id)
            undo.pop_all()
        self._folders.note(session_id, log)
        self._wrote(log, stat, header, summary, len(events), packer)

    def _wrote(
        self,
        log: LogFile,
        stat: os.stat_result,
        header: SessionHeader,
        summary: SessionSummary,
        next_seq: int,
        packer: Packer,
    ) -> None:
        revision = _files.revision_of(stat)
        self._tails[header.id] = _Tail(revision, stat.st_size, next_seq, packer)
        self._listing.wrote(log, stat, header, summary)

    def _load_tail(self, session_id: str, log: LogFile, stat: os.stat_result) -> _Tail:
        """Return where a log ends that is locked; what a failed write left there goes first."""
        tail = self._tails.get(session_id)
        if tail is not None and tail.dirty and tail.size <= stat.st_size:
            if tail.size < stat.st_size:
                with as_storage_errors(log.path, "cut"):
                    _files.truncate(log.path, tail.size)
            return tail
        if tail is None or tail.dirty or tail.revision != _files.revision_of(stat):
            stored = self.read(session_id)
            if stored.rest is not None:
                self.cut(stored)
                self.read(session_id)
            tail = self._tails[session_id]
        return tail

    def _encoded(
        self, session_id: str, packer: Packer, events: Sequence[SessionEvent], log: LogFile
    ) -> bytes:
        seed = seed_of(session_id)
        rows = packer.rows(events) if self._packed else map(encode_event, events)
        text = b"".join(seal(row, seed) for row in rows)
        return compress(text, log.path) if log.compressed else text

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
        with as_storage_errors(file.path, "cut"):
            if content.torn:  # nobody knows what is in the part that is missing
                start, _ = content.frame_at(rest.good)
                _files.keep_aside(file.folder, "cut", file.suffix, content.raw[start:])
            elif rest.whole_lines:
                _files.keep_aside(file.folder, "cut", ".jsonl", content.text[rest.good :])
            shorten(file, content, rest.good)
        self._tails.pop(session_id, None)

    def set_archived(self, session_id: str, archived: bool) -> None:
        """See `Backend.set_archived`; the log is renamed in its folder."""
        log, _ = self._need(session_id)
        if log.archived is archived:
            return
        target = log.put(archived)
        with as_storage_errors(log.path, "renamed"):
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
        with as_storage_errors(log.folder, "removed"):
            _files.delete_folder(log.folder)
        self._tails.pop(session_id, None)
        self._folders.note(session_id, None)
        self._listing.gone(log)

    # --- for people -----------------------------------------------------------------------

    def verify(self, session_id: str) -> IntegrityReport:
        """See `Backend.verify`."""
        log, _ = self._need(session_id)
        content, _ = self._content(log)
        return verified(session_id, log, content)

    def salvage(self, session_id: str) -> IntegrityReport:
        """See `Backend.salvage`; a header that is damaged is made anew."""
        log, _ = self._need(session_id)
        content, stat = self._content(log)
        report = salvaged(session_id, log, content, stat, self._listing.header_of)
        if report.copy is not None:
            self._tails.pop(session_id, None)
        return report

    # --- inside ---------------------------------------------------------------------------

    def _find(self, session_id: str) -> tuple[LogFile, os.stat_result] | None:
        with as_storage_errors(self._folders.root, "read"):
            return self._folders.find(session_id)

    def _need(self, session_id: str) -> tuple[LogFile, os.stat_result]:
        found = self._find(session_id)
        if found is None:
            raise StoredSessionNotFound(session_id)
        return found

    def _content(self, log: LogFile) -> tuple[Content, os.stat_result]:
        with as_storage_errors(log.path, "read"):
            data, stat = _files.read_stable(log.path)
        content = zstd_content(data, log.path) if log.compressed else plain_content(data)
        return content, stat

    def _scan(self, session_id: str, log: LogFile, content: Content) -> Scan:
        found = scan(content, log.path)
        check_place(found, session_id, log)
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
                raise misplaced(owner or log.folder.name, found.header.id, log)
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


def _published(path: Path, data: bytes, session_id: str) -> os.stat_result:
    try:
        with as_storage_errors(path, "written"):
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


def _not_contiguous(session_id: str, start: int, expected: int) -> AppendRefused:
    return AppendRefused(
        f"session {session_id!r} continues at seq {expected}, but the batch starts at {start}"
    )
