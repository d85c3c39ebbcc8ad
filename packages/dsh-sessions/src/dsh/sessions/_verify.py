"""`dsh sessions verify`: look at every record, and repair what is damaged if asked to."""

from __future__ import annotations

import argparse
from typing import TextIO

from dsh.session_persistence import (
    IntegrityReport,
    PersistenceError,
    SessionPersistence,
    StoredSessionNotFound,
)
from dsh.sessions._console import ids_of, note, with_store
from dsh.sessions._find import Catalog, newest_first
from dsh.sessions._text import count, one_line, safe
from dsh.sessions.errors import SessionChoiceError, UnknownSession


def verify(args: argparse.Namespace) -> int:
    """Verify sessions; exit code 1 if one of them is damaged and stays so."""
    if args.all == bool(args.ids):
        raise SessionChoiceError("name sessions, or say --all")
    args.ids = ids_of(args.ids)
    return with_store(args, _verify)


async def _verify(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    catalog = await Catalog.read(store)
    if args.all:
        everything = newest_first((*catalog.active, *catalog.archived))
        ids = [item.header.id for item in everything]
    else:
        ids = [await _whole_id(store, catalog, text) for text in args.ids]
    bad = 0
    for session_id in dict.fromkeys(ids):
        bad += not await _one(store, session_id, out, repair=args.repair)
        out.flush()
    note(f"{count(len(ids), 'session')}, {bad or 'none'} damaged")
    return 1 if bad else 0


async def _whole_id(store: SessionPersistence, catalog: Catalog, text: str) -> str:
    """Return the whole id of a session; one that no listing has can be named by its whole id."""
    try:
        return catalog.find(text).header.id
    except UnknownSession as unknown:
        try:
            await store.verify(text)
        except StoredSessionNotFound:
            raise unknown from None
        except PersistenceError:
            pass  # it is there; the second look tells what is wrong
        return text


async def _one(store: SessionPersistence, session_id: str, out: TextIO, *, repair: bool) -> bool:
    """Report on one session; return whether it can be used now."""
    try:
        report = await store.verify(session_id)
    except PersistenceError as error:
        out.write(f"{one_line(session_id)}  cannot be read: {safe(error.message)}\n")
        return False
    out.write(f"{one_line(session_id)}  {_told(report)}\n")
    for damage in report.damage:
        out.write(f"  {safe(damage.where)}: {safe(damage.what)}\n")
    if report.sound or not repair:
        return report.sound
    try:
        saved = await store.salvage(session_id)
    except PersistenceError as error:
        out.write(f"  cannot be repaired: {safe(error.message)}\n")
        return False
    left = f"{count(saved.events, 'event')} {'is' if saved.events == 1 else 'are'} left"
    kept = f"; the copy from before is {saved.copy}" if saved.copy is not None else ""
    out.write(f"  repaired: {left}{kept}\n")
    return True


def _told(report: IntegrityReport) -> str:
    """Return the state of a session in a few words."""
    events = count(report.events, "event")
    if not report.sound:
        return f"damaged: {events} can be read"
    notes: list[str] = []
    if report.torn:
        notes.append("the last record was not written completely")
    if report.interrupted:
        notes.append("a turn is open")
    tail = f" ({', '.join(notes)}; resuming it mends that)" if notes else ""
    return f"sound, {events}{tail}"
