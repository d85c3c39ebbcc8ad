"""What this app picks where a deployment says nothing; read by discovery without the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APP: Final = "cli"
"""Name of this app's `dsh.defaults` entry point."""

DEFAULTS: Final[Mapping[str, str]] = {
    "bundle": "agent-core",
    "bash": "bash-local",
    "session_persistence": "session-persistence-jsonl",
}
"""Default bundle, and default provider by service key."""
