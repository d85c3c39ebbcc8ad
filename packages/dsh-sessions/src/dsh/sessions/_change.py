"""`dsh sessions fork`, `archive`, `unarchive` and `remove`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TextIO

from dsh.core import DshError
from dsh.session_persistence import PersistenceError, SessionPersistence
from dsh.sessions._console import ids_of, note, whole_ids, with_store
from dsh.sessions._find import Catalog, find_session, short_ids, title_of
from dsh.sessions._stored_fork import fork_session
from dsh.sessions._text import count, one_line
from dsh.sessions._way_out import trouble_of, way_out
from dsh.sessions.errors import SessionChoiceError


def fork(args: argparse.Namespace) -> int:
    """Store a copy of a session and print its id."""
    return with_store(args, _fork)


def archive(args: argparse.Namespace) -> int:
    """Put sessions away."""
    args.ids = ids_of(args.ids)
    return with_store(args, _archive)


def unarchive(args: argparse.Namespace) -> int:
    """Take sessions back."""
    args.ids = ids_of(args.ids)
    return with_store(args, _unarchive)


def remove(args: argparse.Namespace) -> int:
    """Delete sessions."""
    if not args.yes and ("-" in args.ids or not sys.stdin.isatty()):
        raise SessionChoiceError(
            "nobody can be asked whether to delete them: standard input is no terminal",
            hint="say --yes",
        )
    args.ids = ids_of(args.ids)
    chosen: list[str] = []

    async def choose(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
        catalog = await Catalog.read(store)
        # one that cannot be read may be deleted too: there is often nothing else to do with it
        chosen.extend(dict.fromkeys(map(catalog.whole_id, args.ids)))
        if not args.yes:
            _describe(chosen, catalog)
        return 0

    async def act(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
        return await _each(chosen, store.remove, "deleted", out)

    with_store(args, choose)
    # asked between two loops: inside of one an interrupt would not end the wait for an answer
    if not args.yes and not _agreed(len(chosen)):
        note("nothing was deleted")
        return 1
    return with_store(args, act)


async def _fork(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    found = await find_session(store, args.id)
    header = await fork_session(store, found.header.id, args.turn)
    try:
        out.write(header.id + "\n")
        out.flush()
    except (DshError, OSError):
        note(f"the copy is stored: {header.id}")
        raise
    return 0


async def _archive(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    return await _each(await whole_ids(store, args.ids), store.archive, "archived", out)


async def _unarchive(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    return await _each(await whole_ids(store, args.ids), store.unarchive, "taken back", out)


def _describe(ids: Sequence[str], catalog: Catalog) -> None:
    everything = (*catalog.active, *catalog.archived)
    names, found = short_ids(everything), {item.header.id: item for item in everything}
    for session_id in ids:
        item = found.get(session_id)
        if item is None:
            sys.stderr.write(f"  {one_line(session_id, 100)}  (cannot be read)\n")
        else:
            turns = count(item.summary.turns, "turn")
            sys.stderr.write(f"  {names[session_id]}  {title_of(item, 60)}  ({turns})\n")


def _agreed(number: int) -> bool:
    """Ask the person whether these sessions may go."""
    sys.stderr.write(f"delete {count(number, 'session')} for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


async def _each(
    ids: Sequence[str], act: Callable[[str], Awaitable[None]], done: str, out: TextIO
) -> int:
    """Do something to each session; one that fails does not keep the others from it."""
    failed = 0
    for session_id in ids:
        try:
            await act(session_id)
        except PersistenceError as error:
            failed += 1
            hint = way_out(error, session_id)
            note(trouble_of(error) + (f"; {hint}" if hint else ""))
        else:
            out.write(f"{session_id} {done}\n")
            out.flush()
    return 1 if failed else 0
