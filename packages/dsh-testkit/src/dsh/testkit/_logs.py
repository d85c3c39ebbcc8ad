"""Looking at what was logged."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["recorded_logs"]


class _Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def recorded_logs() -> Generator[list[str]]:
    """Record what every logger of the process says inside the block, down to level debug.

    Yields:
        One text per record, its traceback included.
    """
    root = logging.getLogger()
    level = root.level
    recorder = _Recorder()
    root.addHandler(recorder)
    root.setLevel(logging.DEBUG)
    try:
        yield recorder.lines
    finally:
        root.setLevel(level)
        root.removeHandler(recorder)
