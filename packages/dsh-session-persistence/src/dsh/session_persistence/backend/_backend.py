"""What a backend has to do, once the orchestration is somebody else's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsh.session import SessionEvent, SessionHeader
from dsh.session_persistence._integrity import IntegrityReport
from dsh.session_persistence._types import (
    RawArtifact,
    SessionSnapshot,
    SessionSummary,
    UnreadableSession,
)
from dsh.session_persistence.errors import PersistenceError, RawUnsupported

__all__ = ["Backend", "StoredLog"]


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A log as it lies in storage, with nothing repaired."""

    header: SessionHeader
    """The session's header."""
    events: tuple[SessionEvent, ...]
    """Every event that was written completely, contiguous from 0."""
    revision: str
    """As in a listing."""
    rest: object | None = None
    """The backend's note of what follows the last complete event; None if nothing does."""
    lost: bool = False
    """Whether what follows was written completely once and cannot be read any more."""


class Backend(ABC):
    """Where logs are kept: blocking calls, made in worker threads and never two at a time.

    `BackedPersistence` makes them, orders them and decides what they mean; a backend only keeps
    what it is given. It raises the errors of this wheel where a method names them; any other
    exception is taken for a failure of the storage and told as a `PersistenceError`. A call that
    raises has changed nothing; it may be made again.

    Ids are opaque strings. A backend that keeps files has to escape them.
    """

    @abstractmethod
    def open(self) -> None:
        """Get ready; called before the first other call, and again at the next if it raised."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; called once, after the last other call, and only after `open`."""

    # --- between processes ----------------------------------------------------------------

    @abstractmethod
    def acquire(self, session_id: str) -> None:
        """Become the only process that writes a session; a second call of one process is no-op.

        Called for stored sessions only, and for new ones by `write` itself.

        Raises:
            SessionInUse: Another process writes it.
        """

    @abstractmethod
    def release(self, session_id: str) -> None:
        """Let other processes write a session again; does nothing if it was not acquired.

        Also called for sessions that have just been removed, or were never stored.
        """

    # --- reading --------------------------------------------------------------------------

    @abstractmethod
    def revision(self, session_id: str) -> str | None:
        """Return what changes with the stored content of a session; None if there is none.

        Content that differs never has the same revision, also not when a removed session's id is
        used again: a log that was read before is taken for the stored one where they agree.

        A session is there from its first complete batch on: what a crash left of that batch
        does not count, and the next first batch may replace it.

        Cheap, since it is called whenever a session is created, from the event loop's thread (as
        `acquire`, `read` and `cut` are where a session with a stored id is created).
        """

    @abstractmethod
    def read(self, session_id: str) -> StoredLog:
        """Read a whole log.

        Raises:
            StoredSessionNotFound: There is none, or it has no event.
            SessionCorrupt: Something is damaged that a `turn/end` or a sound record follows; names
                the place.
            FormatUnsupported: Another version wrote it, or it holds an unknown type of the
                history.
        """

    def read_from(self, session_id: str, from_seq: int) -> tuple[SessionEvent, ...]:
        """Read the complete events from `from_seq` on; nothing at or beyond the end.

        Raises:
            PersistenceError: As `read`.
        """
        return self.read(session_id).events[from_seq:]

    @abstractmethod
    def list(self, archived: bool) -> Iterable[SessionSnapshot]:
        """Return the sessions that have events, in any order; leave out what cannot be read."""

    def unreadable(self) -> Iterable[UnreadableSession]:
        """Return everything that `list` leaves out because it cannot be read, archived or not.

        Nobody hears of it otherwise. What never had an event is none of it.
        """
        return ()

    # --- writing --------------------------------------------------------------------------

    @abstractmethod
    def write(
        self,
        header: SessionHeader,
        events: Sequence[SessionEvent],
        summary: SessionSummary,
    ) -> None:
        """Store a batch that is not empty; it is durable when this returns, or not there at all.

        The first batch of a session (its first event has seq 0) stores the header too, and
        acquires the session. Every later batch finds it acquired.

        Args:
            header: The session's header.
            events: The batch, contiguous.
            summary: What the log comes to with this batch; worth keeping, since `list` tells it.

        Raises:
            StoredSessionExists: The first batch of an id that is stored already.
            AppendRefused: Code `NOT_CONTIGUOUS`: the batch does not continue what is stored.
            SessionInUse: Another process writes the session.
        """

    @abstractmethod
    def cut(self, log: StoredLog) -> None:
        """Remove what follows the last complete event of a log just read.

        Whole records that are removed with it are kept aside, so that nothing is destroyed.

        Args:
            log: As `read` returned it; its `rest` is not None.

        Raises:
            AppendRefused: The log has changed since.
        """

    @abstractmethod
    def set_archived(self, session_id: str, archived: bool) -> None:
        """Put a session away or take it back; does nothing if that is how it is.

        Raises:
            StoredSessionNotFound: There is none.
        """

    @abstractmethod
    def remove(self, session_id: str) -> None:
        """Delete everything of a session.

        Raises:
            StoredSessionNotFound: There is none.
        """

    # --- for people -----------------------------------------------------------------------

    @abstractmethod
    def verify(self, session_id: str) -> IntegrityReport:
        """Look at every record of a session, and tell what is wrong with it.

        Raises:
            StoredSessionNotFound: There is none.
            FormatUnsupported: Another version wrote its header.
        """

    @abstractmethod
    def salvage(self, session_id: str) -> IntegrityReport:
        """Keep a copy of a damaged session, then cut its log before the first damage.

        Returns:
            The report as `verify` makes it, with the place of the copy; where no record of the
            session is damaged, nothing is done.

        Raises:
            StoredSessionNotFound: There is none.
            FormatUnsupported: The first thing that cannot be read is sound, so another version
                can read it. Nothing was changed.
            PersistenceError: Nothing can be saved: the first event is damaged, or the header is
                and cannot be made anew. Nothing was changed.
        """

    def locate(self, header: SessionHeader) -> str | None:
        """Say without I/O where a session is or would be kept."""
        return None

    @property
    def place(self) -> str | None:
        """Where the sessions are kept, for people."""
        return None

    supports_raw: bool = False
    """Whether `read_raw` works."""

    def read_raw(self, session_id: str) -> RawArtifact | None:
        """Return a session as it lies in storage, or None if there is none.

        Raises:
            RawUnsupported: This backend keeps no text.
        """
        raise RawUnsupported("this store keeps no text that could be exported")


def as_persistence_error(error: BaseException, failure: str) -> PersistenceError:
    """Return an exception of a backend as an error of the seam.

    Args:
        error: What the backend raised.
        failure: What could not be done, as a clause: `session 's' could not be written`.
    """
    if isinstance(error, PersistenceError):
        return error
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    translated = PersistenceError(f"{failure}: {reason or type(error).__name__}")
    translated.__cause__ = error
    return translated
