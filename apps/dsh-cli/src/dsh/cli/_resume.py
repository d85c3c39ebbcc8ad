"""Which stored session a run goes on with, found before anything of the run is started."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsh.cli._exit_codes import USAGE
from dsh.cli._recording import RECORD, is_recording
from dsh.cli._settings import read_settings, working_folder
from dsh.cli._text import one_line
from dsh.cli.errors import CliError, UsageError
from dsh.core import DshError
from dsh.loader import Deployment

if TYPE_CHECKING:
    from dsh.loader import LoadedApp
    from dsh.session_persistence import SessionPersistence, SessionSnapshot


@dataclass(frozen=True, slots=True)
class ResumeFrom:
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
    damaged: bool = False
    """Whether its last record is damaged; going on sets it aside."""
    archived: bool = False
    """Whether it was put away; going on takes it back."""
    notes: tuple[str, ...] = ()
    """What the person is told before the run begins."""


class NotResumable(CliError):
    """The session cannot be gone on with as things stand; nothing has been done."""

    exit_code = USAGE


def wants_to_resume(args: argparse.Namespace) -> bool:
    """Whether a run is to go on with a stored session."""
    return bool(args.resume is not None or args.continue_ or args.fork is not None)


def find_session_to_resume(
    args: argparse.Namespace, deployment: Deployment, folder: Path
) -> tuple[ResumeFrom, Deployment, Path]:
    """Find the session that the options name, and what holds in its folder.

    Args:
        args: The options of the run.
        deployment: What holds here.
        folder: Where that is.

    Returns:
        The session, the deployment and the folder to work with.

    Raises:
        UsageError: Nothing is recorded, the session's folder is gone, or `--cwd` names another
            one and no copy is to go on.
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
        if past.copy:  # which is a session of its own, and may work elsewhere
            return replace(past, cwd=str(folder)), deployment, folder
        gone = "" if Path(past.cwd).exists() else ", which does not exist any more"
        raise UsageError(
            f"--cwd {folder}, but the session works in {past.cwd}{gone}",
            hint=f"a session keeps its folder; to go on here with a copy: {_copy_here(past)}",
        )
    try:
        there = working_folder(past.cwd)
    except UsageError as error:
        if Path(past.cwd).is_dir():
            raise
        hint = f"if it was moved, go on with a copy: {_copy_here(past)}"
        raise UsageError(error.message, hint=hint) from error
    return past, read_settings(args, there), there


async def session_to_resume(app: LoadedApp, past: ResumeFrom | None) -> str | None:
    """Return the id of the session to go on with, a copy of the past one if that is wanted.

    A session that was put away is taken back.

    Raises:
        UnknownTurn: The copy cannot end where it should.
        PersistenceError: It cannot be made, or not be taken back.
    """
    if past is None:
        return None
    from dsh.session_persistence import SessionPersistence
    from dsh.sessions import fork_session

    store = app[SessionPersistence]
    if past.copy:
        return (await fork_session(store, past.session_id, past.turn, cwd=past.cwd)).id
    if past.archived:  # else the list would not show what is being worked on
        await store.unarchive(past.session_id)
    return past.session_id


def _copy_here(past: ResumeFrom) -> str:
    """Return the options that go on with a copy of a session in another folder."""
    from dsh.sessions import short_id

    turn = "" if past.turn is None else f":{past.turn}"
    return f"--fork {short_id(past.session_id)}{turn} --cwd DIR"


async def _look_up(args: argparse.Namespace, deployment: Deployment, folder: Path) -> ResumeFrom:
    from dsh.sessions import find_session, newest_session, open_store

    session_id: str | None = None
    try:
        async with open_store(deployment) as store:
            if args.fork is not None:
                found, turn = await _find_fork(store, args.fork)
                session_id = found.header.id
                return replace(await _read(store, found, turn), copy=True, turn=turn)
            found = (
                await newest_session(store, folder)
                if args.continue_
                else await find_session(store, args.resume)
            )
            session_id = found.header.id
            past = await _read(store, found)
            return replace(past, notes=await resume_notes(store, past))
    except DshError as error:
        raise not_resumable(error, session_id) from error


async def _find_fork(store: SessionPersistence, text: str) -> tuple[SessionSnapshot, int | None]:
    """Return the session and the turn that `--fork` names.

    Raises:
        UsageError: The session is there, and what follows its id is no turn.
        SessionChoiceError: There is no such session.
    """
    from dsh.sessions import find_session, short_id
    from dsh.sessions.errors import UnknownSession

    name, turn = fork_point(text)
    try:
        return await find_session(store, name), turn
    except UnknownSession:
        head, colon, tail = text.partition(":")
        if not colon or head == name:
            raise
        try:
            found = await find_session(store, head)
        except DshError:
            found = None
        if found is None:
            raise
        short = short_id(found.header.id)
        raise UsageError(
            f"--fork {one_line(text, 80)}: {one_line(tail, 40)!r} is no turn",
            hint=f"`--fork {short}:1` forks at the end of turn 1, `--fork {short}` at the end",
        ) from None


async def resume_notes(store: SessionPersistence, past: ResumeFrom) -> tuple[str, ...]:
    """Return what going on with a session changes that a person would not expect."""
    from dsh.session_persistence import PersistenceError
    from dsh.sessions import short_id

    name = short_id(past.session_id)
    notes: list[str] = []
    if past.archived:
        notes.append(f"session {name} was archived; going on with it takes it back")
    if past.damaged:
        place = ""
        with suppress(PersistenceError):  # no reason to refuse what can be read
            # somebody may have mended it since it was read
            for damage in (await store.verify(past.session_id)).damage[:1]:
                place = f": {damage.where}: {damage.what}"
        notes.append(f"the end of session {name} is damaged and is set aside{place}")
    return tuple(notes)


def fork_point(text: str) -> tuple[str, int | None]:
    """Return the id and the turn of `ID[:TURN]`."""
    head, colon, tail = text.rpartition(":")
    if colon and head and tail.isdecimal() and tail.isascii() and 0 < len(tail) < 10:
        return head, int(tail)
    return text, None


async def _read(
    store: SessionPersistence, found: SessionSnapshot, turn: int | None = None
) -> ResumeFrom:
    from dsh.session import TurnEnd, fold_request_header

    stored = await store.inspect(found.header.id)
    ends = (e.seq for e in stored.events if isinstance(e.data, TurnEnd) and e.data.turn == turn)
    header = fold_request_header(stored.events[: next(ends, len(stored.events))])
    config = None if header is None else header.config
    return ResumeFrom(
        session_id=found.header.id,
        cwd=stored.header.cwd,
        model=None if config is None else config.model,
        effort=None if config is None else config.reasoning_effort,
        turns=found.summary.turns,
        interrupted=bool(found.summary.turns) and found.summary.ended is None,
        damaged=stored.lost,
        archived=found.archived,
    )


def not_resumable(error: DshError, session_id: str | None) -> DshError:
    """Return an error of the store or of the choice as one that says that nothing was done.

    Args:
        error: What was raised.
        session_id: The session that was meant, if it is known.
    """
    from dsh.session_persistence import PersistenceError
    from dsh.sessions import trouble_of, way_out

    if not isinstance(error, PersistenceError):
        return error
    hint = way_out(error, session_id)
    return NotResumable(trouble_of(error), code=error.code, hint=hint)
