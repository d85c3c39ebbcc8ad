"""What opened a turn.

The family is open. A wheel adds a kind by declaring a class::

    @dataclass(frozen=True, slots=True)
    class Poll(TurnTrigger, kind="acme-poll"):
        \"\"\"It was time to look.\"\"\"

        feed_url: str

A kind that no live class declares is read as `OtherTrigger` and written back unchanged; so is one
whose declared class does not fit what was written.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsh.session._message_sources import MessageSource
from dsh.session._open_union import OpenUnion, Undeclared

__all__ = [
    "InjectionTrigger",
    "MessageTrigger",
    "OtherTrigger",
    "RecordTrigger",
    "TurnTrigger",
]


class TurnTrigger(OpenUnion, family="turn trigger"):
    """What opened a turn; a wheel adds a kind with `class Poll(TurnTrigger, kind="acme-poll")`.

    A loop opens its turns with the three kinds it knows. Another kind is for a loop with other
    ways to begin, and for a plugin that writes a whole turn itself while none is open.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class MessageTrigger(TurnTrigger, kind="message"):
    """Queued prompts; `source` is that of the first one."""

    source: MessageSource
    """Who sent the first prompt."""


@dataclass(frozen=True, slots=True)
class InjectionTrigger(TurnTrigger, kind="injection"):
    """Context injected while no turn was open: a turn of its own without a model call."""

    source: MessageSource
    """Who gave the context."""


@dataclass(frozen=True, slots=True)
class RecordTrigger(TurnTrigger, kind="record"):
    """A log-only event recorded while no turn was open: a turn of its own around it."""


@dataclass(frozen=True, slots=True)
class OtherTrigger(Undeclared, TurnTrigger):
    """A trigger kind that some plugin added."""
