"""The cores of this machine, and what it is."""

from __future__ import annotations

import os
import platform
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """Where client and server run; both None where processes cannot be pinned."""

    client: int | None
    server: int | None

    @property
    def note(self) -> str:
        """What to say about them above the figures."""
        if self.client is None:
            return "not pinned: this system cannot, so figures vary more"
        if self.client == self.server:
            return f"only core {self.client} is usable: client and server share it"
        return f"client on core {self.client}, server on core {self.server}"


def choose_cores() -> Cores:
    """Choose two different cores of those this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(None, None)
    usable = sorted(os.sched_getaffinity(0))
    return Cores(usable[0], usable[-1])


@contextmanager
def on_core(core: int | None) -> Generator[None]:
    """Run a block on one core; programs it starts stay there."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def describe() -> str:
    """Return one line about interpreter, system and load."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python} on {platform.system()} {platform.machine()}{load}"
