"""Which stored session a run goes on with, found before anything of the run is started."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dsh.cli._exits import USAGE, CliError, UsageError
from dsh.cli._settings import read_settings, working_folder
from dsh.core import DshError, entry_points
from dsh.loader import Deployment

if TYPE_CHECKING:
    from dsh.session_persistence import SessionPersistence, SessionSnapshot

RECORD: Final = "record"
"""The plugin that has sessions kept."""
STORE_KEY: Final = "session_persistence"
"""The service that keeps them."""


@dataclass(frozen=True, slots=True)
class Past:
    """A stored session to go on with."""

    session_id: str
    """Its whole id."""
    cwd: str | None
    """The folder it works in."""
    model: str | None
    """What its last request asked."""
    effort: str | None
    """How hard that model had to think."""
    turns: int
    """How many turns it has."""
    interrupted: bool
    """Whether the last one was never finished."""
    copy: bool = False
    """Whether a copy goes on, and the session stays as it is."""
    turn: int | None = None
    """The last turn of the copy; all of them if None."""


class NotResumable(CliError):
    """The session cannot be gone on with as things stand; nothing has been done."""

    exit_code = USAGE


def is_recording(deployment: Deployment) -> bool:
    """Whether a deployment keeps its sessions: something needs a store, or one is named."""
    if STORE_KEY in deployment.seams:
        return True
    keeping = {RECORD, *(point.name for point in entry_points(f"dsh.seam.{STORE_KEY}"))}
    return any(row.use in keeping and not row.disabled for row in deployment.rows)


def wants_past(args: argparse.Namespace) -> bool:
    """Whether a run is to go on with a stored session."""
    return bool(args.resume is not None or args.continue_ or args.fork is not None)


def find_past(
    args: argparse.Namespace, deployment: Deployment, folder: Path
) -> tuple[Past, Deployment, Path]:
    """Find the session that the options name, and what holds in its folder.

    Args:
        args: The options of the run.
        deployment: What holds here.
        folder: Where that is.

    Returns:
        The session, the deployment and the folder to work with.

    Raises:
        UsageError: Nothing is recorded, or `--cwd` names another folder than the session's.
        NotResumable: There is no such session, or it cannot be read.
        DshError: The store, or the settings of the session's folder, are no good.
    """
    if not is_recording(deployment):
        raise UsageError(
            "sessions are not recorded here, so there is none to go on with",
            hint=f"the settings have no row `{RECORD}`, or it is disabled; see dsh config show",
        )
    # only runs of this kind need it
    import anyio

    past = anyio.run(_look_up, args, deployment, folder)
    if past.cwd is None or past.cwd == str(folder):
        return past, deployment, folder
    if args.cwd is not None and Path(past.cwd).resolve() != folder.resolve():
        raise UsageError(
            f"--cwd {folder}, but the session works in {past.cwd}",
            hint="leave --cwd out: a session keeps its folder, and so does a fork of it",
        )
    there = working_folder(past.cwd)
    return past, read_settings(args, there), there


async def _look_up(args: argparse.Namespace, deployment: Deployment, folder: Path) -> Past:
    from dsh.sessions import find_session, newest_session, open_store

    try:
        async with open_store(deployment) as store:
            if args.continue_:
                return await _read(store, await newest_session(store, folder))
            if args.resume is not None:
                return await _read(store, await find_session(store, args.resume))
            text, turn = fork_point(args.fork)
            found = await _read(store, await find_session(store, text), turn)
            return replace(found, copy=True, turn=turn)
    except DshError as error:
        raise not_resumable(error) from error


def fork_point(text: str) -> tuple[str, int | None]:
    """Return the id and the turn of `ID[:TURN]`."""
    head, colon, tail = text.rpartition(":")
    if colon and head and tail.isdecimal() and tail.isascii() and 0 < len(tail) < 10:
        return head, int(tail)
    return text, None


async def _read(store: SessionPersistence, found: SessionSnapshot, turn: int | None = None) -> Past:
    from dsh.session import TurnEnd, fold_request_header

    stored = await store.inspect(found.header.id)
    ends = (e.seq for e in stored.events if isinstance(e.data, TurnEnd) and e.data.turn == turn)
    header = fold_request_header(stored.events[: next(ends, len(stored.events))])
    config = None if header is None else header.config
    return Past(
        session_id=found.header.id,
        cwd=stored.header.cwd,
        model=None if config is None else config.model,
        effort=None if config is None else config.reasoning_effort,
        turns=found.summary.turns,
        interrupted=bool(found.summary.turns) and found.summary.ended is None,
    )


def not_resumable(error: DshError) -> DshError:
    """Return an error of the store or of the choice as one that says that nothing was done."""
    from dsh.session_persistence import PersistenceError, SessionCorrupt, SessionInUse

    if not isinstance(error, PersistenceError):
        return error
    hint = error.hint
    if isinstance(error, SessionCorrupt):
        own = "" if hint is None else f"{hint}; "
        hint = f"{own}see `dsh sessions verify ID`, and its option --repair"
    elif isinstance(error, SessionInUse):
        hint = "wait until it has ended, or go on with a copy: --fork ID"
    return NotResumable(error.message, code=error.code, hint=hint)
