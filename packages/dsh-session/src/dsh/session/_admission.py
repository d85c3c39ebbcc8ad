"""What an event must be to get into a log, apart from its place in it."""

from __future__ import annotations

from collections.abc import Iterable

from dsh.llm import BlockStart, ReasoningDelta, StreamChunk, TextDelta, ToolCallDelta
from dsh.session._event import SurfaceOp
from dsh.session._event_types import StepEnd, ToolResult, TurnEnd
from dsh.session._session_data import SessionData
from dsh.session.errors import EventRefusedError

__all__ = ["check_marker", "checked_sources", "closes", "is_plain"]


def closes(data: SessionData) -> bool:
    """Say whether an event closes something, so that keeping it out would do more harm."""
    return isinstance(data, StepEnd | TurnEnd) or (isinstance(data, ToolResult) and data.synthetic)


def is_plain(chunk: StreamChunk) -> bool:
    """Say whether a chunk can be logged without a walk: nothing but integers and sound text."""
    if isinstance(chunk, TextDelta | ReasoningDelta):
        text = chunk.text
    elif isinstance(chunk, ToolCallDelta):
        text = chunk.arguments_delta
    else:
        return isinstance(chunk, BlockStart)
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_marker(data: SessionData, event_type: str, surface: SurfaceOp | None) -> None:
    """Raise unless the event has a surface operation exactly if its type needs one.

    Raises:
        EventRefusedError: Code `SURFACE_OP_MISSING` or `SURFACE_OP_UNEXPECTED`.
    """
    if data.surface_eligible and surface is None:
        raise EventRefusedError(
            f"{event_type} stands in the history and needs a surface operation (surfaceOp)",
            code=EventRefusedError.SURFACE_OP_MISSING,
            hint="pass surface=APPEND",
        )
    if surface is not None and not data.surface_eligible:
        raise EventRefusedError(
            f"{event_type} is log-only and takes no surface operation (surfaceOp)",
            code=EventRefusedError.SURFACE_OP_UNEXPECTED,
        )


def checked_sources(
    data: SessionData, event_type: str, sources: Iterable[int] | None, seq: int
) -> tuple[int, ...] | None:
    """Return the provenance of the event at `seq`; empty is absent.

    Raises:
        EventRefusedError: Code `BAD_PROVENANCE`.
    """
    seqs = () if sources is None else tuple(sources)
    if not seqs:
        return None
    if not data.surface_eligible:
        problem = f"{event_type} is log-only and takes no sourceEventSeqs"
    elif any(type(item) is not int for item in seqs):
        problem = f"{event_type}: sourceEventSeqs holds something that is no integer"
    elif min(seqs) < 0 or max(seqs) >= seq:
        problem = f"{event_type} at seq {seq} cites an event that is not before it"
    else:
        return seqs
    raise EventRefusedError(problem, code=EventRefusedError.BAD_PROVENANCE)
