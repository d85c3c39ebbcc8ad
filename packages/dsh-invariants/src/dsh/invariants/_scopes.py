"""Checks that what belongs to one agent is dispatched for that agent."""

from __future__ import annotations

from functools import partial

from dsh.agent import Agent
from dsh.core import Context, Event
from dsh.invariants._service import Reporter
from dsh.system_prompt.events import SystemPromptAssemble

__all__ = ["check_dispatch", "install"]


def check_dispatch(report: Reporter, event: Event, key: object, mode: str) -> None:
    """Look at one dispatch.

    The key must be the object that the event's scope path leads to. An event whose path begins at
    an agent must have that agent as its key; for others (sessions, tool calls) there may be none.

    Raises:
        InvariantError: The event goes out under another key.
    """
    path = event.event_scope
    if path is None:
        report.check(key is None, f"{event.event_name} has no scope and is dispatched in one")
        return
    subject: object = event
    for part in path.split("."):
        subject = getattr(subject, part, None)
    report.check(
        key is subject, f"{event.event_name} is dispatched for another scope than that of {path}"
    )
    if path == "agent":
        report.check(isinstance(key, Agent), f"{event.event_name} is dispatched without its agent")
    if isinstance(event, SystemPromptAssemble):
        context = event.context
        report.check(
            context.agent is None or context.scope is context.agent,
            "a prompt is assembled for an agent outside of that agent's scope",
        )


def install(ctx: Context, report: Reporter) -> None:
    """Look at every dispatch."""
    ctx.app.on_dispatch(ctx, partial(check_dispatch, report))
