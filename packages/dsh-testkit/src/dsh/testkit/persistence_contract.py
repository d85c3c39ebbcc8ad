"""What every session store has to do.

A provider's test file derives from `PersistenceContract` and names the provider:

    from pathlib import Path

    from dsh.testkit.persistence_contract import PersistenceContract
    from my_wheel import MyStore


    class TestMyStore(PersistenceContract):
        provider = MyStore

        def config(self, folder: Path) -> dict[str, object]:
            return {"folder": str(folder)}

The tests run under the anyio pytest plugin (`anyio_mode = "auto"`). Each opens the store in one
app or in several with the same configuration: round trips, repair of what was interrupted,
refusals, listings, live sessions, resume and fork, two apps at once. Two apps are to the store as
two processes are, so it must tell them apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

import pytest

from dsh.session_persistence import SessionPersistence
from dsh.testkit._case import leave_out
from dsh.testkit._persistence_apps import APPS
from dsh.testkit._persistence_bench import PersistenceCase, StoreBench
from dsh.testkit._persistence_content import CONTENT
from dsh.testkit._persistence_listing import LISTING
from dsh.testkit._persistence_live import LIVE
from dsh.testkit._persistence_reads import READS
from dsh.testkit._persistence_writes import WRITES

__all__ = ["CASES", "PersistenceCase", "PersistenceContract", "StoreBench"]

CASES: Final[tuple[PersistenceCase, ...]] = (
    *READS,
    *CONTENT,
    *WRITES,
    *LISTING,
    *LIVE,
    *APPS,
)
"""Every case; `await case(provider, config)` runs one without pytest."""


class PersistenceContract:
    """What every session store does. Derive, set `provider`, say where it keeps things, done."""

    provider: ClassVar[type[SessionPersistence]]
    """The class under test."""
    without: ClassVar[tuple[str, ...]] = ()
    """Names of cases that the store cannot meet; its documentation should say so."""

    def config(self, folder: Path) -> object:
        """Return a configuration with empty storage of its own, which lasts from app to app.

        Args:
            folder: An empty folder for it.
        """
        return None

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_persistence_contract(self, case: PersistenceCase, tmp_path: Path) -> None:
        """Run one case."""
        leave_out(case, self.without, CASES)
        await case(self.provider, self.config(tmp_path))
