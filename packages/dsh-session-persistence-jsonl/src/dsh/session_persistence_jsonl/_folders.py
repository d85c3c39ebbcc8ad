"""Which file holds which session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsh.session_persistence import SessionCorrupt
from dsh.session_persistence_jsonl._names import NO_CWD, encode_segment, project_folder

__all__ = ["Folders", "LogFile"]

_PLAIN: Final = "session.jsonl"
_ARCHIVED: Final = "archived.jsonl"
_ZSTD: Final = ".zst"
_NAMES: Final = (_PLAIN, _PLAIN + _ZSTD, _ARCHIVED, _ARCHIVED + _ZSTD)


@dataclass(frozen=True, slots=True)
class LogFile:
    """The file of one session. Its name says how it is stored and whether it was put away."""

    path: Path

    @property
    def folder(self) -> Path:
        """The session's folder."""
        return self.path.parent

    @property
    def compressed(self) -> bool:
        """Whether it is compressed."""
        return self.path.name.endswith(_ZSTD)

    @property
    def archived(self) -> bool:
        """Whether the session was put away."""
        return self.path.name.startswith(_ARCHIVED)

    @property
    def suffix(self) -> str:
        """What the names of its copies end with."""
        return ".jsonl" + (_ZSTD if self.compressed else "")

    def put(self, archived: bool) -> LogFile:
        """Return the file as it is called when the session is put away, or is not."""
        name = (_ARCHIVED if archived else _PLAIN) + (_ZSTD if self.compressed else "")
        return LogFile(self.path.with_name(name))


class Folders:
    """Finds logs below a root by id; what was found is remembered and looked at again.

    Args:
        root: The folder of the store; it need not exist.
    """

    __slots__ = ("_found", "root")

    def __init__(self, root: Path) -> None:
        self.root = root
        self._found: dict[str, LogFile] = {}

    def place(self, session_id: str, cwd: str | None, compressed: bool) -> LogFile:
        """Return where a new session goes."""
        folder = self.root / project_folder(cwd) / encode_segment(session_id)
        return LogFile(folder / (_PLAIN + (_ZSTD if compressed else "")))

    def known(self, session_id: str) -> LogFile | None:
        """Return where a session was last seen, without looking."""
        return self._found.get(session_id)

    def note(self, session_id: str, log: LogFile | None) -> None:
        """Remember where a session is, or that it is gone."""
        if log is None:
            self._found.pop(session_id, None)
        else:
            self._found[session_id] = log

    def find(self, session_id: str) -> tuple[LogFile, os.stat_result] | None:
        """Return the log of a session, with what the system says about it.

        Raises:
            SessionCorrupt: There are two.
            OSError: A folder cannot be read.
        """
        known = self._found.get(session_id)
        if known is not None:
            try:
                return known, known.path.stat()
            except (FileNotFoundError, NotADirectoryError):
                del self._found[session_id]
        segment = encode_segment(session_id)
        found: list[tuple[LogFile, os.stat_result]] = []
        for project in self.projects():
            found += _logs_in(os.path.join(project, segment), _NAMES)
        if len(found) > 1:
            places = " and ".join(str(log.path) for log, _ in found)
            raise SessionCorrupt(
                f"session {session_id!r} is stored more than once: {places}",
                hint="move all but one of them to another place",
            )
        if not found:
            return None
        self._found[session_id] = found[0][0]
        return found[0]

    def projects(self) -> list[str]:
        """Return the folders of the working directories.

        Raises:
            OSError: The root is there and cannot be read.
        """
        try:
            with os.scandir(self.root) as entries:
                return [
                    entry.path
                    for entry in entries
                    if (entry.name.startswith("--") or entry.name == NO_CWD) and entry.is_dir()
                ]
        except FileNotFoundError:
            return []

    def logs(self, archived: bool) -> Iterator[tuple[str, os.stat_result | OSError]]:
        """Return the paths of all logs, with what the system says about each.

        That is an error where it lets nobody look; then the path may be that of a folder in which
        logs would be. What goes away meanwhile is left out.

        Raises:
            OSError: The root is there and cannot be read.
        """
        names = _NAMES[2:] if archived else _NAMES[:2]
        for project in self.projects():
            try:
                with os.scandir(project) as entries:
                    folders = [entry.path for entry in entries if entry.name[0] != "."]
            except FileNotFoundError:
                continue
            except OSError as error:
                yield project, error
                continue
            for folder in folders:
                for name in names:
                    path = f"{folder}{os.sep}{name}"
                    try:
                        yield path, os.stat(path)
                    except (FileNotFoundError, NotADirectoryError):
                        continue
                    except OSError as error:
                        yield folder, error
                    break


def _logs_in(folder: str, names: tuple[str, ...]) -> Iterator[tuple[LogFile, os.stat_result]]:
    if not os.path.isdir(folder):
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield LogFile(Path(path)), found
