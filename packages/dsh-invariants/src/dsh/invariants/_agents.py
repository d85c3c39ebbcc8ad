"""Checks of agents: the course of their status, and that creation does not drive them."""

from __future__ import annotations

from weakref import WeakKeyDictionary, WeakSet

from dsh.agent import Agent, AgentStatus
from dsh.agent.events import AgentCreated, AgentSessionStart, AgentStatusChanged
from dsh.core import Context, Event
from dsh.invariants._service import Reporter
from dsh.session import LiveSessions, Session, SessionEvent, TurnStart

__all__ = ["install"]


class _Agents:
    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._last: WeakKeyDictionary[Agent, AgentStatus] = WeakKeyDictionary()
        self._setup: WeakSet[Session] = WeakSet()

    def on_dispatch(self, event: Event, key: object, mode: str) -> None:
        """Look at a status before anybody hears of it; a listener's error would be contained."""
        if isinstance(event, AgentStatusChanged):
            agent, status = event.agent, event.status
            last = self._last.get(agent)
            self._report.check(
                last != "disposed", f"agent {agent.id!r} is {status} after it was disposed"
            )
            self._report.check(last != status, f"agent {agent.id!r} becomes {status} twice")

    def on_status(self, event: AgentStatusChanged) -> None:
        self._last[event.agent] = event.status

    def on_created(self, event: AgentCreated) -> None:
        self._setup.add(event.agent.session)

    def on_session_start(self, event: AgentSessionStart) -> None:
        self._setup.discard(event.agent.session)

    def validate(self, session: Session, event: SessionEvent) -> None:
        if isinstance(event.data, TurnStart) and session in self._setup:
            self._report.fail(
                f"turn {event.data.turn} of session {session.id!r} starts before its agent's "
                "agent/session-start: creation registers, it does not drive"
            )


def install(ctx: Context, report: Reporter) -> None:
    """Watch every agent created from now on."""
    agents = _Agents(report)
    ctx.app.on_dispatch(ctx, agents.on_dispatch)
    ctx.on(AgentStatusChanged, agents.on_status, prepend=True)
    ctx.on(AgentCreated, agents.on_created, prepend=True)
    ctx.on(AgentSessionStart, agents.on_session_start, prepend=True)
    ctx[LiveSessions].validator(ctx, agents.validate, chunks=False)
