"""The wall clock of log envelopes; waits use `anyio.current_time` instead."""

from __future__ import annotations

import time
from collections.abc import Callable

_source: Callable[[], float] = time.time


def now_ms() -> int:
    """Return the wall-clock time in whole milliseconds since the epoch."""
    return int(_source() * 1000)


def replace_source(source: Callable[[], float]) -> Callable[[], float]:
    """Set the function that tells the time in seconds; return the previous one."""
    global _source
    previous, _source = _source, source
    return previous
