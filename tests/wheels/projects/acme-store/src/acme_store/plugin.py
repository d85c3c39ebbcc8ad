"""The store: a header and then an event on each line, written through to the disk."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, unquote

from dsh.core import settings
from dsh.session import (
    SessionEvent,
    SessionHeader,
    event_from_wire,
    event_to_wire,
    header_from_wire,
    header_to_wire,
    interrupted_turn_closers,
)
from dsh.session_persistence import (
    AppendRefused,
    BackedPersistence,
    Backend,
    Damage,
    IntegrityReport,
    PersistenceError,
    SessionCorrupt,
    SessionInUse,
    SessionSnapshot,
    SessionSummary,
    StoredLog,
    StoredSessionExists,
    StoredSessionNotFound,
    summarize,
)


class FileBackend(Backend):
    """Keeps `<id>.jsonl` in one folder, `<id>.lock` beside it, `<id>.away` if it was put away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, int] = {}

    def open(self) -> None:
        """Need nothing."""

    def close(self) -> None:
        for session_id in tuple(self._locks):
            self.release(session_id)

    def acquire(self, session_id: str) -> None:
        if session_id in self._locks:
            return
        handle = os.open(self._path(session_id, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 100, 0).decode()
            os.close(handle)
            raise SessionInUse(f"session {session_id!r} is in use by process {holder}") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._locks[session_id] = handle

    def release(self, session_id: str) -> None:
        handle = self._locks.pop(session_id, None)
        if handle is not None:
            os.close(handle)

    def revision(self, session_id: str) -> str | None:
        try:
            found = self._path(session_id).stat()
        except FileNotFoundError:
            return None
        return f"{found.st_size}-{found.st_mtime_ns}"

    def read(self, session_id: str) -> StoredLog:
        header, events, good, damage = self._scan(session_id)
        if damage is not None:
            raise SessionCorrupt(
                f"session {session_id!r} is damaged: {damage.where}: {damage.what}",
                location=str(self._path(session_id)),
            )
        assert header is not None
        size = self._path(session_id).stat().st_size
        revision = self.revision(session_id) or ""
        return StoredLog(header, tuple(events), revision, None if good == size else good)

    def list(self, archived: bool) -> Iterable[SessionSnapshot]:
        for path in self._folder.glob("*.jsonl"):
            session_id = unquote(path.stem)
            try:
                log = self.read(session_id)
            except PersistenceError:
                continue
            if self._path(session_id, "away").exists() is archived:
                summary = summarize(log.events)
                size = path.stat().st_size
                yield SessionSnapshot(log.header, log.revision, archived, summary, size)

    def write(
        self, header: SessionHeader, events: Sequence[SessionEvent], summary: SessionSummary
    ) -> None:
        path = self._path(header.id)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = [json.dumps(event_to_wire(event)) for event in events]
        if events[0].seq == 0:
            if path.exists():
                raise StoredSessionExists(header.id, str(path))
            lines.insert(0, json.dumps(header_to_wire(header)))
        elif not path.exists():
            raise AppendRefused(f"session {header.id!r} is not stored")
        self.acquire(header.id)
        with path.open("ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())

    def cut(self, log: StoredLog) -> None:
        assert isinstance(log.rest, int)
        os.truncate(self._path(log.header.id), log.rest)

    def set_archived(self, session_id: str, archived: bool) -> None:
        if self.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        mark = self._path(session_id, "away")
        if archived:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def remove(self, session_id: str) -> None:
        if self.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        self._path(session_id).unlink()
        self._path(session_id, "away").unlink(missing_ok=True)

    def verify(self, session_id: str) -> IntegrityReport:
        if self.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        _, events, good, damage = self._scan(session_id)
        return IntegrityReport(
            session_id,
            str(self._path(session_id)),
            len(events),
            () if damage is None else (damage,),
            torn=damage is None and good != self._path(session_id).stat().st_size,
            interrupted=damage is None and bool(interrupted_turn_closers(events)),
        )

    def salvage(self, session_id: str) -> IntegrityReport:
        report = self.verify(session_id)
        if report.sound:
            return report
        header, events, good, _ = self._scan(session_id)
        if header is None:
            raise PersistenceError(f"session {session_id!r} cannot be saved: no header")
        path, copy = self._path(session_id), self._path(session_id, "damaged")
        shutil.copy(path, copy)
        os.truncate(path, good)
        return IntegrityReport(session_id, str(path), len(events), report.damage, copy=str(copy))

    def locate(self, header: SessionHeader) -> str | None:
        return str(self._path(header.id))

    def _path(self, session_id: str, suffix: str = "jsonl") -> Path:
        return self._folder / f"{quote(session_id, safe='')}.{suffix}"

    def _scan(
        self, session_id: str
    ) -> tuple[SessionHeader | None, list[SessionEvent], int, Damage | None]:
        """Return header, events, the size of what is good, and the first damage."""
        try:
            data = self._path(session_id).read_bytes()
        except FileNotFoundError:
            raise StoredSessionNotFound(session_id) from None
        header: SessionHeader | None = None
        events: list[SessionEvent] = []
        good = 0
        for number, line in enumerate(data.splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                break
            try:
                value = json.loads(line)
                if header is None:
                    header = header_from_wire(value)
                else:
                    event = event_from_wire(value)
                    if event.seq != len(events):
                        raise ValueError(f"seq {event.seq} in place of {len(events)}")
                    events.append(event)
            except Exception as error:  # whatever is wrong with it
                what = str(error).splitlines()[0]
                return header, events, good, Damage(f"line {number}", what, len(events))
            good += len(line)
        return header, events, good, None


class AcmeStore(BackedPersistence):
    """Keeps one plain file a session."""

    name: ClassVar[str] = "acme-store"

    class Config(BackedPersistence.Config):
        """Configuration."""

        folder: str | None = None
        """Where the sessions are kept; `acme-sessions` in the user's own folder if left out."""

    config = settings(Config)

    def make_backend(self) -> Backend:
        own = os.environ.get("DSH_HOME") or os.path.expanduser("~/.dsh")
        return FileBackend(Path(self.config.folder or os.path.join(own, "acme-sessions")))
