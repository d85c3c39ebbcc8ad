"""How a turn ended, read from the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dsh.llm import Message, TextBlock, TokenUsage
from dsh.session import (
    AssistantMessage,
    Completed,
    Failed,
    Interrupted,
    Session,
    TurnEnd,
    TurnEndReason,
)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The prompt never reached a turn: a cancel emptied the queue, or the log refused the turn."""

    kind: ClassVar[str] = "dropped"
    reason: str
    """Why it was dropped."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A policy kept the prompt out of its turn."""

    kind: ClassVar[str] = "blocked"
    reason: str
    """What the policy said."""


OutcomeReason = TurnEndReason | Dropped | Blocked
"""How a turn ended, or why a prompt never got into one."""


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What became of a prompt."""

    turn: int | None
    """The turn that took the prompt in; None when it was dropped."""
    reason: OutcomeReason
    """How that turn ended, or why the prompt never got that far."""
    text: str
    """Text of the last reply of the turn; empty when there is none."""
    message: Message | None
    """The last reply of the turn."""
    usage: TokenUsage | None
    """Tokens of all model requests of the turn; None when no provider reported any."""
    error: Failed | None
    """The failure, when the turn ended with one."""

    @property
    def ok(self) -> bool:
        """Whether the turn completed."""
        return isinstance(self.reason, Completed)


def turn_outcome(
    session: Session, turn: int, start: int = 0, end: int | None = None
) -> TurnOutcome:
    """Read the outcome of a turn from the log.

    Args:
        session: The log.
        turn: Number of the turn.
        start: Sequence number of its `turn/start`, or of anything before it.
        end: Number of events to read, when the turn's end is known to lie before it.

    Returns:
        The outcome; a turn without an end in the log counts as interrupted.
    """
    events = session.events
    reason: TurnEndReason = Interrupted()
    last: AssistantMessage | None = None
    usage: TokenUsage | None = None
    for seq in range(start, len(events) if end is None else end):
        data = events[seq].data
        if isinstance(data, AssistantMessage):
            if data.turn == turn:
                last = data if data.content else last
                usage = _add(usage, data.usage)
        elif isinstance(data, TurnEnd) and data.turn == turn:
            reason = data.reason
            break
    message = None if last is None else Message("assistant", last.content, last.replay)
    return TurnOutcome(
        turn=turn,
        reason=reason,
        text="" if message is None else text_of(message),
        message=message,
        usage=usage,
        error=reason if isinstance(reason, Failed) else None,
    )


def text_of(message: Message) -> str:
    """Return the text blocks of a message, joined."""
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


def _add(left: TokenUsage | None, right: TokenUsage | None) -> TokenUsage | None:
    if left is None or right is None:
        return left or right
    return left + right
