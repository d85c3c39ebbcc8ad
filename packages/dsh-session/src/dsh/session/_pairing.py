"""Where a history can be cut without parting a tool call from its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dsh.llm import ToolCallBlock
from dsh.session._event import SessionEvent
from dsh.session._event_types import AssistantMessage, ToolResult
from dsh.session.errors import SurfaceError

__all__ = ["is_tool_pairing_balanced"]


def is_tool_pairing_balanced(
    nodes: Iterable[int], events: Sequence[SessionEvent], before_seq: int | None = None
) -> bool:
    """Say whether every tool call before a cut has its result before it too.

    Args:
        nodes: The surface, head to tail (`session.surface.nodes`).
        events: The log the nodes point into.
        before_seq: The node in front of which the cut lies; None is the end of the surface.
            What counts is its position, not its number.

    Raises:
        SurfaceError: Code `CORRUPT_SURFACE` when a result stands before its call.
    """
    depth = 0
    for seq in nodes:
        if seq == before_seq:
            break
        data = events[seq].data
        if isinstance(data, AssistantMessage):
            depth += sum(isinstance(block, ToolCallBlock) for block in data.content)
        elif isinstance(data, ToolResult):
            depth -= 1
            if depth < 0:
                raise SurfaceError(
                    f"corrupt surface: the tool/result at seq {seq} answers no call before it",
                    code=SurfaceError.CORRUPT_SURFACE,
                )
    return depth == 0
