"""`dsh sessions export`: a session as a document of its own."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from dsh.core import DshError, secrets
from dsh.core import json as djson
from dsh.session import SessionEvent, event_to_wire, header_to_wire
from dsh.session_persistence import SessionPersistence, SessionSnapshot, StoredSession
from dsh.sessions._console import note, with_store
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
from dsh.sessions.errors import SessionChoiceError

_TAILS: Final = {
    "whole": "",
    "interrupted": "\n\n*The answer was cut off here.*",
    "unfinished": "\n\n*Not finished: this part of an answer came before it broke off.*",
}


class ExportFailed(DshError):
    """The document could not be written."""

    code = "OUTPUT"


def export(args: argparse.Namespace) -> int:
    """Write a session as a document."""
    if args.output is not None and args.output != "-":
        folder = Path(os.path.abspath(args.output)).parent
        if not folder.is_dir():
            raise SessionChoiceError(f"{args.output}: there is no folder {folder}")
        if os.path.isdir(args.output):
            raise SessionChoiceError(f"{args.output}: is a folder")
    return with_store(args, _export)


async def _export(args: argparse.Namespace, store: SessionPersistence, out: TextIO) -> int:
    found = await find_session(store, args.id)
    stored = StoredSession(found.header, await store.read_from(found.header.id, 0))
    text = as_json_lines(stored) if args.format == "json" else as_markdown(found, stored.events)
    if args.output is None or args.output == "-":
        out.write(text)
        return 0
    try:
        _write(args.output, text)
    except OSError as error:
        raise ExportFailed(f"{args.output}: cannot be written: {error.strerror}") from error
    note(f"session {one_line(found.header.id)} is in {args.output}")
    return 0


def _write(name: str, text: str) -> None:
    """Write a file in one step if it is one, else straight into it."""
    target = Path(os.path.realpath(name))
    # as on standard output: a prompt or an argument may hold a key that is known by now
    data = secrets.redact(text).encode("utf-8", "replace")
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            file.write(data)
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def as_json_lines(stored: StoredSession) -> str:
    """Return a session as JSON lines: the header, then each event in its wire form.

    `llm-replay` plays such a file again as its `recording`.
    """
    lines = [
        djson.dumps({"header": header_to_wire(stored.header)}),
        *(djson.dumps(event_to_wire(event)) for event in stored.events),
    ]
    return b"".join(line + b"\n" for line in lines).decode()


def as_markdown(found: SessionSnapshot, events: Sequence[SessionEvent]) -> str:
    """Return the transcript of a session in Markdown."""
    header, summary = found.header, found.summary
    head = [
        f"# {_inline(title_of(found))}",
        f"Session `{one_line(header.id)}`, {moment(header.created_at)}, "
        f"{count(summary.turns, 'turn')}, in `{one_line(header.cwd or '-', 400)}`.",
    ]
    if header.parent_session is not None:
        head.append(f"Forked from `{one_line(header.parent_session)}`.")
    return safe("\n\n".join([*head, *(_entry(entry) for entry in entries(events))]) + "\n")


def _entry(entry: Entry) -> str:
    match entry:
        case TurnBegan(number, time):
            return f"## Turn {number}\n\n{moment(time)}"
        case Prompted(text):
            return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
        case Said(text, how):
            return (text + _TAILS[how]).strip("\n")
        case Called(name, arguments, result, problem):
            told = f" ({problem})" if problem else ""
            parts = [f"**{_inline(name)}**{told}", _fenced(arguments, "json")]
            return "\n\n".join([*parts, _fenced(result)] if result.strip() else parts)
        case Noted(label, text):
            return f"*{label}:* {_inline(text)}" if "\n" not in text else f"*{label}:*\n\n{text}"
        case TurnEnded(_, told, completed, _):
            return "*Completed.*" if completed else f"***{_inline(told)}***"


def _inline(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", one_line(text, 400))


def _fenced(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
