"""Which files of strangers' folders the person has vouched for, by path and content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dsh.core import json as djson
from dsh.core import now_ms
from dsh.core.json import JsonObject
from dsh.paths import StateFileError, read_private, state_folder, write_private

_FILE: Final = "trust.json"
_VERSION: Final = 1

TrustState = Literal["trusted", "changed", "unknown"]
"""`changed`: this path was trusted with other content."""


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """One file the person has trusted."""

    path: Path
    """Absolute path, symbolic links resolved."""
    digest: str
    """SHA-256 of the content that was trusted, in hexadecimal."""
    time: int
    """When, in milliseconds since the epoch."""


class TrustStore:
    """The record of trusted files, kept in the user's state folder.

    A file counts as trusted while it stands at the same path with the same bytes. The same record
    serves every kind of file that a project may bring: deployments, hooks, skills, commands.

    Args:
        file: The record; `None` where the user has no home, and then nothing is ever trusted.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file

    @classmethod
    def open(cls) -> TrustStore:
        """Return the current user's record; nothing is created until something is trusted."""
        folder = state_folder()
        return cls(None if folder is None else folder / _FILE)

    def state(self, path: Path, content: bytes) -> TrustState:
        """Tell whether `path` with these very bytes is trusted.

        Raises:
            StateFileError: The record exists and is unreadable.
        """
        digest = self._load().get(_key(path))
        if digest is None:
            return "unknown"
        return "trusted" if digest.digest == _digest(content) else "changed"

    def trust(self, path: Path, content: bytes) -> TrustRecord:
        """Trust `path` with these bytes, instead of what was trusted there before.

        Raises:
            StateFileError: The record cannot be read or written.
        """
        records = self._load()
        record = TrustRecord(Path(_key(path)), _digest(content), now_ms())
        records[str(record.path)] = record
        self._save(records)
        return record

    def revoke(self, path: Path) -> bool:
        """Forget `path`; returns whether it was trusted.

        Raises:
            StateFileError: The record cannot be read or written.
        """
        records = self._load()
        if records.pop(_key(path), None) is None:
            return False
        self._save(records)
        return True

    def records(self) -> tuple[TrustRecord, ...]:
        """Return everything trusted, sorted by path.

        Raises:
            StateFileError: The record exists and is unreadable.
        """
        return tuple(sorted(self._load().values(), key=lambda record: str(record.path)))

    def _load(self) -> dict[str, TrustRecord]:
        if self.file is None:
            return {}
        data = read_private(self.file)
        if data is None:
            return {}
        try:
            return _decode(djson.loads(data))
        except (ValueError, KeyError, TypeError) as error:
            raise StateFileError(
                f"{self.file}: not a trust record",
                hint="remove the file and trust your projects again",
            ) from error

    def _save(self, records: Mapping[str, TrustRecord]) -> None:
        if self.file is None:
            raise StateFileError(
                "there is no home folder to keep trust in", hint="set HOME or DSH_HOME"
            )
        entries: JsonObject = {
            path: {"sha256": record.digest, "time": record.time}
            for path, record in sorted(records.items())
        }
        write_private(self.file, djson.dumps({"version": _VERSION, "files": entries}) + b"\n")


def _decode(value: djson.JsonValue) -> dict[str, TrustRecord]:
    if not isinstance(value, dict) or value["version"] != _VERSION:
        raise ValueError("unknown version")
    files = value["files"]
    if not isinstance(files, dict):
        raise TypeError("files is no object")
    records: dict[str, TrustRecord] = {}
    for path, entry in files.items():
        if not isinstance(entry, dict):
            raise TypeError("an entry is no object")
        digest, time = entry["sha256"], entry["time"]
        if not isinstance(digest, str) or not isinstance(time, int):
            raise TypeError("an entry has fields of the wrong kind")
        records[path] = TrustRecord(Path(path), digest, time)
    return records


def _key(path: Path) -> str:
    return os.path.realpath(path)


def _digest(content: bytes) -> str:
    # pulls in OpenSSL; only a project file or `dsh trust` needs it
    from hashlib import sha256

    return sha256(content).hexdigest()
