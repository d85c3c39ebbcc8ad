"""Sidecars: what a recording cannot say, said beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dsh.llm_replay._entries import Entry
from dsh.llm_replay._recording import RecordedCall
from dsh.llm_replay._steps import entries_from, entry_from
from dsh.llm_replay.errors import ReplayError


@dataclass(frozen=True, slots=True)
class Patch:
    """Takes the place of one recorded call."""

    at: int
    """Index of the call, from 0; the number of calls appends one."""
    entry: Entry
    """What the call gets instead."""


@dataclass(frozen=True, slots=True)
class Override:
    """Either a whole script or patches over the recorded calls."""

    entries: tuple[Entry, ...] | None = None
    """The whole script; the recording is not looked at."""
    patches: tuple[Patch, ...] = ()
    """Patches, at most one for each place."""


def load_override(path: Path) -> Override:
    """Read a sidecar: a JSON list of steps, or `{"patches": [{"at": n, "entry": step}, ...]}`.

    Raises:
        ReplayError: Code `BAD_OVERRIDE`, with the file and the place.
        OSError: If the file cannot be read.
    """
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
        return override_from(value)
    except ValueError as error:
        raise _bad(f"{path} is not JSON: {error}") from error
    except ReplayError as error:
        raise _bad(f"{path}: {error.message}") from error


def override_from(value: object) -> Override:
    """Turn the JSON of a sidecar into an override.

    Raises:
        ReplayError: Code `BAD_OVERRIDE` or `BAD_ENTRY`.
    """
    if isinstance(value, list):
        return Override(entries_from(cast("Sequence[Any]", value), where="the sidecar"))
    if not isinstance(value, Mapping):
        raise _bad("a sidecar is a list of steps or an object with `patches`")
    fields = cast("Mapping[str, Any]", value)
    patches = fields.get("patches")
    if set(fields) != {"patches"} or not isinstance(patches, list):
        raise _bad("a sidecar object has one field, the list `patches`")
    items = cast("Sequence[Any]", patches)
    return Override(patches=tuple([_patch(item) for item in items]))


def script_of(calls: Sequence[RecordedCall], override: Override | None = None) -> list[Entry]:
    """Turn recorded calls into script entries.

    Args:
        calls: The calls of a recording.
        override: The sidecar.

    Raises:
        ReplayError: Code `UNFINISHED_CALL`, if a call has no finish and no patch replaces it;
            `BAD_OVERRIDE`, if two patches have one place or a place is out of range.
    """
    override = override or Override()
    if override.entries is not None:
        return list(override.entries)
    script: list[Entry | None] = [call.answer if call.finished else None for call in calls]
    seen: set[int] = set()
    for patch in sorted(override.patches, key=lambda item: item.at):
        if patch.at in seen:
            raise _bad(f"two patches for call {patch.at}")
        if not 0 <= patch.at <= len(script):
            raise _bad(f"a patch for call {patch.at}, but there are {len(script)} calls")
        seen.add(patch.at)
        script[patch.at : patch.at + 1] = [patch.entry]
    result: list[Entry] = []
    for index, entry in enumerate(script):
        if entry is None:
            call = calls[index]
            raise ReplayError(
                f"recorded call {index} (turn {call.turn}, step {call.step}) has no finish",
                code=ReplayError.UNFINISHED_CALL,
                hint="say in a sidecar how it ended: an entry of kind throw or hang",
            )
        result.append(entry)
    return result


def _patch(value: object) -> Patch:
    if not isinstance(value, Mapping):
        raise _bad("a patch is an object {at, entry}")
    fields = cast("Mapping[str, Any]", value)
    at = fields.get("at")
    if set(fields) != {"at", "entry"} or type(at) is not int:
        raise _bad("a patch is an object {at, entry}, and `at` is an integer")
    return Patch(at, entry_from(fields["entry"]))


def _bad(message: str) -> ReplayError:
    return ReplayError(message, code=ReplayError.BAD_OVERRIDE)
