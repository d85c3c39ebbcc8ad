"""Whether a run is recorded: what says so, what `--ephemeral` sets, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsh.cli.errors import UsageError
from dsh.core import entry_points
from dsh.loader import Deployment

if TYPE_CHECKING:
    from dsh.agent import Agent
    from dsh.loader import LoadedApp

RECORD: Final = "record"
"""The plugin that has sessions kept."""
STORE_KEY: Final = "session_persistence"
"""The service that keeps them."""
UNRECORDED: Final = ("plugins.record.disabled=true", "seams.session_persistence=null")
"""What `--ephemeral` sets."""


def is_recording(deployment: Deployment) -> bool:
    """Whether a deployment keeps its sessions: something needs a store, or one is named."""
    if STORE_KEY in deployment.seams:
        return True
    keeping = {RECORD, *(point.name for point in entry_points(f"dsh.seam.{STORE_KEY}"))}
    return any(row.use in keeping and not row.disabled for row in deployment.rows)


def is_kept(app: LoadedApp, agent: Agent) -> bool:
    """Whether there is a session to go on with later."""
    from dsh.session_persistence import SessionPersistence

    return app.get(SessionPersistence) is not None and agent.session.last_turn > 0


def check_ephemeral(app: LoadedApp, ephemeral: bool) -> None:
    """Refuse to run where nothing may be kept and something keeps it all the same.

    Raises:
        UsageError: A store is mounted.
    """
    from dsh.session_persistence import SessionPersistence

    store = app.get(SessionPersistence) if ephemeral else None
    if store is not None:
        raise UsageError(
            f"--ephemeral, but {store.name} is mounted and keeps every session",
            hint="another plugin of the settings needs a session store; see dsh plugins",
        )
