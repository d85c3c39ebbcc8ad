"""One agent that makes a part of a log again."""

from __future__ import annotations

import logging
from typing import Final

from dsh.agent import Agent, AgentHandle
from dsh.core import Context, DshError
from dsh.session import Aborted, ContextMessage, Session, SessionEvent, SteeringMessage
from dsh.session.events import SessionEventAppended
from dsh.sessions.replay._compare import difference, missing, surplus
from dsh.sessions.replay._plan import Plan, Segment
from dsh.sessions.replay._report import Divergence
from dsh.sessions.replay._turns import Turn, is_plain
from dsh.sessions.replay._world import World

__all__ = ["Player"]

_log: Final = logging.getLogger("dsh.sessions.replay")


class Player:
    """Gives an agent what its recorded twin was given, and compares what the two log.

    Everything from outside has the place in the log that it had: the agent gets it the moment the
    event before it has been logged.

    Args:
        plan: The recorded log.
        segment: What the agent makes of it.
    """

    def __init__(self, plan: Plan, segment: Segment) -> None:
        self.divergence: Divergence | None = None
        """The first difference."""
        self.matched = segment.start
        """How many events of the log are the same."""
        self._plan = plan
        self._segment = segment
        self._world = World(plan, segment)
        self._turn: Turn = segment.turns[0]
        self._given: set[int] = set()
        self._over = False
        self._broken: Exception | None = None
        self._handle: AgentHandle | None = None

    async def setup(self, ctx: Context) -> None:
        """Compose the agent before anybody can see it."""
        ctx.on(SessionEventAppended, self._appended)
        self._world.register(ctx)

    async def play(self, handle: AgentHandle) -> None:
        """Make every turn of the segment again, as far as they are the same."""
        self._handle = handle
        self._world.session = handle.agent.session
        for turn in self._segment.turns:
            self._turn = turn
            try:
                self._begin(turn)
            except DshError as error:
                # no agent can have done this, since the log or the agent itself refuses it
                _log.debug("turn at event %d cannot be made again: %s", turn.start, error)
            await self._agent.when_idle()
            if self._broken is not None:
                raise self._broken
            if self._over:
                return
            seq = self._session.seq
            if seq < turn.end:
                self._differ(missing(seq, self._plan.events[seq]))
                return

    def _begin(self, turn: Turn) -> None:
        """Do what made the recorded turn begin."""
        for content, source in self._world.enter(turn):
            self._agent.send(content, source)
        inner = self._event(turn.start + 1)
        if turn.kind == "foreign":
            for event in self._plan.events[turn.start : turn.end]:
                if not self._over:
                    self._copy(event)
        elif turn.kind == "record" and inner is not None:
            self._agent.record(inner.data)
        elif inner is not None and turn.kind == "injection":
            assert isinstance(inner.data, ContextMessage)
            self._agent.inject(inner.data.content, inner.data.source)

    # --- the log --------------------------------------------------------------------------

    def _appended(self, event: SessionEventAppended) -> None:
        """Compare an event, then do what came from outside right behind it."""
        if self._over:
            return
        try:
            self._world.overlap.see(event.event)
            self._compare(event.event)
            if not self._over:
                self._feed(event.event.seq + 1)
        except Exception as error:  # noqa: BLE001 - a listener is contained; `play` raises it
            self._broken = error
            self._leave()

    def _compare(self, event: SessionEvent) -> None:
        recorded = self._event(event.seq)
        found = surplus(event) if recorded is None else difference(recorded, event)
        if found is not None:
            self._differ(found)
            return
        self.matched = event.seq + 1
        if self._segment.crashed and self.matched == self._segment.end:
            self._leave()

    def _differ(self, divergence: Divergence) -> None:
        self.divergence = divergence
        self._leave()

    def _leave(self) -> None:
        """End the agent here: what it still logs does not count."""
        self._over = True
        if self._handle is not None:
            self._handle.request_dispose()

    # --- what comes from outside ----------------------------------------------------------

    def _feed(self, seq: int) -> None:
        """Do what somebody else than the loop did when the log had this many events."""
        cause = self._plan.interrupts.get(seq)
        if isinstance(cause, Aborted):
            self._agent.cancel(cause.reason)
        elif cause is not None:
            self._give_held_back(seq)
            assert self._handle is not None
            self._handle.request_dispose()
        if seq in self._plan.inputs and seq not in self._given:
            self._give(self._plan.events[seq])

    def _give_held_back(self, seq: int) -> None:
        """Give what the agent holds back until its tools are through; once disposed it refuses."""
        for later in range(seq, self._turn.end):
            event = self._plan.events[later]
            context = isinstance(event.data, ContextMessage) and is_plain(event)
            if context and later in self._plan.inputs:
                self._given.add(later)
                self._give(event)

    def _give(self, event: SessionEvent) -> None:
        match event.data:
            case SteeringMessage(content=content, source=source) if is_plain(event):
                self._agent.steer(content, source)
            case ContextMessage(content=content, source=source) if is_plain(event):
                self._agent.inject(content, source)
            case _:
                self._session.after_notification(lambda: self._copy(event))

    def _copy(self, event: SessionEvent) -> None:
        """Log what a plugin logged."""
        self._session.append(event.data, event.surface_op, event.source_event_seqs)

    # --- inside ---------------------------------------------------------------------------

    @property
    def _agent(self) -> Agent:
        assert self._handle is not None
        return self._handle.agent

    @property
    def _session(self) -> Session:
        return self._agent.session

    def _event(self, seq: int) -> SessionEvent | None:
        return self._plan.events[seq] if seq < len(self._plan.events) else None
