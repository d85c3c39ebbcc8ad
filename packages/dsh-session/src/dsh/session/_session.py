"""One session: an append-only log and what is derived from it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from dsh.core import now_ms
from dsh.llm import Message
from dsh.session._admission import check_marker, checked_sources, closes, is_plain
from dsh.session._enclosure import Enclosure
from dsh.session._event import SessionEvent, SurfaceOp
from dsh.session._event_types import AssistantChunk, RequestHeaderDelta, RequestHeaderSnapshot
from dsh.session._freeze import freeze
from dsh.session._log import EventLog
from dsh.session._request_header import RequestHeader
from dsh.session._request_header_fold import fold_request_header
from dsh.session._seed import check_seed
from dsh.session._session_data import SessionData, no_payload, type_name
from dsh.session._session_header import SessionHeader
from dsh.session._surface import Surface
from dsh.session._tap import SessionTap, Validator
from dsh.session.errors import EventRefusedError, LiveSessionError

__all__ = ["Session"]

_log: Final = logging.getLogger("dsh.session")


class Session:
    """The single source of truth about one conversation.

    Events are appended and never changed; the model's history, the request header and the open
    turn are derived from them as they come. All methods belong to the event loop's thread.

    Args:
        id: The session's id.
        seed: Events to start from. They are checked and taken over, and not announced.
        header: Metadata; a minimal one is made if it is missing.
        enclosed: Refuse events that do not stand in the turn and step they belong to.

    Raises:
        SeedError: The seed is no log: code `SEED_GAP`, `SEED_NOT_JSON`, `SEED_SURFACE_OP` or
            `SEED_SURFACE`.
        HeaderFoldError: The seed's request headers are corrupt.
    """

    __slots__ = (
        "__weakref__",
        "_busy",
        "_draining",
        "_enclosed",
        "_enclosure",
        "_events",
        "_header",
        "_id",
        "_objection",
        "_parked",
        "_request_header",
        "_surface",
        "_tap",
        "_view",
    )

    def __init__(
        self,
        id: str,
        seed: Iterable[SessionEvent] = (),
        header: SessionHeader | None = None,
        enclosed: bool = True,
    ) -> None:
        self._id = id
        self._header = header or SessionHeader(id=id, created_at=now_ms())
        self._enclosed = enclosed
        self._events: list[SessionEvent] = []
        self._view = EventLog(self._events)
        self._surface = Surface(self._events)
        self._enclosure = Enclosure()
        self._request_header: RequestHeader | None = None
        self._tap: SessionTap | None = None
        self._objection: Exception | None = None
        self._busy = False
        self._draining = False
        self._parked: deque[Callable[[], object]] = deque()
        for index, event in enumerate(seed):
            self._take(check_seed(index, event, self._surface))

    # --- reading --------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id."""
        return self._id

    @property
    def header(self) -> SessionHeader:
        """The session's metadata."""
        return self._header

    @property
    def events(self) -> EventLog:
        """The log, as a live read-only view."""
        return self._view

    @property
    def seq(self) -> int:
        """Sequence number of the next event, which is the length of the log."""
        return len(self._events)

    @property
    def surface(self) -> Surface:
        """Which events make up the history."""
        return self._surface

    @property
    def owner(self) -> object | None:
        """Scope key under which the session's events are dispatched; None belongs to nobody."""
        return None if self._tap is None else self._tap.owner

    @property
    def attached(self) -> bool:
        """Whether a `LiveSessions` lists this session."""
        return self._tap is not None

    @property
    def enclosed(self) -> bool:
        """Whether `append` enforces the turn and step structure."""
        return self._enclosed

    @property
    def turn_open(self) -> int | None:
        """Number of the open turn."""
        return self._enclosure.turn

    @property
    def step_open(self) -> int | None:
        """Number of the open step."""
        return self._enclosure.step

    @property
    def last_turn(self) -> int:
        """Highest turn number so far; 0 before the first turn."""
        return self._enclosure.last_turn

    @property
    def last_step(self) -> int:
        """Highest step number of the open turn, or of the last one; 0 before its first step."""
        return self._enclosure.last_step

    @property
    def notifying(self) -> bool:
        """Whether an append is being looked at right now, so that another one is refused."""
        return self._busy

    def derive_messages(self) -> tuple[Message, ...]:
        """Return the model's history: the same immutable message objects every time."""
        return self._surface.messages()

    def request_header(self) -> RequestHeader | None:
        """Return the request header in force, or None before the first request."""
        return self._request_header

    # --- writing --------------------------------------------------------------------------

    def append(
        self,
        data: SessionData,
        surface: SurfaceOp | None = None,
        sources: Iterable[int] | None = None,
    ) -> SessionEvent:
        """Commit one event and tell the observers.

        The payload is checked and detached first, then the surface operation, the enclosure and
        the validators; only then does the event enter the log. Observers come last: one that
        raises changes nothing.

        An event that closes something (`step/end`, `turn/end`, a synthetic `tool/result`) is
        committed even if a validator objects; `take_objection` returns what it said. Lone
        surrogates in such an event's texts are replaced and not refused.

        Args:
            data: The payload.
            surface: `APPEND` or a `Replace` for types that stand in the history, None for others.
            sources: Sequence numbers of the events that this one was made from.

        Returns:
            The event as logged.

        Raises:
            NotJsonError: The payload would not survive a JSON round trip; the message names the
                event type.
            EventRefusedError: Code `SURFACE_OP_MISSING`, `SURFACE_OP_UNEXPECTED`,
                `BAD_PROVENANCE`, or `REENTRANT_APPEND` when called while another append is
                being validated or announced; `after_notification` runs code when it is over.
            SurfaceError: A replace names no range of the surface.
            HeaderFoldError: A request-header delta does not fit the header in force.
            EnclosureError: The event does not stand in its turn or step.
            Exception: What a validator raised; or an observer of all dispatches
                (`app.on_dispatch`), and then the event is in the log.
        """
        if self._busy:
            raise EventRefusedError(
                f"an event was appended to session {self._id!r} while another one is being "
                f"validated or announced: {type(data).__name__}",
                code=EventRefusedError.REENTRANT_APPEND,
                hint="use agent.inject() or session.after_notification()",
            )
        if type(data) is AssistantChunk and surface is None and sources is None:
            return self._append_chunk(data)
        closing = closes(data)
        event = self._admit(data, surface, sources, closing)
        tap = self._tap
        if tap is not None and tap.validators:
            self._validate(tap.validators, event, closing)
        self._take(event)
        if tap is not None:
            self._announce(tap, event, closing)
        return event

    def take_objection(self) -> Exception | None:
        """Return, once, what a validator first said against a closing event."""
        objection, self._objection = self._objection, None
        return objection

    def after_notification(self, fn: Callable[[], object]) -> None:
        """Run `fn` when no append is being looked at: at once, or when the current one is done.

        Parked functions run in order and may append. What one raises is reported and does not
        reach whoever appended; called at once, `fn` raises to its caller.
        """
        if self._busy or self._draining:
            self._parked.append(fn)
        else:
            fn()

    # --- for `LiveSessions` ----------------------------------------------------------------

    def attach(self, tap: SessionTap) -> None:
        """Let a `LiveSessions` listen in.

        Raises:
            LiveSessionError: Code `SESSION_ATTACHED` when one listens already.
        """
        if self._tap is not None:
            raise LiveSessionError(
                f"session {self._id!r} is attached already: some `sessions` lists it",
                code=LiveSessionError.SESSION_ATTACHED,
            )
        self._tap = tap

    def detach(self, tap: SessionTap) -> None:
        """Let it listen no more; does nothing if another one listens, or none."""
        if self._tap is tap:
            self._tap = None

    # --- parts of append ------------------------------------------------------------------

    def _append_chunk(self, data: AssistantChunk) -> SessionEvent:
        # The hot path: its fields are str and int by construction, so only texts are looked at.
        if not is_plain(data.chunk):
            data = freeze(data, where="assistant/chunk")
        if self._enclosed:
            self._enclosure.check_chunk(data)
        event = SessionEvent(len(self._events), now_ms(), data)
        tap = self._tap
        if tap is None:
            self._events.append(event)
            return event
        if tap.chunk_validators:
            self._validate(tap.chunk_validators, event, closing=False)
        self._events.append(event)
        self._announce(tap, event, closing=False)
        return event

    def _admit(
        self,
        data: SessionData,
        surface: SurfaceOp | None,
        sources: Iterable[int] | None,
        closing: bool,
    ) -> SessionEvent:
        if not isinstance(data, SessionData):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise no_payload(data)
        event_type = type_name(data)
        data = freeze(data, where=event_type, mend=closing)
        check_marker(data, event_type, surface)
        seq = len(self._events)
        cited = checked_sources(data, event_type, sources, seq)
        event = SessionEvent(seq, now_ms(), data, surface, cited)
        if surface is not None:
            self._surface.accept(surface)
        if isinstance(data, RequestHeaderDelta):
            fold_request_header((event,), self._request_header)
        if self._enclosed:
            self._enclosure.check(data, surface)
        return event

    def _validate(
        self, validators: tuple[Validator, ...], event: SessionEvent, closing: bool
    ) -> None:
        self._busy = True
        committed = False
        try:
            for validator in validators:
                try:
                    validator(self, event)
                except Exception as error:
                    if not closing:
                        raise
                    self._object(error, event)
            committed = True
        finally:
            self._busy = False
            if not committed and self._parked:
                self._drain()

    def _take(self, event: SessionEvent) -> None:
        """Put an admitted event into the log and into everything derived from it."""
        data = event.data
        self._events.append(event)
        if event.surface_op is not None:
            self._surface.fold(event)
        elif isinstance(data, RequestHeaderSnapshot | RequestHeaderDelta):
            self._request_header = fold_request_header((event,), self._request_header)
        self._enclosure.advance(data)

    def _announce(self, tap: SessionTap, event: SessionEvent, closing: bool) -> None:
        self._busy = True
        try:
            tap.notify(event)
        except Exception as error:
            # observers are contained by the kernel; this is a veto on the dispatch itself
            if not closing:
                raise
            self._object(error, event)
        finally:
            self._busy = False
            if self._parked:
                self._drain()

    def _object(self, error: Exception, event: SessionEvent) -> None:
        if self._objection is None:
            self._objection = error
        else:
            self._report(error, f"validating {event.type} at seq {event.seq}")

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            while self._parked:
                fn = self._parked.popleft()
                try:
                    fn()
                except Exception as error:  # noqa: BLE001 - must not reach an unrelated appender
                    self._report(error, "work parked until a notification was over")
        finally:
            self._draining = False

    def _report(self, error: Exception, where: str) -> None:
        if self._tap is not None:
            self._tap.report(error, where)
        else:
            _log.error("session %s: %s failed", self._id, where, exc_info=error)

    def __repr__(self) -> str:
        return f"<Session {self._id!r} with {len(self._events)} events>"
