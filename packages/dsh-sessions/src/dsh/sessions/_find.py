"""Which stored session a person means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, NoReturn

from dsh.core import entry_points, now_ms, service_key
from dsh.session_persistence import SessionPersistence, SessionSnapshot, UnreadableSession
from dsh.sessions._text import age, count, one_line
from dsh.sessions.errors import AmbiguousSession, UnknownSession

__all__ = ["Catalog", "find_session", "newest_session", "short_id"]

_SHORT: Final = 8
_SHOWN: Final = 8
"""So many candidates are listed in an error."""


def short_id(session_id: str) -> str:
    """Return what is enough of an id to name its session among others, in all likelihood.

    The ids that dsh makes are random, so their first eight characters are; others are kept whole.
    """
    made = len(session_id) == 32 and all(c in "0123456789abcdef" for c in session_id)
    return session_id[:_SHORT] if made else session_id


def changed_at(snapshot: SessionSnapshot) -> int:
    """Return when a session was last worked on, or made; epoch milliseconds."""
    made, changed = snapshot.header.created_at, snapshot.summary.updated_at
    return made if changed is None else max(made, changed)


def newest_first(snapshots: Iterable[SessionSnapshot]) -> list[SessionSnapshot]:
    """Return sessions in the order in which a person looks for them."""
    return sorted(snapshots, key=lambda item: (-changed_at(item), item.header.id))


def short_ids(snapshots: Sequence[SessionSnapshot]) -> dict[str, str]:
    """Return for each id the shortest beginning, of eight characters or more, that is its alone."""
    ids = sorted(item.header.id for item in snapshots)
    result: dict[str, str] = {}
    for index, own in enumerate(ids):
        near = ids[max(0, index - 1) : index] + ids[index + 1 : index + 2]
        shared = max((_shared(own, other) for other in near), default=0)
        result[own] = own[: max(_SHORT, shared + 1)]
    return result


def _shared(one: str, other: str) -> int:
    """Return how many characters two ids begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


class Folder:
    """Whether sessions work in a folder, under either of its names.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._names = {self.path, os.path.realpath(self.path)}

    def holds(self, snapshot: SessionSnapshot) -> bool:
        """Whether a session works here."""
        return snapshot.header.cwd in self._names


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every stored session, those put away included."""

    active: tuple[SessionSnapshot, ...]
    """Those that are listed."""
    archived: tuple[SessionSnapshot, ...]
    """Those that were put away."""
    unreadable: tuple[UnreadableSession, ...]
    """What is in no listing, because it cannot be read."""
    store: SessionPersistence
    """Where they are."""

    @classmethod
    async def read(cls, store: SessionPersistence) -> Catalog:
        """Read all that a store lists.

        Raises:
            PersistenceError: It cannot be read.
        """
        active = await store.list_snapshots()
        archived = await store.list_snapshots(archived=True)
        return cls(active, archived, await store.unreadable(), store)

    def find(self, text: str) -> SessionSnapshot:
        """Return the session whose id is `text`, or the only one whose id begins with it.

        Raises:
            UnknownSession: There is none.
            AmbiguousSession: There are several; the message lists them.
            PersistenceError: It is stored and cannot be read; says why.
        """
        found = self._match(text)
        if isinstance(found, UnreadableSession):
            error = copy(found.error)  # the store keeps its own, and tells others
            error.session_id = found.session_id
            raise error
        return found

    def whole_id(self, text: str) -> str:
        """Return the whole id of a session that need not be readable.

        Raises:
            UnknownSession: There is none.
            AmbiguousSession: There are several; the message lists them.
        """
        found = self._match(text)
        return (found.session_id or text) if isinstance(found, UnreadableSession) else _id(found)

    def _match(self, text: str) -> SessionSnapshot | UnreadableSession:
        everything = (*self.active, *self.archived)
        ids = {item.header.id for item in everything}
        lost = [
            item
            for item in self.unreadable
            if item.session_id is not None and item.session_id not in ids
        ]
        known: list[SessionSnapshot | UnreadableSession] = [*everything, *lost]
        for item in known:
            if _id(item) == text:
                return item
        found = [item for item in everything if text and item.header.id.startswith(text)]
        hidden = [item for item in lost if text and _id(item).startswith(text)]
        if len(found) + len(hidden) == 1:
            return found[0] if found else hidden[0]
        if found or hidden:
            raise AmbiguousSession(
                f"{len(found) + len(hidden)} sessions have an id that begins with {_quoted(text)}:"
                + self._told(newest_first(found))
                + "".join(f"\n  {_id(item)}  cannot be read" for item in hidden[:_SHOWN]),
                hint="write more of the id",
            )
        return self._unknown(text)

    def _unknown(self, text: str) -> NoReturn:
        everything = self.active or self.archived
        lost = ""
        if self.unreadable:
            lost = f"; {told_unreadable(self.unreadable)}"
        if not everything:
            raise UnknownSession(
                f"there is no session {_quoted(text)}: no session is stored yet in "
                f"{told_store(self.store)}{lost}",
                hint=other_stores(self.store) or "`dsh run` stores one",
            )
        raise UnknownSession(
            f"no session has an id that begins with {_quoted(text)}{lost}; the newest are:"
            + self._told(newest_first(everything)),
            hint="`dsh sessions --all` lists them all",
        )

    def newest(self, cwd: str | os.PathLike[str]) -> SessionSnapshot:
        """Return the session that was worked on last in a folder, one of an agent's own left out.

        Raises:
            UnknownSession: There is none.
        """
        folder = Folder(cwd)
        here = (item for item in self.active if folder.holds(item) and item.header.origin is None)
        found = next(iter(newest_first(here)), None)
        if found is None:
            raise UnknownSession(
                f"no session of {folder.path} is stored in {told_store(self.store)}",
                hint=self._elsewhere(folder),
            )
        return found

    def _elsewhere(self, folder: Folder) -> str:
        """Return what to do where a folder has no session that is listed."""
        if self.unreadable:
            return told_unreadable(self.unreadable)
        away = sum(folder.holds(item) for item in self.archived)
        if away:
            return f"{told_away(away)}: `dsh sessions --archived`"
        if self.active:
            return "`dsh sessions --all` lists those of other folders"
        return other_stores(self.store) or "`dsh run` stores one"

    def _told(self, snapshots: Sequence[SessionSnapshot]) -> str:
        names = short_ids((*self.active, *self.archived))
        now = now_ms()
        lines = [
            f"\n  {names[item.header.id]}  {age(changed_at(item), now):>4}  {title_of(item, 60)}"
            for item in snapshots[:_SHOWN]
        ]
        if len(snapshots) > _SHOWN:
            lines.append("\n  ...")
        return "".join(lines)


