"""The steps of a recorded log, known before they are made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dsh.llm import Finish, FinishReason, StreamChunk
from dsh.session import (
    Append,
    AssistantChunk,
    AssistantMessage,
    RequestHeader,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    fold_request_header,
)
from dsh.session.errors import HeaderFoldError

__all__ = ["Step", "Steps", "steps_of"]


@dataclass(slots=True)
class Step:
    """What is known about a step before it is made again."""

    header: RequestHeader | None = None
    """The header of its request."""
    headed: bool = False
    """Whether the header was logged in this step."""
    chunks: list[StreamChunk] = field(default_factory=list[StreamChunk])
    """What the model said, as it came."""
    replied: bool = False
    """Whether its reply was logged."""
    groups: list[list[str]] = field(default_factory=list[list[str]])
    """The calls by id, those together that overlapped."""

    @property
    def finish(self) -> FinishReason | None:
        """How what the model said ended, where its end came."""
        last = self.chunks[-1] if self.chunks else None
        return last.reason if isinstance(last, Finish) else None

    @property
    def broke_off(self) -> bool:
        """Whether the step was left in the middle of its request, or before it."""
        return self.finish is None and not self.replied


Steps = dict[tuple[int, int], Step]
"""Steps by the numbers of turn and step."""


def steps_of(events: Sequence[SessionEvent]) -> Steps:
    """Read the steps of a log."""
    steps: Steps = {}
    header: RequestHeader | None = None
    step: Step | None = None
    for event in events:
        data = event.data
        if isinstance(data, RequestHeaderSnapshot | RequestHeaderDelta):
            header = _folded(event, header)
        if isinstance(data, StepStart):
            step = steps[data.turn, data.step] = Step(header)
        elif isinstance(data, StepEnd | TurnEnd):
            step = None
        elif step is not None:
            _see(step, event, header)
    return steps


def _see(step: Step, event: SessionEvent, header: RequestHeader | None) -> None:
    data = event.data
    if isinstance(data, RequestHeaderSnapshot | RequestHeaderDelta):
        step.header, step.headed = header, True
    elif isinstance(data, AssistantChunk):
        step.chunks.append(data.chunk)
    elif isinstance(data, AssistantMessage) and isinstance(event.surface_op, Append):
        step.replied = True
    elif isinstance(data, ToolCall):
        if not step.groups or step.groups[-1] is _CLOSED:
            step.groups = [group for group in step.groups if group is not _CLOSED]
            step.groups.append([])
        step.groups[-1].append(data.call_id)
    elif isinstance(data, ToolResult) and step.groups and step.groups[-1] is not _CLOSED:
        step.groups.append(_CLOSED)


_CLOSED: Final[list[str]] = []
"""Marks that results have come, so that the next call begins another group."""


def _folded(event: SessionEvent, header: RequestHeader | None) -> RequestHeader | None:
    try:
        return fold_request_header((event,), header)
    except HeaderFoldError:
        # such a log differs from what any loop writes, and this event is where it does
        return header
