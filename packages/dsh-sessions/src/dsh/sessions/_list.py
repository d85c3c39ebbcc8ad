"""`dsh sessions list`: what is stored, newest first."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, TextIO

from dsh.core import JsonObject, now_ms
from dsh.core import json as djson
from dsh.session import header_to_wire
from dsh.session_persistence import SessionPersistence, SessionSnapshot
from dsh.sessions._console import line, note, with_store
from dsh.sessions._find import (
    Folder,
    changed_at,
    newest_first,
    other_stores,
    short_ids,
    title_of,
    told_away,
    told_store,
    told_unreadable,
)
from dsh.sessions._text import age, count, moment, one_line, size

_SHOWN: Final = 30
"""So many are shown on a terminal, if nothing else is asked for."""


def list_sessions(args: argparse.Namespace) -> int:
    """List sessions."""
    return with_store(args, _list)


async def _list(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    found = await store.list_snapshots(archived=args.archived)
    folder = Folder(args.cwd or ".")
    wanted = found if args.all else [item for item in found if folder.holds(item)]
    ordered = newest_first(wanted)
    terminal = out.isatty() and not args.json
    limit: int | None = args.limit or (_SHOWN if terminal else None)
    shown = ordered[:limit]
    if args.json:
        for item in shown:
            out.write(djson.dumps(_object(item)).decode() + "\n")
    elif terminal and shown:
        _table(shown, short_ids(found), out, folders=args.all)
    else:
        for item in shown:
            _row(item, out)
    unreadable = await store.unreadable()
    if unreadable:
        note(told_unreadable(unreadable))
    if not wanted:
        await _tell_why_none(args, store, folder, len(found))
    elif len(shown) < len(wanted) and sys.stderr.isatty():
        kind = _kind(args)
        note(f"{len(shown)} of {count(len(wanted), kind)}; --limit {len(wanted)} shows them all")
    return 0


def _object(item: SessionSnapshot) -> JsonObject:
    summary = item.summary
    return {
        **header_to_wire(item.header),
        "title": summary.title,
        "turns": summary.turns,
        "events": summary.events,
        "updatedAt": changed_at(item),
        "ended": summary.ended,
        "size": item.size,
        "archived": item.archived,
        "damaged": summary.damaged,
    }


def _row(item: SessionSnapshot, out: TextIO) -> None:
    """Print one session for a program: whole values, in columns that stay as they are."""
    summary = item.summary
    cwd = one_line(item.header.cwd or "", 4096)
    title = title_of(item) if summary.title else ""
    changed = moment(changed_at(item))
    line(out, item.header.id, changed, summary.turns, item.size, ended_of(item), cwd, title)


def ended_of(item: SessionSnapshot) -> str:
    """Return how the last turn of a session ended; `open` if it did not, or nobody wrote it yet.

    Where the log is known to break off in damage, that is `damaged`.
    """
    summary = item.summary
    if summary.damaged:
        return "damaged"
    if summary.ended is not None:
        return one_line(summary.ended, 40)
    return "open" if summary.turns else "-"


def _table(
    items: Sequence[SessionSnapshot], ids: dict[str, str], out: TextIO, *, folders: bool
) -> None:
    # loaded for terminals alone
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, force_terminal=True, highlight=False, markup=False)
    names = {key: one_line(name, 40) for key, name in ids.items()}
    widest = max(len(names[item.header.id]) for item in items)
    kept = _columns(console.width, widest, folders=folders)
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name, options in kept.items():
        table.add_column(name, no_wrap=True, **options)
    now, home = now_ms(), os.path.expanduser("~")
    for item in items:
        ended = ended_of(item)
        cells: dict[str, Any] = {
            "ID": Text(names[item.header.id], style="bold"),
            "TITLE": Text(title_of(item)),
            "AGE": age(changed_at(item), now),
            "TURNS": str(item.summary.turns),
            "SIZE": size(item.size),
            "ENDED": Text(ended, style="" if ended == "completed" else "yellow"),
            "FOLDER": Text(_short_path(item.header.cwd, home)),
        }
        table.add_row(*(cells[name] for name in kept))
    console.print(table)


_TITLE: Final = 12
"""A title, or a folder, is given so many characters before other columns are shown."""

_WIDTHS: Final = {"SIZE": 7, "ENDED": 11, "TURNS": 6}
"""The columns a narrow terminal does without, the first one first, and their usual widths."""


def _columns(width: int, widest_id: int, *, folders: bool) -> dict[str, dict[str, Any]]:
    """Return the columns there is room for; an id is of no use if it is cut, so it never is."""
    right: dict[str, Any] = {"justify": "right"}
    free: dict[str, Any] = {"overflow": "ellipsis", "ratio": 1}
    columns: dict[str, dict[str, Any]] = {
        "ID": {"min_width": widest_id},
        "TITLE": free,
        "AGE": right,
        "TURNS": right,
        "SIZE": right,
        "ENDED": {},
    }
    if folders:
        columns["FOLDER"] = free
    room = width - widest_id - len(" 99d") - (1 + _TITLE) * (2 if folders else 1)
    needed = sum(_WIDTHS.values())
    for name, wide in _WIDTHS.items():
        if needed <= room:
            break
        del columns[name]
        needed -= wide
    return columns


def _short_path(path: str | None, home: str) -> str:
    if path is None:
        return "-"
    inside = path == home or path.startswith(home + os.sep)
    return one_line("~" + path[len(home) :] if inside else path, 400)


def _kind(args: argparse.Namespace) -> str:
    return "archived session" if args.archived else "session"


async def _tell_why_none(
    args: argparse.Namespace, store: SessionPersistence, folder: Folder, found: int
) -> None:
    """Say to a person why nothing is shown, and where something would be."""
    kind = _kind(args)
    if found:
        told = [f"no {kind} of {folder.path}", f"{count(found, kind)} of other folders: --all"]
    else:
        told = [f"there are no {kind}s in {told_store(store)}"]
    away = 0
    if not args.archived:
        others = await store.list_snapshots(archived=True)
        away = sum(args.all or folder.holds(item) for item in others)
        if away:
            told.append(f"{told_away(away)}: --archived")
    note("; ".join(told))
    elsewhere = None if found or away else other_stores(store)
    if elsewhere is not None:
        note(elsewhere)
