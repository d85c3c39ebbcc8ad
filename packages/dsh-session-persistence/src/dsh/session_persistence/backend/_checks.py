"""Checks that every store makes the same way."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dsh.core import NotJsonError
from dsh.core import json as djson
from dsh.session import (
    SESSION_FORMAT_VERSION,
    SessionEvent,
    SessionHeader,
    event_to_wire,
    freeze,
    header_to_wire,
    interrupted_turn_closers,
)
from dsh.session_persistence.errors import AppendRefused

__all__ = ["check_batch", "check_from_seq", "check_header", "detached", "repaired"]


def check_header(header: SessionHeader) -> SessionHeader:
    """Return a header that can be stored.

    Raises:
        AppendRefused: Code `MALFORMED_HEADER` says what is wrong with it.
    """
    problem = _header_problem(header)
    if problem is not None:
        raise AppendRefused(
            f"the header of session {header.id!r} cannot be stored: {problem}",
            code=AppendRefused.MALFORMED_HEADER,
        )
    return header


def check_batch(
    session_id: str, events: Sequence[SessionEvent], next_seq: int
) -> tuple[SessionEvent, ...]:
    """Return the batch as it is now, if it can be stored behind what is there.

    Raises:
        AppendRefused: Code `NOT_CONTIGUOUS`, or `NOT_JSON` naming the event type.
    """
    batch = tuple(events)
    for offset, event in enumerate(batch):
        if event.seq != next_seq + offset:
            raise AppendRefused(
                f"session {session_id!r} continues at seq {next_seq + offset}, but the batch has "
                f"{event.type} at seq {event.seq} there",
                code=AppendRefused.NOT_CONTIGUOUS,
            )
        with _only_json(session_id):
            djson.check(event_to_wire(event), where=event.type)
    return batch


def detached(session_id: str, events: Iterable[SessionEvent]) -> tuple[SessionEvent, ...]:
    """Return events as they are now, out of reach of whoever made them.

    Raises:
        AppendRefused: Code `NOT_JSON` naming the event type.
    """
    batch: list[SessionEvent] = []
    for event in events:
        with _only_json(session_id):
            data = freeze(event.data, where=event.type)
        batch.append(event if data is event.data else replace(event, data=data))
    return tuple(batch)


@contextmanager
def _only_json(session_id: str) -> Generator[None]:
    try:
        yield
    except NotJsonError as error:
        raise AppendRefused(
            f"session {session_id!r}: {error.message}", code=AppendRefused.NOT_JSON
        ) from error


def check_from_seq(from_seq: object) -> int:
    """Return a sequence number to read from.

    Raises:
        ValueError: It is negative or no integer.
    """
    if type(from_seq) is not int or from_seq < 0:
        raise ValueError(f"from_seq must be a whole number from 0 on, not {from_seq!r}")
    return from_seq


def repaired(
    events: Iterable[SessionEvent], *, more_was_lost: bool = False
) -> tuple[SessionEvent, ...]:
    """Return a stored log with the turn it breaks off in closed.

    Args:
        events: What could be read.
        more_was_lost: Whether more was written, as `dsh.session.interrupted_turn_closers` asks.
    """
    log = tuple(events)
    return (*log, *interrupted_turn_closers(log, more_was_lost=more_was_lost))


def _header_problem(header: SessionHeader) -> str | None:
    if header.version != SESSION_FORMAT_VERSION:
        return f"version {header.version!r} is not {SESSION_FORMAT_VERSION}"
    if type(header.id) is not str or not header.id:
        return "its id is empty or no text"
    for field in ("created_at", "seed_length", "delegation_depth"):
        value = getattr(header, field)
        optional = field != "created_at" and value is None
        if not optional and (type(value) is not int or not 0 <= value <= djson.MAX_INTEGER):
            return f"{field} is {value!r}, which is no whole number from 0 on"
    try:
        djson.check(header_to_wire(header), where="header")
    except NotJsonError as error:
        return error.message
    if header.cwd is not None and not os.path.isabs(header.cwd):
        return f"cwd {header.cwd!r} is not absolute"
    return None
