"""The service `sessions`: which sessions are live, who hears their events, forks."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dsh.core import AnonymousEntries, Context, Effect, ScopedLayers, Service, now_ms, scope_of
from dsh.session._event import SessionEvent
from dsh.session._fork import fork_boundary
from dsh.session._session import Session
from dsh.session._session_header import SessionHeader, SessionMeta
from dsh.session._tap import SessionTap, Validator
from dsh.session.errors import ForkError, LiveSessionError
from dsh.session.events import (
    SessionCreated,
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
)

__all__ = ["LiveSessions"]


@dataclass(frozen=True, slots=True)
class _Rule:
    check: Validator
    chunks: bool


@dataclass(slots=True)
class _Entry:
    session: Session
    tap: SessionTap
    announced: bool = False
    left: bool = False


class LiveSessions(Service, key="sessions"):
    """Lists the live sessions and carries their events.

    A session is prepared (built, unlisted), entered (listed, observed), announced
    (`session/created`) and leaves with the context through which it was entered. Entering through
    an agent's context makes its events that agent's: listeners in other scopes do not hear them.
    """

    name: ClassVar[str] = "sessions"

    async def start(self) -> None:
        """Begin with no session."""
        self._live: dict[str, _Entry] = {}
        self._rules: ScopedLayers[AnonymousEntries[_Rule]] = ScopedLayers(
            AnonymousEntries, self._refresh_all
        )
        self.ctx.defer(self._leave_all, "sessions")

    # --- life of a session ----------------------------------------------------------------

    def create(
        self,
        ctx: Context,
        id: str | None = None,
        *,
        seed: Iterable[SessionEvent] = (),
        meta: SessionMeta | None = None,
    ) -> Session:
        """Prepare, enter and announce a session that lives as long as `ctx`.

        Args:
            ctx: Owner of the session.
            id: Its id; a fresh one if None.
            seed: Events to start from; they are not announced.
            meta: What else is known about it.

        Returns:
            The session, listed and announced.

        Raises:
            LiveSessionError: As `prepare`.
            SeedError: The seed is no log.
            InactiveContextError: `ctx` is unloading or gone.
            Exception: What a `session/created` listener raised; the session is unlisted again
                and its id is free.
        """
        session = self.prepare(id, seed=seed, meta=meta)
        effect = self.enter(ctx, session)
        try:
            self.announce(session)
        except BaseException:
            effect.dispose_nowait()
            raise
        return session

    def prepare(
        self,
        id: str | None = None,
        *,
        seed: Iterable[SessionEvent] = (),
        meta: SessionMeta | None = None,
    ) -> Session:
        """Build a session without listing it.

        Args:
            id: Its id; a fresh one if None.
            seed: Events to start from; they are not announced.
            meta: What else is known about it.

        Returns:
            The session, which nobody can look up yet.

        Raises:
            LiveSessionError: Code `SESSION_ALREADY_EXISTS` when the id is live,
                `CWD_NOT_ABSOLUTE`.
            SeedError: The seed is no log.
        """
        meta = meta or SessionMeta()
        session_id = uuid.uuid4().hex if id is None else id
        self._check_free(session_id)
        if meta.cwd is not None and not os.path.isabs(meta.cwd):
            raise LiveSessionError(
                f"the cwd of session {session_id!r} is not absolute: {meta.cwd!r}",
                code=LiveSessionError.CWD_NOT_ABSOLUTE,
            )
        header = SessionHeader(
            id=session_id,
            created_at=now_ms() if meta.created_at is None else meta.created_at,
            cwd=meta.cwd,
            parent_session=meta.parent_session,
            seed_length=meta.seed_length,
            origin=meta.origin,
            delegation_depth=meta.delegation_depth,
            agent_preset=meta.agent_preset,
        )
        return Session(session_id, seed, header)

    def enter(self, ctx: Context, session: Session) -> Effect:
        """List a session and carry its events until the returned effect is disposed.

        Emits nothing by itself. Disposal unlists the session and, if it had been announced, emits
        `session/disposed`.

        Args:
            ctx: Owner of the entry.
            session: The session, from `prepare`.

        Returns:
            The entry; disposing it unlists the session.

        Raises:
            LiveSessionError: Code `SESSION_ALREADY_EXISTS` when the id went live meanwhile,
                `SESSION_ATTACHED` when it is listed already, here or elsewhere.
            InactiveContextError: `ctx` is unloading or gone.
        """
        self._check_free(session.id)
        if session.attached:
            raise LiveSessionError(
                f"session {session.id!r} is attached already: some `sessions` lists it",
                code=LiveSessionError.SESSION_ATTACHED,
            )

        def notify(event: SessionEvent) -> None:
            self.ctx.emit(SessionEventAppended(session, event))

        entry = _Entry(session, SessionTap(scope_of(ctx), notify, self.ctx.report))
        effect = ctx.defer(lambda: self._leave(entry), f"session {session.id}")
        self._refresh(entry)
        session.attach(entry.tap)
        self._live[session.id] = entry
        return effect

    def announce(self, session: Session) -> None:
        """Emit `session/created`, once.

        Args:
            session: A session that was entered.

        Raises:
            LiveSessionError: Code `SESSION_NOT_LIVE` or `ALREADY_ANNOUNCED`.
            Exception: What a listener raised. The session stays listed; disposing of its
                entry then emits `session/disposed` to those who had heard of it.
        """
        entry = self._entry(session)
        if entry.announced:
            raise LiveSessionError(
                f"session {session.id!r} has been announced",
                code=LiveSessionError.ALREADY_ANNOUNCED,
            )
        entry.announced = True
        self.ctx.emit(SessionCreated(session))

    async def flush(self, session: Session) -> None:
        """Have everything that is buffered of a session made durable, and wait for it.

        Args:
            session: A live session.

        Raises:
            LiveSessionError: Code `SESSION_NOT_LIVE`.
            ExceptionGroup: What the listeners of `session/flush` raised, after all were done.
        """
        self._entry(session)
        await self.ctx.parallel(SessionFlush(session))

    def fork(
        self,
        ctx: Context,
        source: Session | str,
        boundary: int | None = None,
        child_id: str | None = None,
    ) -> Session:
        """Create a session that starts with a part of another's log.

        Args:
            ctx: Owner of the child.
            source: The live session to copy from, or its id.
            boundary: Sequence number of the `turn/end` to copy up to; the last event if None.
            child_id: The child's id; a fresh one if None.

        Returns:
            The child, listed and announced.

        Raises:
            ForkError: In this order `SESSION_ALREADY_EXISTS` (child id), `SESSION_NOT_FOUND`,
                `SESSION_NOT_LIVE` (the id is live on another object), `INVALID_BOUNDARY`,
                `OPEN_TURN` (the event there is no `turn/end`).
            Exception: As `create`.
        """
        if child_id is not None and child_id in self._live:
            raise ForkError(
                f"session {child_id!r} already exists",
                code=ForkError.SESSION_ALREADY_EXISTS,
                hint="choose another id for the fork",
            )
        origin = self._fork_source(source)
        end = fork_boundary(origin.id, origin.events, boundary)
        meta = SessionMeta(cwd=origin.header.cwd, parent_session=origin.id, seed_length=end)
        return self.create(ctx, child_id, seed=origin.events[:end], meta=meta)

    # --- looking around -------------------------------------------------------------------

    def get(self, id: str) -> Session | None:
        """Return the live session with this id, or None.

        Args:
            id: Its id.
        """
        entry = self._live.get(id)
        return None if entry is None else entry.session

    def list(self) -> tuple[Session, ...]:
        """Return the live sessions in the order they were entered."""
        return tuple(entry.session for entry in self._live.values())

    def validator(self, ctx: Context, check: Validator, *, chunks: bool = True) -> Effect:
        """Ask `check(session, event)` before every commit; what it raises reaches the appender.

        Args:
            ctx: Decides how long, and whose sessions: a context in a scope asks for the sessions
                of that scope only.
            check: Looks at the event that is about to be committed. It must not append, and must
                not remember the event as committed: a later validator may still object.
            chunks: Whether it is asked about `assistant/chunk` events too, which come by the
                thousand.

        Returns:
            The registration; disposing it ends the asking.
        """
        rule = _Rule(check, chunks)
        return self._rules.register(ctx, lambda layer: layer.add(rule), label="session validator")

    # --- inside ---------------------------------------------------------------------------

    def _check_free(self, id: str) -> None:
        if id in self._live:
            raise LiveSessionError(
                f"session {id!r} already exists",
                code=LiveSessionError.SESSION_ALREADY_EXISTS,
                hint="choose another id, or dispose of the live one first",
            )

    def _entry(self, session: Session) -> _Entry:
        entry = self._live.get(session.id)
        if entry is None or entry.session is not session:
            raise LiveSessionError(
                f"session {session.id!r} is not live here",
                code=LiveSessionError.SESSION_NOT_LIVE,
            )
        return entry

    def _fork_source(self, source: Session | str) -> Session:
        id = source if isinstance(source, str) else source.id
        live = self.get(id)
        if live is None:
            raise ForkError(
                f"session {id!r} is not found among the live ones",
                code=ForkError.SESSION_NOT_FOUND,
            )
        if isinstance(source, Session) and source is not live:
            raise ForkError(
                f"session {id!r} is live as another object than the one to fork",
                code=ForkError.SESSION_NOT_LIVE,
            )
        return live

    def _refresh(self, entry: _Entry) -> None:
        rules = [rule for layer in self._rules.chain(entry.tap.owner) for rule in layer]
        entry.tap.validators = tuple(rule.check for rule in rules)
        entry.tap.chunk_validators = tuple(rule.check for rule in rules if rule.chunks)

    def _refresh_all(self) -> None:
        for entry in self._live.values():
            self._refresh(entry)

    def _leave(self, entry: _Entry) -> None:
        if entry.left:
            return
        entry.left = True
        session = entry.session
        del self._live[session.id]
        try:
            if entry.announced:
                self.ctx.emit(SessionDisposed(session))
        finally:
            session.detach(entry.tap)

    def _leave_all(self) -> None:
        for entry in tuple(self._live.values()):
            self._leave(entry)
