"""Whoever may use a store imports its interface; only stores pay for what they are made of."""

from __future__ import annotations

import subprocess
import sys

SHOWN = """
import sys, dsh.session_persistence
print(*sorted(name for name in sys.modules if name.startswith("dsh.session_persistence")))
"""


def test_the_interface_does_not_load_what_stores_are_made_of() -> None:
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "dsh.session_persistence" in loaded
    assert [name for name in loaded if "backend" in name or "testing" in name] == []
