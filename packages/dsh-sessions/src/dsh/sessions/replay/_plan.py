"""Reading a recorded log: what came from outside, and what made it come out as it did.

A loop writes most of a log by itself. What it does not is found here: prompts, steering, context,
records of plugins, where somebody interrupted it, what failed without the model's doing, and which
instance of an agent wrote which part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsh.agent import AgentOptions
from dsh.llm import Message
from dsh.session import (
    Aborted,
    Append,
    Disposed,
    Interrupted,
    MaxTurnRequests,
    RequestHeaderSnapshot,
    SessionEvent,
    ToolResult,
    interrupted_turn_closers,
)
from dsh.sessions.replay._steps import Steps, steps_of
from dsh.sessions.replay._stops import find_stop
from dsh.sessions.replay._turns import Turn, inputs_of, turns_of

__all__ = ["Plan", "Segment", "plan_of", "repair_of"]


@dataclass(slots=True)
class Segment:
    """What one instance of an agent wrote."""

    turns: list[Turn]
    end: int
    """One past the last event the instance logged."""
    closed: int
    """One past what the repair added when the log was read again; `end` if nothing."""
    crashed: bool = False
    """Whether the process ended in the middle of a turn."""
    prefix: tuple[Message, ...] = ()
    """The messages in front of the history."""
    max_steps: int | None = None
    max_turn_tokens: int | None = None

    @property
    def start(self) -> int:
        """Where its first event is."""
        return self.turns[0].start

    @property
    def options(self) -> AgentOptions:
        """What the agent was made with, as far as it shows."""
        return AgentOptions(max_steps=self.max_steps, max_turn_tokens=self.max_turn_tokens)


@dataclass(slots=True)
class Plan:
    """How to make a log again."""

    events: Sequence[SessionEvent]
    seed: int
    """How many events were inherited."""
    segments: list[Segment]
    steps: Steps
    """The steps of all turns."""
    inputs: frozenset[int]
    """Events that somebody else than the loop logs, inside of a turn."""
    interrupts: dict[int, Aborted | Disposed]
    """Behind how many events somebody interrupts the turn, and how."""
    results: dict[str, ToolResult]
    """What each tool call came to, by call id."""


def plan_of(events: Sequence[SessionEvent], seed: int) -> Plan:
    """Read a log.

    Args:
        events: The log.
        seed: How many of its events were inherited and are not made again.
    """
    turns = turns_of(events, seed)
    segments = _segments(events, turns)
    steps = steps_of(events)
    inputs: set[int] = set()
    interrupts: dict[int, Aborted | Disposed] = {}
    for turn in turns:
        if turn.kind == "foreign":
            continue
        inputs |= inputs_of(events, turn)
        stop = find_stop(events, turn, steps)
        if stop is not None:
            interrupts[stop[0]] = stop[1]
    return Plan(
        events,
        seed,
        segments,
        steps,
        frozenset(inputs),
        interrupts,
        {
            event.data.call_id: event.data
            for event in events
            if isinstance(event.data, ToolResult) and isinstance(event.surface_op, Append)
        },
    )


def _segments(events: Sequence[SessionEvent], turns: list[Turn]) -> list[Segment]:
    segments: list[Segment] = []
    headed = over = True
    for turn in turns:
        anchors = [
            event.data.header
            for event in events[turn.start : turn.end]
            if isinstance(event.data, RequestHeaderSnapshot) and event.data.reason != "fallback"
        ]
        if not segments or over or (anchors and headed):
            segments.append(Segment([], turn.end, turn.end))
            headed = False
        segment = segments[-1]
        segment.turns.append(turn)
        segment.end = segment.closed = turn.end
        if anchors:
            segment.prefix = anchors[0].message_prefix or ()
            headed = True
        _limits(segment, turn)
        over = _ends(events, segment, turn)
    return segments


def _limits(segment: Segment, turn: Turn) -> None:
    match turn.reason:
        case MaxTurnRequests("max_steps", value):
            segment.max_steps = value
        case MaxTurnRequests("max_turn_tokens", value):
            segment.max_turn_tokens = value
        case _:
            pass


def _ends(events: Sequence[SessionEvent], segment: Segment, turn: Turn) -> bool:
    """Note how an instance ended with a turn; whether it did."""
    if turn.reason is None:
        segment.crashed = True
    elif isinstance(turn.reason, Interrupted):
        segment.end = _crash(events, turn)
        segment.crashed = segment.end < turn.end
        turn.end = segment.end if segment.crashed else turn.end
    return turn.reason is None or isinstance(turn.reason, Interrupted | Disposed)


def _crash(events: Sequence[SessionEvent], turn: Turn) -> int:
    """Return how many events were there when the process ended: the rest is repair."""
    found = turn.end
    for end in range(turn.end - 1, turn.start, -1):
        if repair_of(events, end, turn.end) is None:
            break
        found = end
    return found


def repair_of(
    events: Sequence[SessionEvent], end: int, closed: int
) -> tuple[SessionEvent, ...] | None:
    """Return what a repair adds to the first `end` events.

    Args:
        events: The log.
        end: Where it broke off.
        closed: Where the repair ends in it.

    Returns:
        The repair; None if the log says something else there.
    """
    recorded = [one.data for one in events[end:closed]]
    for lost in (False, True):
        closers = interrupted_turn_closers(events[:end], more_was_lost=lost)
        if [one.data for one in closers] == recorded:
            return closers
    return None
