"""Programs that are measured, and the server they talk to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from benchmarks.machine import on_core

ROOT = Path(__file__).resolve().parent.parent
"""The root of the repository, the working directory of measured programs unless they say."""

_MAXRSS_PER_MB = 1e6 if sys.platform == "darwin" else 1000.0

Sample = Mapping[str, float]
"""The figures of one run.

`process_cpu` (user and system, with all descendants that were waited for), `process_wall`, both in
seconds, and `peak_mb` are always there; whatever the program reported joins them.
"""


class ChildFailed(Exception):
    """A measured program ended with an error."""


def run(
    argv: Sequence[str | Path],
    *,
    core: int | None,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    reports: bool = True,
) -> Sample:
    """Run a program to its end and return what it took.

    Args:
        argv: The program and its arguments.
        core: The core it runs on.
        env: Variables on top of a small environment of their own.
        cwd: Its working directory.
        reports: Whether its last line is a report to be read.

    Raises:
        ChildFailed: It ended with another code than 0.
    """
    words = [str(word) for word in argv]
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        with on_core(core):
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd,
                env={**_environment(), **(env or {})},
            )
        assert child.stdout is not None
        with child.stdout as stdout:
            output = stdout.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()
            raise ChildFailed(f"{' '.join(words)} ended with {child.returncode}:\n{said}")
    sample = {
        "process_cpu": usage.ru_utime + usage.ru_stime,
        "process_wall": wall,
        "peak_mb": usage.ru_maxrss / _MAXRSS_PER_MB,
    }
    if reports:
        sample.update(cast("dict[str, float]", json.loads(output.splitlines()[-1])))
    return sample


@contextmanager
def server(python: Path, core: int | None) -> Generator[str]:
    """Run the model for the duration of a block; yields its URL.

    Args:
        python: The interpreter to run it with.
        core: The core it runs on.
    """
    with on_core(core):
        child = subprocess.Popen(
            [str(python), "-m", "benchmarks.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=_environment(),
        )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child.stdout.readline().decode().strip()
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def _environment() -> dict[str, str]:
    """Return an environment in which nothing of this machine changes what is measured."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {"HOME": tempfile.gettempdir(), "PYTHONDONTWRITEBYTECODE": "1", **kept}