def _id(item: SessionSnapshot | UnreadableSession) -> str:
    return item.session_id or "" if isinstance(item, UnreadableSession) else item.header.id


def _quoted(text: str) -> str:
    return repr(one_line(text, 100))


def told_store(store: SessionPersistence) -> str:
    """Return which store it is, and where it keeps its sessions."""
    place = store.place
    return store.name if place is None else f"{store.name} ({one_line(place, 400)})"


def other_stores(store: SessionPersistence) -> str | None:
    """Return how to look into the other stores that are installed; None if there are none."""
    key = service_key(SessionPersistence)
    installed = [point.name for point in entry_points(f"dsh.seam.{key}")]
    others = [name for name in installed if name != store.name]
    if store.name not in installed or not others:
        return None
    look = " or ".join(f"`--set seams.{key}={name}`" for name in others)
    return f"{' and '.join(others)} may have some: {look} looks there"


def told_unreadable(items: Sequence[UnreadableSession]) -> str:
    """Return how much cannot be read, and which command shows it."""
    noun = "session" if all(item.session_id is not None for item in items) else "place"
    them = "it" if len(items) == 1 else "them"
    return f"{count(len(items), noun)} cannot be read: `dsh sessions verify --all` shows {them}"


def told_away(number: int) -> str:
    """Return how many sessions were put away."""
    return f"{number} {'was' if number == 1 else 'were'} put away"


def title_of(snapshot: SessionSnapshot, limit: int = 200) -> str:
    """Return the title of a session on one line; `-` where it has none."""
    return one_line(snapshot.summary.title or "-", limit)


async def find_session(store: SessionPersistence, text: str) -> SessionSnapshot:
    """Return the stored session whose id is `text`, or the only one whose id begins with it.

    Those that were put away are looked at too.

    Args:
        store: Where to look.
        text: An id, or its beginning.

    Raises:
        UnknownSession: There is none.
        AmbiguousSession: There are several; the message lists them.
        PersistenceError: The store, or this session in it, cannot be read; says why.
    """
    return (await Catalog.read(store)).find(text)


async def newest_session(store: SessionPersistence, cwd: str | os.PathLike[str]) -> SessionSnapshot:
    """Return the session that was worked on last in a folder, one of an agent's own left out.

    Args:
        store: Where to look.
        cwd: The folder.

    Raises:
        UnknownSession: There is none.
        PersistenceError: The store cannot be read.
    """
    try:
        return Catalog(await store.list_snapshots(), (), (), store).newest(cwd)
    except UnknownSession:
        return (await Catalog.read(store)).newest(cwd)  # which knows where else one may be
