"""Which stored session a person means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dsh.core import now_ms
from dsh.session_persistence import SessionPersistence, SessionSnapshot
from dsh.sessions._text import age, one_line
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

    @classmethod
    async def read(cls, store: SessionPersistence) -> Catalog:
        """Read both listings of a store.

        Raises:
            PersistenceError: They cannot be read.
        """
        return cls(await store.list_snapshots(), await store.list_snapshots(archived=True))

    def find(self, text: str) -> SessionSnapshot:
        """Return the session whose id is `text`, or the only one whose id begins with it.

        Raises:
            UnknownSession: There is none.
            AmbiguousSession: There are several; the message lists them.
        """
        everything = (*self.active, *self.archived)
        for item in everything:
            if item.header.id == text:
                return item
        found = [item for item in everything if text and item.header.id.startswith(text)]
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousSession(
                f"{len(found)} sessions have an id that begins with {text!r}:"
                + self._told(newest_first(found)),
                hint="write more of the id",
            )
        if not everything:
            raise UnknownSession(
                f"there is no session {text!r}: no session is stored yet",
                hint="`dsh run` stores one",
            )
        raise UnknownSession(
            f"no session has an id that begins with {text!r}; the newest are:"
            + self._told(newest_first(self.active or self.archived)),
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
                f"no session of {folder.path} is stored",
                hint="`dsh sessions --all` lists those of other folders"
                if self.active
                else "`dsh run` stores one",
            )
        return found

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
        PersistenceError: The store cannot be read.
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
    return Catalog(await store.list_snapshots(), ()).newest(cwd)
