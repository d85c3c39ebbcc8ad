"""Names of folders: what stands for a working directory and for a session id on disk."""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["NO_CWD", "decode_segment", "encode_segment", "project_folder"]

NO_CWD: Final = "_no-cwd"
"""Folder of the sessions that have no working directory."""

_SLUG_UNITS: Final = 251
"""Longest slug: with its dashes it still is a name any file system takes."""

_SEGMENT_UNITS: Final = 180
"""An id whose name would be longer is shortened to its start and a digest."""

_SEPARATORS: Final = re.compile(r"[/\\:]+")
_NOT_IN_SLUG: Final = re.compile(r"[^A-Za-z0-9._-]", re.DOTALL)
_NOT_IN_SEGMENT: Final = re.compile(r"[^a-z0-9._-]", re.DOTALL)
_ESCAPED: Final = re.compile("~([0-9a-f]{4})")
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)")


def project_folder(cwd: str | None) -> str:
    """Return the name of the folder for the sessions of a working directory.

    It is made for people: two directories may share one, and the header of each session says
    which it belongs to.
    """
    if cwd is None:
        return NO_CWD
    slug = _NOT_IN_SLUG.sub(_escape, _SEPARATORS.sub("-", cwd)).lstrip("-") or "root"
    return f"--{slug[:_SLUG_UNITS]}--"


def encode_segment(session_id: str) -> str:
    """Return the name of a session's folder; no two ids have the same.

    The names differ on file systems that ignore case too, and mean nothing to any system: no
    `..`, no devices, no trailing dot. A very long id keeps its beginning and gets a digest.

    Raises:
        ValueError: The id is empty.
    """
    if not session_id:
        raise ValueError("the id of a session is empty")
    name = _NOT_IN_SEGMENT.sub(_escape, session_id)
    if name[0] == "." or _DEVICES.match(name):
        name = _unit(ord(name[0])) + name[1:]
    if name[-1] == ".":
        name = name[:-1] + _unit(ord("."))
    if len(name) > _SEGMENT_UNITS:
        # no short name has two tildes in a row
        digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[: _SEGMENT_UNITS - 66].rstrip('~')}~~{digest}"
    return name


def decode_segment(name: str) -> str | None:
    """Return the id whose folder has a name; None where it was shortened, or is no such name."""
    try:
        session_id = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)
        # what stands in two units is one character
        session_id = session_id.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return session_id if encode_segment(session_id) == name else None
    except ValueError:
        return None


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(_unit(int.from_bytes(units[at : at + 2])) for at in range(0, len(units), 2))


def _unit(code: int) -> str:
    return f"~{code:04x}"
