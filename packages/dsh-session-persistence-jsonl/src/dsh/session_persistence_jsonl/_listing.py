"""Listings: fast because of what is remembered, exact because each log's file is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from dsh.session import SessionHeader
from dsh.session_persistence import SessionSnapshot, SessionSummary, UnreadableSession
from dsh.session_persistence_jsonl._files import revision_of
from dsh.session_persistence_jsonl._folders import Folders, LogFile
from dsh.session_persistence_jsonl._index import Entry, Index
from dsh.session_persistence_jsonl._names import NO_CWD, decode_segment, encode_segment
from dsh.session_persistence_jsonl._storage_errors import storage_error

__all__ = ["INDEX", "Found", "Listing", "in_place"]

Found: TypeAlias = tuple[SessionHeader, SessionSummary] | UnreadableSession | None
"""What reading a log came to; None if it holds no session."""

INDEX: Final = "index.sqlite"
"""Name of the cache in the root folder."""

_PAUSE_S: Final = 1.0
"""Seconds between two writes of the index, so that short turns do not pay for it each."""


class Listing:
    """Tells what is stored.

    Args:
        folders: Where the logs are.
        read: Reads a log that nothing is known about.
    """

    __slots__ = ("_entries", "_folders", "_index", "_late", "_read", "_told", "_unlisted")

    def __init__(
        self,
        folders: Folders,
        read: Callable[[LogFile], Found],
    ) -> None:
        self._folders = folders
        self._read = read
        self._index = Index(folders.root / INDEX)
        self._entries: dict[str, Entry] = {}
        self._late: dict[str, Entry] = {}
        self._unlisted: dict[str, tuple[tuple[int, int, int], UnreadableSession | None]] = {}
        self._told = -_PAUSE_S

    def snapshots(self, archived: bool) -> list[SessionSnapshot]:
        """Return one line for each log.

        Raises:
            OSError: The root cannot be read.
        """
        return self._look(archived)[0]

    def unreadable(self) -> list[UnreadableSession]:
        """Return what `snapshots` leaves out because it cannot be read.

        Raises:
            OSError: The root cannot be read.
        """
        told = {item.where: item for archived in (False, True) for item in self._look(archived)[1]}
        return list(told.values())

    def header_of(self, log: LogFile) -> SessionHeader | None:
        """Return the header that the index remembers of a log, whatever has become of the file."""
        entry = self._index.load().get(self._key(str(log.path)))
        return None if entry is None else entry.header

    def _look(self, archived: bool) -> tuple[list[SessionSnapshot], list[UnreadableSession]]:
        found: list[SessionSnapshot] = []
        told: list[UnreadableSession] = []
        unknown: list[tuple[str, os.stat_result]] = []
        seen: set[str] = set()
        for path, stat in self._folders.logs(archived):
            if isinstance(stat, OSError):
                told.append(_closed(path, stat))
                continue
            seen.add(path)
            entry = self._entries.get(path)
            unlisted = self._unlisted.get(path)
            if entry is not None and _fits(entry, stat):
                found.append(_snapshot(entry, stat, archived))
            elif unlisted is None or unlisted[0] != _state(stat):
                unknown.append((path, stat))
            elif unlisted[1] is not None:
                told.append(unlisted[1])
        if unknown:
            self._load(archived, seen)
            self._look_up(unknown, archived, found, told)
        return found, told

    def _load(self, archived: bool, seen: set[str]) -> None:
        """Take over what the index knows, and drop from it what is no longer there."""
        gone: list[str] = []
        for key, entry in self._index.load().items():
            path = self._path(key)
            if path in seen:
                if in_place(entry.header, path):
                    self._entries[path] = entry
            elif LogFile(Path(path)).archived is archived:
                gone.append(key)
        self._index.drop(gone)

    def _look_up(
        self,
        unknown: list[tuple[str, os.stat_result]],
        archived: bool,
        found: list[SessionSnapshot],
        told: list[UnreadableSession],
    ) -> None:
        fresh: list[tuple[str, Entry]] = []
        for path, stat in unknown:
            entry = self._entries.get(path)
            if entry is None or not _fits(entry, stat):
                read = self._read(LogFile(Path(path)))
                if read is None or isinstance(read, UnreadableSession):
                    self._entries.pop(path, None)
                    self._unlisted[path] = (_state(stat), read)
                    if read is not None:
                        told.append(read)
                    continue
                entry = Entry(stat.st_size, stat.st_mtime_ns, *read)
                self._entries[path] = entry
                fresh.append((self._key(path), entry))
            found.append(_snapshot(entry, stat, archived))
        self._index.put(fresh)

    # --- changes made here ----------------------------------------------------------------

    def wrote(
        self, log: LogFile, stat: os.stat_result, header: SessionHeader, summary: SessionSummary
    ) -> None:
        """Note what a log comes to; the index hears of it when a turn has ended, or later."""
        path = str(log.path)
        self._late[path] = self._entries[path] = Entry(
            stat.st_size, stat.st_mtime_ns, header, summary
        )
        if summary.ended is not None and monotonic() - self._told >= _PAUSE_S:
            self._tell()

    def settle(self, log: LogFile) -> None:
        """Tell the index what it has not heard of a log."""
        path = str(log.path)
        entry = self._late.pop(path, None)
        if entry is not None:
            self._index.put([(self._key(path), entry)])

    def moved(self, old: LogFile, new: LogFile) -> None:
        """Note that a log has another name."""
        entry = self._entries.pop(str(old.path), None)
        self._late.pop(str(old.path), None)
        self._index.drop([self._key(str(old.path))])
        if entry is not None:
            self._entries[str(new.path)] = entry
            self._index.put([(self._key(str(new.path)), entry)])

    def gone(self, log: LogFile) -> None:
        """Note that a log is no longer there."""
        self._entries.pop(str(log.path), None)
        self._late.pop(str(log.path), None)
        self._index.drop([self._key(str(log.path))])

    def close(self) -> None:
        """Tell the index the rest, and let go of it."""
        self._tell()
        self._index.close()

    def _tell(self) -> None:
        self._index.put([(self._key(path), entry) for path, entry in self._late.items()])
        self._late.clear()
        self._told = monotonic()

    def _key(self, path: str) -> str:
        return os.path.relpath(path, self._folders.root)

    def _path(self, key: str) -> str:
        return os.path.join(self._folders.root, key)


def _fits(entry: Entry, stat: os.stat_result) -> bool:
    return entry.size == stat.st_size and entry.mtime == stat.st_mtime_ns


def _state(stat: os.stat_result) -> tuple[int, int, int]:
    # access that was taken or given changes the last of these alone
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def in_place(header: SessionHeader, path: str) -> bool:
    """Return whether a log lies in the folder of its session."""
    return encode_segment(header.id) == os.path.basename(os.path.dirname(path))


def _closed(path: str, error: OSError) -> UnreadableSession:
    """Tell of a folder that the system lets nobody look into: a session's, or a project's."""
    name = os.path.basename(path)
    project = name.startswith("--") or name == NO_CWD
    return UnreadableSession(
        path,
        storage_error(error, Path(path), "read"),
        None if project else decode_segment(name),
    )


def _snapshot(entry: Entry, stat: os.stat_result, archived: bool) -> SessionSnapshot:
    return SessionSnapshot(entry.header, revision_of(stat), archived, entry.summary, stat.st_size)
