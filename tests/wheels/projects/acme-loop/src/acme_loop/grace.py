"""Time that is left once somebody has asked for the end."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

from dsh.llm import CancelSignal


@contextmanager
def grace(signal: CancelSignal, seconds: float) -> Generator[anyio.CancelScope]:
    """Run a block that has `seconds` left from the moment the signal fires."""
    with anyio.CancelScope() as scope:

        def limit() -> None:
            scope.deadline = min(scope.deadline, anyio.current_time() + seconds)

        forget = signal.on_abort(limit)
        try:
            yield scope
        finally:
            forget()
