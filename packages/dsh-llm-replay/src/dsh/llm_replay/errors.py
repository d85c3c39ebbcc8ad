"""What goes wrong with scripts and recordings, with stable codes."""

from __future__ import annotations

from typing import ClassVar

from dsh.llm.errors import LlmError

__all__ = ["NotConsumedError", "ReplayError"]


class ReplayError(LlmError):
    """A script or a recording cannot be used, or has no answer for a call.

    Raised while an answer streams it ends the call like any other error of an adapter, so a
    test that ignores it still sees the turn fail with its code.
    """

    SCRIPT_EXHAUSTED: ClassVar[str] = "SCRIPT_EXHAUSTED"
    """The model was called more often than the script has entries."""
    UNBOUND_SESSION: ClassVar[str] = "UNBOUND_SESSION"
    """More sessions call the model than there are recordings."""
    UNFINISHED_CALL: ClassVar[str] = "UNFINISHED_CALL"
    """A recorded call has no finish, so nobody knows how it ended."""
    BAD_ENTRY: ClassVar[str] = "BAD_ENTRY"
    """A script entry is malformed."""
    BAD_RECORDING: ClassVar[str] = "BAD_RECORDING"
    """A recording has a malformed row."""
    BAD_OVERRIDE: ClassVar[str] = "BAD_OVERRIDE"
    """A sidecar is malformed, or patches an entry that does not exist."""
    BAD_PLACEHOLDER: ClassVar[str] = "BAD_PLACEHOLDER"
    """A placeholder is malformed or matches nothing in the request."""
    NOT_CONSUMED: ClassVar[str] = "NOT_CONSUMED"
    """Entries were left over."""


class NotConsumedError(ReplayError, AssertionError):
    """A script was not used up; also an `AssertionError`, so test runners report a failure."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, code=self.NOT_CONSUMED, hint=hint)
