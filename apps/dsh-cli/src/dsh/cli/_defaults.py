"""What this app picks where a deployment says nothing; read by discovery without the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APP: Final = "cli"
"""Name of this app's `dsh.defaults` entry point."""

SEAMS: Final[Mapping[str, str]] = {"bash": "bash-local"}
"""Default provider by service key."""
