"""Errors about the user's own files."""

from __future__ import annotations

from dsh.core import DshError

__all__ = ["StateFileError"]


class StateFileError(DshError):
    """A file in the user's own folder cannot be read or written."""

    code = "STATE_FILE"
