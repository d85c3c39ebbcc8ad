"""The turns of a recorded log: what made them, and what came into them from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from dsh.session import (
    Append,
    AssistantChunk,
    AssistantMessage,
    ContextMessage,
    Failed,
    InjectionTrigger,
    MessageTrigger,
    PromptBlocked,
    RecordTrigger,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    SessionData,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)

__all__ = ["Place", "Turn", "inputs_of", "is_plain", "turns_of"]

TurnKind: TypeAlias = Literal["message", "injection", "record", "foreign"]
"""Who makes a turn: the loop for a prompt, `inject` or `record` around one event, or a plugin."""

Place: TypeAlias = Literal[
    "prompt", "assembly", "config", "stream", "reply", "call", "close", "policy"
]
"""Where in a turn something fails: at which of the loop's doings."""

Prompt: TypeAlias = UserMessage | PromptBlocked

_OWN: Final = (
    TurnStart
    | TurnEnd
    | StepStart
    | StepEnd
    | PromptBlocked
    | RequestHeaderSnapshot
    | RequestHeaderDelta
    | AssistantChunk
    | AssistantMessage
    | ToolCall
    | ToolResult
)
"""What a loop logs by itself, together with the prompts of a turn."""


@dataclass(slots=True)
class Turn:
    """One turn of the log."""

    start: int
    """Where its `turn/start` is."""
    end: int
    """One past its `turn/end`, or past the last event."""
    kind: TurnKind
    reason: TurnEndReason | None = None
    """None where the log breaks off."""
    prompts: list[Prompt] = field(default_factory=list[Prompt])
    """What was sent to make it, oldest first."""
    failure: Failed | None = None
    """How it fails, if it does."""
    fails: tuple[int, Place] | None = None
    """Behind how many events it fails, and where; None unless something else than the model
    failed."""

    def goes_on(self, events: Sequence[SessionEvent], seq: int) -> bool:
        """Whether it makes another step from an event on."""
        return any(isinstance(event.data, StepStart) for event in events[seq : self.end])


def turns_of(events: Sequence[SessionEvent], seed: int) -> list[Turn]:
    """Read the turns behind the first `seed` events."""
    turns: list[Turn] = []
    current: Turn | None = None
    for seq in range(seed, len(events)):
        data = events[seq].data
        if isinstance(data, TurnStart):
            following = events[seq + 1].data if seq + 1 < len(events) else None
            current = Turn(seq, len(events), _kind(data, following))
            turns.append(current)
        elif isinstance(data, TurnEnd) and current is not None:
            current.end, current.reason = seq + 1, data.reason
            current = None
    for turn in turns:
        if turn.kind == "message":
            turn.prompts = _prompts(events, turn)
    return turns


def _kind(data: TurnStart, following: SessionData | None) -> TurnKind:
    match data.trigger:
        case MessageTrigger():
            return "message"
        case InjectionTrigger() if isinstance(following, ContextMessage):
            return "injection"
        case RecordTrigger() if following is not None and _is_record(following):
            return "record"
        case _:
            # also a turn that was closed at once, because the log refused what it was made for
            return "foreign"


def _prompts(events: Sequence[SessionEvent], turn: Turn) -> list[Prompt]:
    found: list[Prompt] = []
    for event in events[turn.start + 1 : turn.end]:
        if isinstance(event.data, StepStart):
            break
        if isinstance(event.data, PromptBlocked) or _is_prompt(event):
            assert isinstance(event.data, PromptBlocked | UserMessage)
            found.append(event.data)
    return found


def _is_prompt(event: SessionEvent) -> bool:
    return isinstance(event.data, UserMessage) and is_plain(event)


def _is_record(data: SessionData) -> bool:
    return not isinstance(data, _OWN) and not data.surface_eligible


def inputs_of(events: Sequence[SessionEvent], turn: Turn) -> set[int]:
    """Return what is put into a turn from outside, apart from its prompts."""
    # inject and record make the turn around their event, which comes with it
    first = turn.start + (1 if turn.kind == "message" else 2)
    found: set[int] = set()
    stepped = False
    for seq in range(first, turn.end):
        event = events[seq]
        stepped = stepped or isinstance(event.data, StepStart)
        rewritten = event.surface_op is not None and not isinstance(event.surface_op, Append)
        own = isinstance(event.data, _OWN) or (not stepped and _is_prompt(event))
        if rewritten or not own:
            found.add(seq)
    return found


def is_plain(event: SessionEvent) -> bool:
    """Whether a loop may have put an event into the history: at its end, made of nothing else."""
    return isinstance(event.surface_op, Append) and event.source_event_seqs is None
