"""Who owns which id, and what is asked of the backend: steps that nothing can part."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from dsh.session import Session, SessionEvent, SessionHeader, interrupted_turn_closers
from dsh.session_persistence._types import StoredSession
from dsh.session_persistence.backend._backend import Backend, StoredLog, as_persistence_error
from dsh.session_persistence.backend._checks import check_batch, check_header
from dsh.session_persistence.backend._live_log import LiveLog
from dsh.session_persistence.backend._summary import SummaryFold
from dsh.session_persistence.errors import (
    PersistenceError,
    SessionInUse,
    StoredSessionExists,
    StoredSessionNotFound,
)

__all__ = ["Ownership", "failure_text"]

T = TypeVar("T")

_KEPT: Final = 4
"""So many logs are remembered after a load or an append, for who goes on from one."""


def failure_text(session_id: str | None, attempted: str) -> str:
    """Return the text of the error when something could not be done.

    Args:
        session_id: The session; None if it was to be done to all of them.
        attempted: What was tried, as a participle: `written`, `read`.
    """
    what = "the stored sessions" if session_id is None else f"session {session_id!r}"
    return f"{what} could not be {attempted}"


class Ownership:
    """The backend, and what this process knows about the ids in it.

    Everything below `run` is called through `run`: one call at a time, whichever thread makes it.
    A step decides, calls the backend and notes what came of it in one go. So it does not matter
    where the task that asked for it is cancelled, nor what happens to the session meanwhile.

    Args:
        backend: Where logs are kept.
        is_live: Whether a session is live; asked from any thread.
        owners: Filled with the live sessions by id, and those that are gone and not written to
            their end.
    """

    def __init__(
        self, backend: Backend, is_live: Callable[[Session], bool], owners: dict[str, LiveLog]
    ) -> None:
        self.backend = backend
        self._is_live = is_live
        self._owners = owners
        self._guard = threading.Lock()
        self._opened = False
        self._closed = False
        self._reserved: dict[str, SessionHeader] = {}
        self._loaded: OrderedDict[str, StoredLog] = OrderedDict()

    def run(self, act: Callable[[], T], failure: str) -> T:
        """Take one step.

        Args:
            act: The step.
            failure: What to say if the backend fails.

        Raises:
            PersistenceError: The step was refused or failed, or the store is closed.
        """
        with self._guard:
            if self._closed:
                raise PersistenceError(f"{failure}: the store is closed")
            try:
                self._open()
                return act()
            except Exception as error:
                translated = as_persistence_error(error, failure)
                if translated is error:
                    raise
                raise translated from error

    def close(self) -> list[Exception]:
        """Write what waits, and let go of the storage; return what failed."""
        errors: list[Exception] = []
        with self._guard:
            for live in tuple(self._owners.values()):
                if live.behind:
                    failure = failure_text(live.session.id, "written")
                    _attempt(partial(self._store_last, live), failure, errors)
            self._closed = True
            self._owners.clear()
            self._loaded.clear()
            if self._opened:
                _attempt(self.backend.close, "the store could not be closed", errors)
        return errors

    def _open(self) -> None:
        if not self._opened:
            self.backend.open()
            self._opened = True

    def _store_last(self, live: LiveLog) -> None:
        self._open()
        self.store(live)

    # --- live sessions --------------------------------------------------------------------

    def claim(self, session: Session) -> LiveLog:
        """Claim the id of a live session, if its id is free or it goes on from what is stored.

        Raises:
            AppendRefused: Its header could not be stored.
            StoredSessionExists: The id is another session's.
            SessionInUse: Another process writes it.
        """
        owner = self._owner(session.id)
        if owner is not None:
            if owner.session is session:
                return owner
            raise StoredSessionExists(session.id)
        log = self._claim_stored(session)
        fold = SummaryFold()
        if log is None:
            check_header(session.header)
            live = LiveLog(session, session.header, 0, fold)
        else:
            fold.add(log.events)
            live = LiveLog(session, log.header, len(log.events), fold)
        self._owners[session.id] = live
        self._reserved.pop(session.id, None)
        self._loaded.pop(session.id, None)
        return live

    def _claim_stored(self, session: Session) -> StoredLog | None:
        """Acquire the stored log that a session goes on from; None if nothing is stored."""
        backend, session_id = self.backend, session.id
        if backend.revision(session_id) is None:
            return None
        if not session.seq:
            raise StoredSessionExists(session_id, backend.locate(session.header))
        backend.acquire(session_id)
        try:
            log = self._read(session_id)
            count = len(log.events)
            if log.header.cwd != session.header.cwd or session.events[:count] != log.events:
                raise StoredSessionExists(session_id, backend.locate(log.header))
            if log.rest is not None:
                # the turn is live, so only what was never written completely goes
                backend.cut(log)
        except BaseException:
            backend.release(session_id)
            raise
        return log

    def store(self, live: LiveLog) -> None:
        """Write what waits of a session as one batch, if anything does."""
        events = live.waiting
        if events:
            fold = SummaryFold(live.fold.summary)
            fold.add(events)
            self.backend.write(live.header, events, fold.summary)
            live.stored += len(events)
            live.fold = fold

    def finish(self, live: LiveLog) -> None:
        """Write a session that is gone to its end, and let go of it."""
        session_id = live.session.id
        if self._owners.get(session_id) is live:
            self.store(live)
            del self._owners[session_id]
            self.backend.release(session_id)

    def _owner(self, session_id: str) -> LiveLog | None:
        """Return the live session with an id; one that is gone is finished first."""
        owner = self._owners.get(session_id)
        if owner is None:
            return None
        if not owner.gone and not self._is_live(owner.session):
            # it went while it was being taken up
            owner.leave()
        if owner.gone:
            self.finish(owner)
            return None
        return owner

    def _refuse_live(self, session_id: str, attempted: str) -> None:
        if self._owner(session_id) is not None:
            raise SessionInUse(
                f"session {session_id!r} is live and cannot be {attempted}", hint="close it first"
            )

    # --- stored sessions ------------------------------------------------------------------

    def create(self, header: SessionHeader) -> None:
        """Reserve an id."""
        session_id, backend = header.id, self.backend
        taken = self._owner(session_id) is not None or session_id in self._reserved
        if taken or backend.revision(session_id) is not None:
            raise StoredSessionExists(session_id, backend.locate(header))
        self._reserved[session_id] = header

    def append(self, session_id: str, batch: tuple[SessionEvent, ...]) -> None:
        """Write a batch behind what is stored."""
        self._refuse_live(session_id, "appended to from outside")
        if self.backend.revision(session_id) is None:
            self._append_first(session_id, batch)
            return
        self._reserved.pop(session_id, None)
        with self._acquired(session_id):
            log = self._read(session_id)
            check_batch(session_id, batch, len(log.events))
            if batch:
                self._write(log, batch)

    def _append_first(self, session_id: str, batch: tuple[SessionEvent, ...]) -> None:
        header = self._reserved.get(session_id)
        if header is None:
            raise StoredSessionNotFound(session_id)
        check_batch(session_id, batch, 0)
        if batch:
            try:
                self._write(StoredLog(header, (), ""), batch)
            finally:
                self.backend.release(session_id)
            del self._reserved[session_id]

    def load(self, session_id: str) -> StoredSession | None:
        """Read a log and store its repair; None if a live session has the id."""
        if self._owner(session_id) is not None:
            return None
        if self.backend.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        with self._acquired(session_id):
            log = self._read(session_id)
            lost = log.lost
            closers = interrupted_turn_closers(log.events, more_was_lost=lost)
            if closers:
                log = self._write(log, closers)
            elif log.rest is not None:
                self.backend.cut(log)
                self._remember_written(replace(log, rest=None, lost=False))
            else:
                self._remember(log)
        return StoredSession(log.header, log.events, lost)

    def change(self, session_id: str, attempted: str, act: Callable[[], T]) -> T:
        """Do something to a stored session that nobody uses."""
        self._refuse_live(session_id, attempted)
        return self._change(session_id, act)

    def remove(self, session_id: str) -> None:
        """Delete a stored session that nobody uses; what waits of one that is gone is dropped."""
        owner = self._owners.get(session_id)
        if owner is not None and owner.gone:
            # so that it can be done where nothing can be written any more
            owner.end = owner.stored
        self._refuse_live(session_id, "removed")
        self._change(session_id, lambda: self.backend.remove(session_id))

    def unarchive(self, session_id: str) -> None:
        """Take a session back; it may be going on while it is put away."""

        def act() -> None:
            self.backend.set_archived(session_id, False)

        if self._owner(session_id) is not None:
            act()
        else:
            self.change(session_id, "taken back", act)

    def _change(self, session_id: str, act: Callable[[], T]) -> T:
        if self.backend.revision(session_id) is None:
            raise StoredSessionNotFound(session_id)
        with self._acquired(session_id):
            self._loaded.pop(session_id, None)
            return act()

    # --- inside ---------------------------------------------------------------------------

    @contextmanager
    def _acquired(self, session_id: str) -> Generator[None, None, None]:
        """Keep other processes away from a session that is not live here."""
        self.backend.acquire(session_id)
        try:
            yield
        finally:
            self.backend.release(session_id)

    def _read(self, session_id: str) -> StoredLog:
        """Return the log of a session that is acquired."""
        log = self._loaded.get(session_id)
        if log is None or log.revision != self.backend.revision(session_id):
            log = self.backend.read(session_id)
            log = replace(log, events=tuple(log.events))
        return log

    def _write(self, log: StoredLog, batch: Sequence[SessionEvent]) -> StoredLog:
        """Write a batch behind a log; return the log with it."""
        if log.rest is not None:
            self.backend.cut(log)
        fold = SummaryFold()
        fold.add(log.events)
        fold.add(batch)
        self._loaded.pop(log.header.id, None)
        self.backend.write(log.header, batch, fold.summary)
        log = replace(log, events=(*log.events, *batch), rest=None, lost=False)
        self._remember_written(log)
        return log

    def _remember_written(self, log: StoredLog) -> None:
        """Remember a log that has just been written."""
        try:
            revision = self.backend.revision(log.header.id)
        except Exception:  # noqa: BLE001 - it is written all the same, and read again when needed
            revision = None
        if revision is not None:
            self._remember(replace(log, revision=revision))

    def _remember(self, log: StoredLog) -> None:
        self._loaded[log.header.id] = log
        self._loaded.move_to_end(log.header.id)
        while len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)


def _attempt(act: Callable[[], object], failure: str, errors: list[Exception]) -> None:
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - all are tried, then told together
        errors.append(as_persistence_error(error, failure))
