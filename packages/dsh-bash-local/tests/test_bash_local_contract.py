"""The contract of the bash seam, for local commands."""

from __future__ import annotations

from dsh.bash.testing import BashContract
from dsh.bash_local import LocalBash


class TestLocalBash(BashContract):
    provider = LocalBash
    graceful = {"grace_ms": 200}  # noqa: RUF012 - as the contract declares it
