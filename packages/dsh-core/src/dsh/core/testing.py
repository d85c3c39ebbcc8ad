"""Helpers for tests of kernel-based code."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from dsh.core import _clock, _discovery

__all__ = ["fake_entry_points", "set_wall_clock"]


@contextmanager
def set_wall_clock(source: Callable[[], float]) -> Generator[None]:
    """Let `dsh.core.now_ms` read another clock inside the block.

    Args:
        source: Gives seconds since the epoch.

    Yields:
        Nothing; the clock before is back when the block ends.
    """
    previous = _clock.replace_source(source)
    try:
        yield
    finally:
        _clock.replace_source(previous)


@contextmanager
def fake_entry_points(*points: _discovery.EntryPoint) -> Generator[None]:
    """Let discovery see exactly `points` inside the block.

    Args:
        points: Every entry point there is, of every group.

    Yields:
        Nothing; the installed ones are back when the block ends.
    """
    previous = _discovery.replace_table(points)
    try:
        yield
    finally:
        _discovery.replace_table(previous)
