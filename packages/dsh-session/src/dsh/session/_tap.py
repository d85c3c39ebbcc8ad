"""Where `LiveSessions` listens in on a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dsh.session._event import SessionEvent

if TYPE_CHECKING:
    from dsh.session._session import Session

__all__ = ["SessionTap", "Validator"]

Validator: TypeAlias = "Callable[[Session, SessionEvent], None]"
"""Looks at an event before it is committed; raising keeps it out of the log."""


@dataclass(slots=True)
class SessionTap:
    """What `LiveSessions` puts into a session while it lists it; its fields may change any time."""

    owner: object | None
    """Scope key of the context through which the session was entered."""
    notify: Callable[[SessionEvent], None]
    """Told of each event once it is in the log."""
    report: Callable[[Exception, str], None]
    """Takes failures that reach nobody else, with the place they came from."""
    validators: tuple[Validator, ...] = field(default=())
    """Asked before each commit."""
    chunk_validators: tuple[Validator, ...] = field(default=())
    """Asked before the commit of an `assistant/chunk`."""
