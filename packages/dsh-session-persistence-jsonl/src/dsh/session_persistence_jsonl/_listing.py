"""Listings: fast because of what is remembered, exact because each log's file is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from dsh.session import SessionHeader
from dsh.session_persistence import SessionSnapshot, SessionSummary
from dsh.session_persistence_jsonl._files import revision_of
from dsh.session_persistence_jsonl._folders import Folders, LogFile
from dsh.session_persistence_jsonl._index import Entry, Index

__all__ = ["INDEX", "Listing"]

INDEX: Final = "index.sqlite"
"""Name of the cache in the root folder."""

_PAUSE_S: Final = 1.0
"""Seconds between two writes of the index, so that short turns do not pay for it each."""


class Listing:
    """Tells what is stored.

    Args:
        folders: Where the logs are.
        read: Reads a log that nothing is known about; None if it is not to be listed.
    """

    __slots__ = ("_entries", "_folders", "_index", "_late", "_read", "_told", "_unlisted")

    def __init__(
        self,
        folders: Folders,
        read: Callable[[LogFile], tuple[SessionHeader, SessionSummary] | None],
    ) -> None:
        self._folders = folders
        self._read = read
        self._index = Index(folders.root / INDEX)
        self._entries: dict[str, Entry] = {}
        self._late: dict[str, Entry] = {}
        self._unlisted: dict[str, tuple[int, int]] = {}
        self._told = -_PAUSE_S

    def snapshots(self, archived: bool) -> list[SessionSnapshot]:
        """Return one line for each log.

        Raises:
            OSError: The root cannot be read.
        """
        found: list[SessionSnapshot] = []
        unknown: list[tuple[str, os.stat_result]] = []
        seen: set[str] = set()
        for path, stat in self._folders.logs(archived):
            seen.add(path)
            entry = self._entries.get(path)
            if entry is not None and _fits(entry, stat):
                found.append(_snapshot(entry, stat, archived))
            elif self._unlisted.get(path) != (stat.st_size, stat.st_mtime_ns):
                unknown.append((path, stat))
        if unknown:
            self._load(archived, seen)
            found += self._look_up(unknown, archived)
        return found

    def _load(self, archived: bool, seen: set[str]) -> None:
        """Take over what the index knows, and drop from it what is no longer there."""
        gone: list[str] = []
        for key, entry in self._index.load().items():
            path = self._path(key)
            if path in seen:
                self._entries[path] = entry
            elif LogFile(Path(path)).archived is archived:
                gone.append(key)
        self._index.drop(gone)

    def _look_up(
        self, unknown: list[tuple[str, os.stat_result]], archived: bool
    ) -> list[SessionSnapshot]:
        found: list[SessionSnapshot] = []
        fresh: list[tuple[str, Entry]] = []
        for path, stat in unknown:
            entry = self._entries.get(path)
            if entry is None or not _fits(entry, stat):
                read = self._read(LogFile(Path(path)))
                if read is None:
                    self._entries.pop(path, None)
                    self._unlisted[path] = (stat.st_size, stat.st_mtime_ns)
                    continue
                entry = Entry(stat.st_size, stat.st_mtime_ns, *read)
                self._entries[path] = entry
                fresh.append((self._key(path), entry))
            found.append(_snapshot(entry, stat, archived))
        self._index.put(fresh)
        return found

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


def _snapshot(entry: Entry, stat: os.stat_result, archived: bool) -> SessionSnapshot:
    return SessionSnapshot(entry.header, revision_of(stat), archived, entry.summary, stat.st_size)
