"""Context and log-only events that are added from outside of the loop, at any time."""

from __future__ import annotations

from dsh.agent_loop._state import AgentState
from dsh.session import (
    APPEND,
    Completed,
    ContextMessage,
    InjectionTrigger,
    RecordTrigger,
    SessionData,
    SessionEvent,
    SurfaceOp,
    TurnEnd,
    TurnStart,
    TurnTrigger,
)


class Notes:
    """Places context where the history stays valid.

    While a tool batch is under way context is held back, so that every call stays next to its
    result; while an event is being announced it waits until that is over.
    """

    __slots__ = ("_holding", "_parked", "_state")

    def __init__(self, state: AgentState) -> None:
        self._state = state
        self._holding = False
        self._parked: list[ContextMessage] = []

    def inject(self, message: ContextMessage) -> None:
        """Log context now, or as soon as it can be."""
        session = self._state.session
        if session.notifying:
            session.after_notification(lambda: self._place(message))
        else:
            self._place(message)

    def record(self, data: SessionData) -> SessionEvent:
        """Log a log-only event, in the open turn or in one of its own."""
        if self._state.session.turn_open is not None:
            return self._state.session.append(data)
        return self._enclose(RecordTrigger(), data, None)

    def hold(self) -> None:
        """Hold context back from now on: a tool batch begins."""
        self._holding = True

    def park(self, message: ContextMessage) -> None:
        """Add context of a finished call to what is held back."""
        self._parked.append(message)

    def release(self) -> None:
        """Log what was held back, in the order in which it came: the batch is over.

        Raises:
            Exception: What a validator raised; the rest is logged all the same.
        """
        self._holding = False
        parked, self._parked = self._parked, []
        refusal: Exception | None = None
        for message in parked:
            try:
                self._state.session.append(message, APPEND)
            except Exception as error:  # noqa: BLE001 - the first one is raised below
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def _place(self, message: ContextMessage) -> None:
        if self._holding:
            self._parked.append(message)
        elif self._state.session.turn_open is not None:
            self._state.session.append(message, APPEND)
        else:
            self._enclose(InjectionTrigger(message.source), message, APPEND)

    def _enclose(
        self, trigger: TurnTrigger, data: SessionData, surface: SurfaceOp | None
    ) -> SessionEvent:
        """Make a turn of its own around one event, and have the driver checkpoint it."""
        state, session = self._state, self._state.session
        turn = session.last_turn + 1
        session.append(TurnStart(turn, trigger))
        try:
            return session.append(data, surface)
        finally:
            session.append(TurnEnd(turn, Completed()))
            objection = session.take_objection()
            state.flush_due = True
            state.rouse()
            if objection is not None:
                state.report(turn, 0, objection)
