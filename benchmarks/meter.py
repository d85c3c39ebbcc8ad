"""How a measured program tells its figures: one line of JSON, the last on its standard output."""

from __future__ import annotations

import json
import time


class Meter:
    """Measures the CPU and the wall clock of a part of the program that makes it."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        self._taken: tuple[float, float] | None = None

    def stop(self) -> None:
        """End the part; `report` does so too if it has not ended."""
        self._taken = time.process_time() - self._cpu, time.perf_counter() - self._wall

    def report(self, **more: float) -> None:
        """Print what the part took.

        Args:
            more: Further figures.
        """
        if self._taken is None:
            self.stop()
        assert self._taken is not None
        report(cpu=self._taken[0], wall=self._taken[1], **more)


def report(**figures: float) -> None:
    """Print figures for the program that started this one."""
    print(json.dumps(figures), flush=True)
