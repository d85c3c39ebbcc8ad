"""Context and log-only events that are added from outside of the loop, at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dsh.agent.errors import AgentFault
from dsh.session import (
    APPEND,
    Completed,
    ContextMessage,
    InjectionTrigger,
    RecordTrigger,
    Session,
    SessionData,
    SessionEvent,
    SurfaceOp,
    TurnEnd,
    TurnStart,
    TurnTrigger,
    freeze,
    type_name,
)

Enclosed: TypeAlias = Callable[[int, Exception | None], object]
"""Told the number of a turn made around one event, and what a validator had against its end."""


class Notes:
    """What `Agent.inject` and `Agent.record` do: places events where the history stays valid.

    While a batch of tools is under way context is held back, so that every call stays next to
    its result; while an event is being announced it waits until that is over; without an open
    turn it gets one of its own.

    Args:
        session: The agent's log.
        enclosed: Called after a turn of that kind; it wants a checkpoint.
    """

    __slots__ = ("_enclosed", "_holding", "_parked", "_session")

    def __init__(self, session: Session, enclosed: Enclosed) -> None:
        self._session = session
        self._enclosed = enclosed
        self._holding = False
        self._parked: list[ContextMessage] = []

    def inject(self, message: ContextMessage) -> None:
        """Log context now, or as soon as it can be.

        Args:
            message: What to log; see `context_message`.

        Raises:
            Exception: The log refused it. A turn made for it is closed all the same.
        """
        if self._session.notifying:
            self._session.after_notification(lambda: self._place(message))
        else:
            self._place(message)

    def record(self, data: SessionData) -> SessionEvent:
        """Log a log-only event, in the open turn or in one of its own.

        Args:
            data: The payload; checked and detached here.

        Returns:
            The event as logged.

        Raises:
            AgentFault: Code `BAD_CONTENT`: it is no payload of an event, or one that stands in the
                history.
            NotJsonError: It would not survive a JSON round trip; nothing was logged.
            Exception: The log refused it. A turn made for it is closed all the same.
        """
        if not isinstance(data, SessionData):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AgentFault(
                f"{data!r:.80} is no event payload",
                code=AgentFault.BAD_CONTENT,
                hint="record an instance of a class that derives from dsh.session.SessionData",
            )
        if data.surface_eligible:
            raise AgentFault(
                f"{data.event_type} is no log-only event",
                code=AgentFault.BAD_CONTENT,
                hint="use send(), steer() or inject() for what the model shall see",
            )
        data = freeze(data, where=type_name(data))
        if self._session.turn_open is not None:
            return self._session.append(data)
        return self._enclose(RecordTrigger(), data, None)

    def hold(self) -> None:
        """Hold context back from now on: a reply with tool calls is about to be logged."""
        self._holding = True

    def park(self, message: ContextMessage) -> None:
        """Add context of a finished call to what is held back.

        Args:
            message: What to log.
        """
        self._parked.append(message)

    def release(self) -> None:
        """Log what was held back, in the order in which it came: every call has its result.

        Raises:
            Exception: What a validator raised; the rest is logged all the same.
        """
        self._holding = False
        parked, self._parked = self._parked, []
        refusal: Exception | None = None
        for message in parked:
            try:
                self._session.append(message, APPEND)
            except Exception as error:  # noqa: BLE001 - the first one is raised below
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def _place(self, message: ContextMessage) -> None:
        if self._holding:
            self._parked.append(message)
        elif self._session.turn_open is not None:
            self._session.append(message, APPEND)
        else:
            self._enclose(InjectionTrigger(message.source), message, APPEND)

    def _enclose(
        self, trigger: TurnTrigger, data: SessionData, surface: SurfaceOp | None
    ) -> SessionEvent:
        session = self._session
        turn = session.last_turn + 1
        try:
            session.append(TurnStart(turn, trigger))
            return session.append(data, surface)
        finally:
            # an event may be in the log although telling about it was vetoed
            if session.turn_open == turn:
                session.append(TurnEnd(turn, Completed()))
                self._enclosed(turn, session.take_objection())
