"""What the commands have in common: the store, the sessions that are meant, the output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, TypeAlias

import anyio

from dsh.loader import Deployment
from dsh.session_persistence import PersistenceError, SessionPersistence
from dsh.sessions._find import Catalog
from dsh.sessions._open import open_store
from dsh.sessions._way_out import way_out
from dsh.sessions.errors import SessionChoiceError

Work: TypeAlias = Callable[[argparse.Namespace, SessionPersistence, TextIO], Awaitable[int]]
"""A command: options, the open store, where to print; returns the exit code."""


def with_store(args: argparse.Namespace, work: Work) -> int:
    """Open the store of the deployment in effect and do some work with it.

    Raises:
        DshError: The deployment is wrong, or the store cannot do what was asked.
    """
    deployment = settings_of(args)
    out = sys.stdout

    async def run() -> int:
        with telling_trouble(getattr(args, "id", None)):
            async with open_store(deployment) as store:
                return await work(args, store, out)

    with redirect_stdout(sys.stderr):  # what a plugin prints is no part of the output
        return anyio.run(run)


@contextmanager
def telling_trouble(session_id: str | None = None) -> Generator[None]:
    """Name the command that helps with a damaged session, or with one that is in use.

    Args:
        session_id: The session, as it was named.

    Raises:
        PersistenceError: As it came, with the way out.
    """
    try:
        yield
    except PersistenceError as error:
        error.hint = way_out(error, session_id)
        raise


def settings_of(args: argparse.Namespace) -> Deployment:
    """Return the deployment in effect, as the front door that runs the command reads it."""
    read: Callable[[argparse.Namespace], Deployment] = args.read_settings
    return read(args)


def note(text: str) -> None:
    """Write a line for the person, beside the output."""
    sys.stderr.write(f"dsh: {text}\n")


def ids_of(given: Iterable[str]) -> list[str]:
    """Return the ids that were given, with those of standard input in place of `-`.

    Called before any event loop runs, so that an interrupt ends the wait for input.

    Raises:
        SessionChoiceError: Standard input holds none, or is read twice.
    """
    ids: list[str] = []
    read = False
    for item in given:
        if item != "-":
            ids.append(item)
            continue
        if read:
            raise SessionChoiceError("`-` stands for standard input, which is read once")
        read = True
        # the first word of a line, so that a listing can be sent in as it is
        lines = [line.split(maxsplit=1) for line in sys.stdin]
        found = [words[0] for words in lines if words]
        if not found:
            raise SessionChoiceError("standard input holds no id")
        ids.extend(found)
    return list(dict.fromkeys(ids))


async def whole_ids(store: SessionPersistence, given: Iterable[str]) -> list[str]:
    """Return the whole ids of the sessions that are meant, each once.

    Raises:
        SessionChoiceError: One of them is unknown or ambiguous; nothing has been done yet.
    """
    catalog = await Catalog.read(store)
    return list(dict.fromkeys(catalog.find(text).header.id for text in given))


def line(out: TextIO, *cells: Any) -> None:
    """Print one line of cells, with tabs between them."""
    out.write("\t".join("" if cell is None else str(cell) for cell in cells) + "\n")
