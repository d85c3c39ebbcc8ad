"""Which tool calls run together: those that did."""

from __future__ import annotations

from collections.abc import Callable

from dsh.core import Context, JsonObject
from dsh.session import SessionEvent, StepStart, ToolCall
from dsh.sessions.replay._plan import Plan, Segment
from dsh.sessions.replay._steps import Step
from dsh.tools import Tool, ToolExecution, ToolRegistry

__all__ = ["Overlap"]


class Overlap:
    """Tells a loop which calls may overlap.

    A loop asks about the first call that waits, then about those behind it, until one does not go
    with it; in between it logs nothing. So the place of a call follows from how often was asked.

    Args:
        plan: The recorded log.
        segment: What the agent makes of it.
        step: Returns what is known about the open step.
    """

    def __init__(self, plan: Plan, segment: Segment, step: Callable[[], Step | None]) -> None:
        self._plan = plan
        self._segment = segment
        self._step = step
        self._logged = 0
        self._asked = 0

    def see(self, event: SessionEvent) -> None:
        """Take in an event the agent has logged."""
        self._asked = 0
        if isinstance(event.data, StepStart):
            self._logged = 0
        elif isinstance(event.data, ToolCall):
            self._logged += 1

    def register(self, ctx: Context) -> None:
        """Offer the tools whose calls overlapped; all others are asked for nothing."""
        for name in self._names():
            tool = Tool(name, name, {"type": "object"}, _run_nothing, concurrent=self._answer)
            ctx[ToolRegistry].register(ctx, tool)

    def _names(self) -> list[str]:
        together = {
            call_id
            for step in self._plan.steps.values()
            for group in step.groups
            if len(group) > 1
            for call_id in group
        }
        part = self._plan.events[self._segment.start : self._segment.end]
        return sorted(
            {
                event.data.name
                for event in part
                if isinstance(event.data, ToolCall) and event.data.call_id in together
            }
        )

    def _answer(self, arguments: JsonObject) -> bool:
        step = self._step()
        if step is None:
            return False
        order = [(call_id, group) for group in step.groups for call_id in group]
        head, place = self._logged, self._logged + self._asked
        self._asked += 1
        if place >= len(order):
            return False
        group = order[head][1]
        return len(group) > 1 and order[place][0] in group


async def _run_nothing(arguments: JsonObject, execution: ToolExecution) -> str:
    raise AssertionError("a replay runs no tool")
