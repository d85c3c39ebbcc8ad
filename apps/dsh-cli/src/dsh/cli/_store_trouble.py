"""What a run says of a store that fails to keep its session."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from dsh.cli._exit_codes import USAGE
from dsh.cli._recording import RECORD
from dsh.cli._resume import ResumeFrom, not_resumable
from dsh.cli._view import Report
from dsh.cli.errors import CliError
from dsh.core import DshError
from dsh.loader import BootError
from dsh.session import AssistantChunk, AssistantMessage, SessionEvent, ToolCall
from dsh.session_persistence import (
    AppendRefused,
    FormatUnsupported,
    PersistenceError,
    SessionCorrupt,
    SessionInUse,
    StoredSessionExists,
    StoredSessionNotFound,
)

_ERRORS: Final = (
    PersistenceError,
    StoredSessionNotFound,
    StoredSessionExists,
    SessionInUse,
    SessionCorrupt,
    FormatUnsupported,
    AppendRefused,
)
_CODES: Final = frozenset(error.code for error in _ERRORS)
_WHEEL: Final = "dsh-session-persistence-jsonl"
_MEND: Final = "mend that"
_WAY_OUT: Final = "or run with --ephemeral, which keeps nothing"


class NotRecorded(CliError):
    """The session could not be kept, so nothing has been done."""

    exit_code = USAGE


@contextmanager
def explained_store_errors(ephemeral: bool, past: ResumeFrom | None = None) -> Generator[None]:
    """Turn what a store raises before anything was done into a message with the way out.

    Args:
        ephemeral: Whether nothing is to be kept.
        past: The session that is being gone on with, once it is.

    Raises:
        NotRecorded: The session of this run cannot be kept.
        NotResumable: That of an earlier run cannot be gone on with.
    """
    try:
        yield
    except PersistenceError as error:
        if past is not None:
            raise not_resumable(error, past.session_id) from error
        raise NotRecorded(error.message, code=error.code, hint=_hint(error)) from error
    except BootError as error:
        store = next((p for p in error.problems if p.name == RECORD), None)
        cause = next((p.error for p in error.problems if p.error is not None), None)
        if ephemeral or store is None or not (cause is None or isinstance(cause, PersistenceError)):
            raise
        if cause is None and len(error.problems) > 1:
            raise  # the store waits for something itself
        raise NotRecorded(
            f"this run cannot be recorded: {cause.message if cause else store.reason}",
            code=cause.code if cause is not None else error.code,
            hint=_hint(cause),
        ) from error


def _hint(cause: DshError | None) -> str:
    """Return what can be done about a store that fails, or about one that is not there."""
    mend = f"install {_WHEEL}" if cause is None else cause.hint or _MEND
    return f"{mend}, {_WAY_OUT}"


def with_store_trouble(report: Report, events: Iterable[SessionEvent]) -> Report:
    """Return a report that says what a failing store means for this run.

    Args:
        report: How the turn ended.
        events: What it logged.
    """
    if report.code not in _CODES:
        return report
    worked = any(isinstance(e.data, AssistantChunk | AssistantMessage | ToolCall) for e in events)
    if worked:
        hint = "the session ends where it was last saved; what came after is not in it"
        return replace(report, hint=hint)
    return replace(
        report,
        exit_code=USAGE,
        message=f"this run cannot be recorded, so nothing was done: {report.message}",
        hint=f"{_MEND}, {_WAY_OUT}",
    )
