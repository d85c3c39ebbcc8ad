"""Lets the tests run from the tree; installed, the wheel is found as every other."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("src")))
