"""The plugin that has sessions kept."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

from dsh.core import Plugin, inject
from dsh.session_persistence import SessionPersistence, StoredSessionNotFound

__all__ = ["Record"]


class Record(Plugin):
    """Has every session of the app kept by the session store that the deployment chooses.

    A store follows the sessions by itself once it is mounted; this plugin is who needs one. So a
    deployment with the row `record` keeps its sessions, and one without it does not, whichever
    stores are installed.
    """

    name: ClassVar[str] = "record"
    store = inject(SessionPersistence)

    async def start(self) -> None:
        """Look once whether the store can be opened; a start that cannot record is a failed one.

        Raises:
            PersistenceError: The store cannot be opened.
        """
        try:
            # an id that nobody has is the cheapest question that every store has to look up
            await self.store.read_from(uuid4().hex, 0)
        except StoredSessionNotFound:
            return
