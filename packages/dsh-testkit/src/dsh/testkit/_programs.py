"""Tests that need a program of the system, or must not be root."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import pytest

__all__ = ["REQUIRE_VARIABLE", "Completed", "needs_program", "run_unprivileged", "unprivileged"]

REQUIRE_VARIABLE: Final = "DSH_REQUIRE_PROGRAMS"
"""Environment variable; `1` makes a missing program a failure instead of a skip."""


def needs_program(name: str, *others: str) -> str:
    """Skip the running test, or the whole module being collected, where a program is missing.

    With `DSH_REQUIRE_PROGRAMS=1` a missing program is a failure, so that a machine which is meant
    to have everything cannot skip in silence.

    Args:
        name: The program.
        others: Further ones that are needed too.

    Returns:
        The path of the first program.
    """
    missing = [each for each in (name, *others) if shutil.which(each) is None]
    if not missing:
        return shutil.which(name) or name
    what = f"needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{what} ({REQUIRE_VARIABLE}=1)", pytrace=False)
    pytest.skip(what, allow_module_level=True)


@dataclass(frozen=True, slots=True)
class Completed:
    """What became of a program."""

    returncode: int
    """Its exit code; minus the number of the signal that ended it."""
    stdout: str
    """All it wrote to standard output."""
    stderr: str
    """All it wrote to standard error."""


def unprivileged(argv: Sequence[str], *, uid: int | None = None) -> list[str]:
    """Return a command line that runs a program without the powers of root.

    Root reads and writes whatever it likes, so a test of permissions proves nothing when it runs
    as root, as it does in most containers. This takes the capabilities away and nothing else: the
    program still owns what root owns, it can use the test's interpreter and folders, and file
    modes bind it like anybody. Where the test is not root, the command is returned as it is.

    Args:
        argv: The program and its arguments.
        uid: Also become this user and group, who then needs access to everything the program
            uses, the interpreter included; root's own when absent.
    """
    if os.name != "posix" or os.geteuid() != 0:
        return list(argv)
    if sys.platform != "linux":
        pytest.skip("cannot give up the powers of root on this system", allow_module_level=True)
    drop = [needs_program("setpriv"), "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    if uid is not None:
        drop += [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [*drop, "--", *argv]


async def run_unprivileged(
    argv: Sequence[str],
    *,
    uid: int | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout_s: float = 30,
) -> Completed:
    """Run a program without the powers of root and wait for it; see `unprivileged`.

    Args:
        argv: The program and its arguments.
        uid: Also become this user and group.
        cwd: Its working directory; this process's own when absent.
        env: Its environment; this process's own when absent.
        stdin: What it reads.
        timeout_s: Seconds it may take.

    Raises:
        TimeoutError: It took longer; it has been killed.
    """
    with anyio.fail_after(timeout_s):
        done = await anyio.run_process(
            unprivileged(argv, uid=uid), input=stdin.encode(), cwd=cwd, env=env, check=False
        )
    return Completed(done.returncode, _text(done.stdout), _text(done.stderr))


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
