"""`dsh sessions verify`: look at every record, and repair what is damaged if asked to."""

from __future__ import annotations

import argparse
from collections import Counter
from enum import StrEnum
from typing import TextIO

from dsh.session_persistence import (
    IntegrityReport,
    PersistenceError,
    SessionCorrupt,
    SessionPersistence,
    StoredSessionNotFound,
    UnreadableSession,
)
from dsh.sessions._console import ids_of, note, with_store
from dsh.sessions._find import Catalog, newest_first
from dsh.sessions._text import count, one_line, safe
from dsh.sessions._way_out import way_out
from dsh.sessions.errors import SessionChoiceError, UnknownSession


class _Verdict(StrEnum):
    """What became of a session, in the words of the sum."""

    SOUND = "sound"
    REPAIRED = "repaired"
    DAMAGED = "damaged"
    UNREADABLE = "cannot be read"


def verify(args: argparse.Namespace) -> int:
    """Verify sessions; exit code 1 if one of them is damaged, or cannot be read, and stays so."""
    if args.all == bool(args.ids):
        both = ", not both" if args.all else ""
        raise SessionChoiceError(f"name sessions, or say --all{both}")
    args.ids = ids_of(args.ids)
    return with_store(args, _verify)


async def _verify(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    catalog = await Catalog.read(store)
    if args.all:
        everything = newest_first((*catalog.active, *catalog.archived))
        ids = [item.header.id for item in everything]
    else:
        ids = [await _whole_id(store, catalog, text) for text in args.ids]
    verdicts: Counter[_Verdict] = Counter()
    for session_id in dict.fromkeys(ids):
        verdicts[await _one(store, session_id, out, repair=args.repair)] += 1
        out.flush()
    if args.all:
        for item in catalog.unreadable:
            verdicts[await _lost(store, item, set(ids), out, repair=args.repair)] += 1
            out.flush()
    bad = [
        f"{verdicts[verdict]} {verdict}"
        for verdict in (_Verdict.REPAIRED, _Verdict.DAMAGED, _Verdict.UNREADABLE)
        if verdicts[verdict]
    ]
    note(f"{count(verdicts.total(), 'session')}, {', '.join(bad) or 'none damaged'}")
    return 1 if verdicts[_Verdict.DAMAGED] or verdicts[_Verdict.UNREADABLE] else 0


async def _whole_id(store: SessionPersistence, catalog: Catalog, text: str) -> str:
    """Return the whole id of a session; one that nothing tells of can be named by its whole id."""
    try:
        return catalog.whole_id(text)
    except UnknownSession as unknown:
        try:
            await store.verify(text)
        except StoredSessionNotFound:
            raise unknown from None
        except PersistenceError:
            pass  # it is there; the second look tells what is wrong
        return text


async def _one(
    store: SessionPersistence, session_id: str, out: TextIO, *, repair: bool
) -> _Verdict:
    """Report on one session."""
    try:
        report = await store.verify(session_id)
    except PersistenceError as error:
        return _refused(one_line(session_id), session_id, error, out)
    return await _reported(store, report, out, repair=repair)


async def _lost(
    store: SessionPersistence,
    item: UnreadableSession,
    listed: set[str],
    out: TextIO,
    *,
    repair: bool,
) -> _Verdict:
    """Report on something that no listing has."""
    session_id = item.session_id
    if session_id is not None and session_id not in listed:
        try:
            report = await store.verify(session_id)
        except PersistenceError:
            report = None
        if report is not None and not report.sound:
            return await _reported(store, report, out, repair=repair)
    if session_id in listed:
        session_id = None  # that one is elsewhere
    return _refused(one_line(session_id or item.where, 400), session_id, item.error, out)


def _refused(name: str, session_id: str | None, error: PersistenceError, out: TextIO) -> _Verdict:
    """Report on what no look could be taken at."""
    damaged = isinstance(error, SessionCorrupt)
    verdict = _Verdict.DAMAGED if damaged else _Verdict.UNREADABLE
    out.write(f"{name}  {verdict}: {safe(error.message)}\n")
    hint = way_out(error, session_id)
    if hint is not None:
        out.write(f"  {safe(hint)}\n")
    return verdict


async def _reported(
    store: SessionPersistence, report: IntegrityReport, out: TextIO, *, repair: bool
) -> _Verdict:
    """Print what a look came to, and repair what is damaged if that is wanted."""
    out.write(f"{one_line(report.session_id)}  {_told(report)}\n")
    for damage in report.damage:
        out.write(f"  {safe(damage.where)}: {safe(damage.what)}\n")
    if report.sound:
        return _Verdict.SOUND
    if not repair:
        return _Verdict.DAMAGED
    try:
        saved = await store.salvage(report.session_id)
    except PersistenceError as error:
        out.write(f"  cannot be repaired: {safe(error.message)}\n")
        return _Verdict.DAMAGED
    left = f"{count(saved.events, 'event')} {'is' if saved.events == 1 else 'are'} left"
    kept = f"; the copy from before is {saved.copy}" if saved.copy is not None else ""
    out.write(f"  repaired: {left}{kept}\n")
    return _Verdict.REPAIRED


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
