"""What the fixtures mount where a test says nothing; read by discovery without the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APP: Final = "testkit"
"""Name of this wheel's `dsh.defaults` entry point."""

DEFAULTS: Final[Mapping[str, str]] = {"bundle": "agent-core"}
"""Default bundle."""
