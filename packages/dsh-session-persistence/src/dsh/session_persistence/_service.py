"""The abstract service `session_persistence`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dsh.core import Service
from dsh.session import SessionEvent, SessionHeader
from dsh.session_persistence._integrity import IntegrityReport
from dsh.session_persistence._types import (
    RawArtifact,
    SessionSnapshot,
    StoredSession,
    UnreadableSession,
)
from dsh.session_persistence.errors import RawUnsupported

__all__ = ["SessionPersistence"]


class SessionPersistence(Service, ABC, key="session_persistence"):
    """Keeps session logs beyond the process.

    **What is promised.** What was flushed is committed and never changes. A stored log is
    contiguous from 0. `append` returns when its events are durable. Reading rejects damage that
    sound records or a `turn/end` follow, and drops only the last record: one that was never
    written completely, or is damaged; then the outcome of every open call is unknown.

    **Live sessions** are followed by the store itself: it takes up each session at
    `session/created`, copies each event at `session/event` (which is synchronous, so writing
    happens later), and writes everything it holds of a session before `session/flush` returns. A
    flush that fails raises to whoever flushed and keeps the events for the next one. A live
    session whose id is stored already is refused unless it was seeded from that very log, which
    is how a resume continues; then only what is new is written. When a live session is disposed
    of, what is still buffered is written first.

    **Cancelling** a call cancels the caller's scope; a read that starts in a cancelled scope
    touches nothing, and a write that has begun is finished or rolled back as a whole.

    Ids are opaque strings: a store that keeps files has to escape them. Methods of one store
    that concern one id never run at the same time.
    """

    @abstractmethod
    async def create(self, header: SessionHeader) -> None:
        """Reserve an id for a session that has no events yet; nothing is stored so far.

        Args:
            header: Its header, with the id to reserve.

        Raises:
            AppendRefused: Code `MALFORMED_HEADER`; the id is not reserved.
            StoredSessionExists: The id is stored or reserved.
        """

    @abstractmethod
    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """Store a batch; it is durable when this returns.

        The batch is taken as it is when the call is made. The first append of a session stores its
        header and the events together or not at all. An empty batch does nothing.

        Args:
            session_id: The session, created before.
            events: What follows the events stored so far.

        Raises:
            StoredSessionNotFound: The id was never created.
            AppendRefused: Code `NOT_CONTIGUOUS` when the first seq is not the next one or there
                is a gap inside, `NOT_JSON` names an event type. Nothing of the batch is stored.
            SessionInUse: Another process owns the session.
            PersistenceError: Writing failed; what was stored before is intact.
        """

    @abstractmethod
    async def load(self, session_id: str) -> StoredSession:
        """Read a session in order to go on with it.

        A turn that was interrupted is closed (`dsh.session.interrupted_turn_closers`), and that
        repair is stored before this returns: loading twice adds nothing. For a session that is live
        in this process, its events are written first and its live log is returned.

        Args:
            session_id: The session.

        Returns:
            The header and the whole log, with every turn closed.

        Raises:
            StoredSessionNotFound: There is none, or it never had an event.
            SessionInUse: A live session with an open turn has this id, or another process owns it.
            SessionCorrupt: Something is damaged that sound records, or a `turn/end`, follow.
            FormatUnsupported: Another version wrote it, or it contains an event that stands in
                the history and is not known here; the message names it.
            PersistenceError: Reading or writing failed.
        """

    @abstractmethod
    async def inspect(self, session_id: str) -> StoredSession:
        """Read a session without changing anything; the repair is made in memory only.

        Args:
            session_id: The session.

        Returns:
            The header and the whole log, as `load` would give it.

        Raises:
            PersistenceError: As `load`, except that a live session may have an open turn.
        """

    @abstractmethod
    async def read_from(self, session_id: str, from_seq: int) -> tuple[SessionEvent, ...]:
        """Read the stored events from a sequence number on, without repair.

        Args:
            session_id: The session.
            from_seq: First seq wanted; at or beyond the end of the log the result is empty.

        Returns:
            The events, as they are stored.

        Raises:
            ValueError: `from_seq` is negative or no integer.
            PersistenceError: As `inspect`.
        """

    @abstractmethod
    async def list(self, *, archived: bool = False) -> tuple[SessionHeader, ...]:
        """Return the headers of the stored sessions, in no particular order.

        Sessions without events are left out, and so is what is no session at all. What is one and
        cannot be read is told by `unreadable`.

        Args:
            archived: List those that were put away, in place of the others.
        """

    @abstractmethod
    async def list_snapshots(self, *, archived: bool = False) -> tuple[SessionSnapshot, ...]:
        """Return what `list` does, with a revision and a summary for each.

        Args:
            archived: List those that were put away, in place of the others.
        """

    async def unreadable(self) -> tuple[UnreadableSession, ...]:
        """Return what is stored and in neither listing, in no particular order.

        Its header is damaged, or of another version; it stands in another session's place; the
        system does not let it be read. A store where that cannot happen returns nothing.

        Raises:
            PersistenceError: Nothing at all can be listed.
        """
        return ()

    @abstractmethod
    async def archive(self, session_id: str) -> None:
        """Put a session away: it is no longer listed with the others, and can still be loaded.

        Does nothing if it is archived. Only ever done because a person asked for it.

        Args:
            session_id: The session.

        Raises:
            StoredSessionNotFound: There is none.
            SessionInUse: It is live.
        """

    @abstractmethod
    async def unarchive(self, session_id: str) -> None:
        """Take an archived session back; does nothing if it is not archived.

        A session may be live while it is archived, and is taken back all the same.

        Args:
            session_id: The session.

        Raises:
            StoredSessionNotFound: There is none.
            SessionInUse: Another process owns it.
        """

    @abstractmethod
    async def remove(self, session_id: str) -> None:
        """Delete a session with everything stored for it. Only ever done for a person.

        Args:
            session_id: The session.

        Raises:
            StoredSessionNotFound: There is none.
            SessionInUse: It is live.
        """

    @abstractmethod
    async def verify(self, session_id: str) -> IntegrityReport:
        """Look at every record of a session and tell what is wrong; nothing is changed.

        Args:
            session_id: The session.

        Returns:
            What was found, in the order of the log.

        Raises:
            StoredSessionNotFound: There is none.
            FormatUnsupported: Another version wrote it.
            PersistenceError: Reading failed.
        """

    @abstractmethod
    async def salvage(self, session_id: str) -> IntegrityReport:
        """Make a damaged session readable: keep a copy of it, then cut it before the damage.

        Only ever done for a person. A session without damage is left as it is.

        Args:
            session_id: The session.

        Returns:
            What was wrong, and where the copy is.

        Raises:
            StoredSessionNotFound: There is none.
            SessionInUse: It is live, here or in another process.
            FormatUnsupported: Another version can read what this one cannot, so nothing is cut.
            PersistenceError: Nothing of it can be saved, or writing failed.
        """

    def locate(self, header: SessionHeader) -> str | None:
        """Say, without any I/O, where a session is or would be kept.

        Args:
            header: The session's header.

        Returns:
            A path or an address for people, or None for nowhere in particular.
        """
        return None

    @property
    def place(self) -> str | None:
        """Where this store keeps its sessions, for people; None for nowhere in particular."""
        return None

    @property
    def supports_raw(self) -> bool:
        """Whether `read_raw` works."""
        return False

    async def read_raw(self, session_id: str) -> RawArtifact | None:
        """Return a stored session as the store keeps it, or None if there is none.

        Args:
            session_id: The session.

        Raises:
            RawUnsupported: This store keeps no text.
        """
        raise RawUnsupported(f"{self.name!r} keeps no text that could be exported")
