"""The session store of a deployment, without the rest of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dsh.core import service_key
from dsh.loader import Deployment, only_providers, open_app
from dsh.session import LiveSessions
from dsh.session_persistence import SessionPersistence

__all__ = ["open_store"]


@asynccontextmanager
async def open_store(deployment: Deployment) -> AsyncGenerator[SessionPersistence, None]:
    """Open the session store that a deployment would use, and nothing else of it.

    No bundle is started, no model is known, nothing is recorded.

    Args:
        deployment: Says which store, and its settings.

    Yields:
        The store.

    Raises:
        SeamError: No store is installed, or several are equally good.
        DshError: It could not be started; see `dsh.loader.open_app`.
    """
    key = service_key(SessionPersistence)
    async with open_app(only_providers(deployment, key), plugins=[LiveSessions]) as app:
        yield app[SessionPersistence]
