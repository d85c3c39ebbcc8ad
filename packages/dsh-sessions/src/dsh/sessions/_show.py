"""`dsh sessions show` and `path`: one session on a terminal, and where it is kept."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final, TextIO

from dsh.core import DshError, JsonValue, NotJsonError
from dsh.core import json as djson
from dsh.session import SessionEvent, event_to_wire
from dsh.session_persistence import SessionPersistence, SessionSnapshot
from dsh.sessions._console import with_store
from dsh.sessions._find import find_session, title_of
from dsh.sessions._text import count, moment, one_line, safe
from dsh.sessions._transcript import (
    Called,
    Entry,
    Noted,
    Prompted,
    Said,
    TurnBegan,
    TurnEnded,
    entries,
)
from dsh.sessions._turns import find_turn, turns_of

_LINES: Final = 4
"""So many lines of a result are shown, unless all of it is asked for."""


_TAILS: Final = {
    "whole": "",
    "interrupted": "\n[interrupted: the answer was cut off here]",
    "unfinished": "\n[not finished: this part of an answer came before it broke off]",
}


class Nowhere(DshError):
    """The store keeps nothing in a place that has a name."""

    code = "NO_PATH"


def show(args: argparse.Namespace) -> int:
    """Show a session."""
    return with_store(args, _show)


def path(args: argparse.Namespace) -> int:
    """Say where a session is kept."""
    return with_store(args, _path)


async def _show(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    found = await find_session(store, args.id)
    events = await store.read_from(found.header.id, 0)
    if args.turn is not None:
        turn = find_turn(found.header.id, turns_of(events), args.turn)
        events = events[turn.start : None if turn.end is None else turn.end + 1]
    if args.json:
        for event in events:
            out.write(djson.dumps(event_to_wire(event)).decode() + "\n")
        return 0
    text = Transcript(full=args.full).text(found, events)
    out.write(_styled(text) if out.isatty() and not os.environ.get("NO_COLOR") else text)
    return 0


async def _path(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    found = await find_session(store, args.id)
    place = store.locate(found.header)
    if place is None:
        raise Nowhere(f"{store.name} does not keep session {found.header.id!r} in a file")
    out.write(place + "\n")
    return 0


class Transcript:
    """Writes a session as text.

    Args:
        full: Whether arguments and results are shown whole.
    """

    def __init__(self, *, full: bool = False) -> None:
        self._full = full

    def text(self, found: SessionSnapshot, events: Sequence[SessionEvent]) -> str:
        """Return a session, or a part of it, as text that is safe to show."""
        parts = [f"session {one_line(found.header.id)}  {title_of(found)}\n{_facts(found)}\n"]
        parts.extend(self._entry(entry) for entry in entries(events))
        return safe("\n".join(parts))

    def _entry(self, entry: Entry) -> str:
        match entry:
            case TurnBegan(number, time):
                return f"--- turn {number}  {moment(time)}\n"
            case Prompted(text):
                return "".join(f"> {line}\n" for line in text.splitlines())
            case Said(text, how):
                return f"{text}{_TAILS[how]}\n".lstrip("\n")
            case Called():
                return self._call(entry)
            case Noted("model", text):
                return f"[model: {text}]\n"
            case Noted(label, text):
                return f"[{label}] {self._shortened(text).strip()}\n"
            case TurnEnded():
                return _end(entry)

    def _call(self, call: Called) -> str:
        arguments = _arguments(call.arguments)
        told = arguments if self._full else one_line(arguments, 200)
        lines = [f"$ {call.name} {told}".rstrip()]
        if call.problem is not None:
            lines.append(f"  [{call.problem}]")
        if call.result.strip():
            lines.extend(f"  {line}" for line in self._shortened(call.result).splitlines())
        return "\n".join(lines) + "\n"

    def _shortened(self, text: str) -> str:
        lines = text.rstrip().splitlines()
        if self._full:
            return "\n".join(lines)
        shown = [one_line(line, 200) for line in lines[:_LINES]]
        rest = len(lines) - len(shown)
        return "\n".join([*shown, f"... {count(rest, 'more line')}"] if rest else shown)


def _facts(found: SessionSnapshot) -> str:
    header, summary = found.header, found.summary
    facts = [
        f"made {moment(header.created_at)}",
        f"{count(summary.turns, 'turn')}, {count(summary.events, 'event')}",
        f"folder {one_line(header.cwd or '-', 400)}",
    ]
    if header.parent_session is not None:
        facts.append(f"forked from {one_line(header.parent_session)}")
    if found.archived:
        facts.append("archived")
    return "\n".join(facts)


def _end(entry: TurnEnded) -> str:
    if entry.completed:
        assert entry.duration_ms is not None  # it ended
        return f"[turn {entry.number} completed, {entry.duration_ms / 1000:.1f} s]\n"
    return f"[turn {entry.number}: {entry.told}]\n"


def _arguments(written: str) -> str:
    """Return the arguments of a call as a person reads them."""
    try:
        value = djson.loads(written) if written.strip() else {}
    except NotJsonError:
        return written
    if not isinstance(value, dict):
        return written
    return " ".join(f"{key}={_short(item)}" for key, item in value.items())


def _short(value: JsonValue) -> str:
    return value if isinstance(value, str) else djson.dumps(value).decode()


def _styled(text: str) -> str:
    """Return a transcript with its marks told apart by brightness."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("--- turn ") or line.startswith("> "):
            lines.append(f"\x1b[1m{line}\x1b[22m")
        elif line.startswith(("$ ", "  ", "[")):
            lines.append(f"\x1b[2m{line}\x1b[22m")
        else:
            lines.append(line)
    return "\n".join(lines)
