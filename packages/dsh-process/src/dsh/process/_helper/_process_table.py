"""The process table: who descends from whom, and signals that hit nobody else.

Used inside the helper and, as the last resort, by the harness.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Final

__all__ = [
    "MARK",
    "alive",
    "descendants",
    "group_members",
    "kill_marked",
    "marked",
    "parent_of",
    "signal_all",
    "signal_group",
]

MARK: Final = "DSH_PROCESS_MARK"
"""Variable by which a process can be told to belong to one command, wherever it went."""

_SWEEPS: Final = 100
_QUIET_SWEEPS: Final = 5
_SWEEP_S: Final = 0.02


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent and group of a process; None when it is gone or there is no `/proc`."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[2])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _listed_children(pid: int) -> list[int]:
    """Children of one process as the kernel lists them per thread (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def _all_children() -> dict[int, list[int]]:
    """Children by parent for the whole machine, where nothing better is offered."""
    tree: dict[int, list[int]] = {}
    if _has_proc():
        for pid in _pids():
            if (stat := _stat(pid)) is not None:
                tree.setdefault(stat[1], []).append(pid)
        return tree
    for line in _ps("-A", "-o", "ppid=", "-o", "pid="):
        row = line.split()
        if len(row) == 2 and row[0].isdigit() and row[1].isdigit():
            tree.setdefault(int(row[0]), []).append(int(row[1]))
    return tree


def _ps(*arguments: str) -> list[bytes]:
    """Lines of `ps`, or none when it cannot be run."""
    reading, writing = os.pipe()
    try:
        pid = os.posix_spawn(
            "/bin/ps",
            ["ps", *arguments],
            {"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
            file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)],
            setsigdef=[signal.SIGPIPE],
        )
    except OSError:
        os.close(reading)
        return []
    finally:
        os.close(writing)
    with open(reading, "rb") as file:
        lines = file.read().splitlines()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    return lines


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[int]:
    """Every descendant of `root`, nearest first, without the subtrees of `spare`."""
    me = os.getpid()
    listed = os.path.exists(f"/proc/{me}/task/{me}/children")
    tree = {} if listed else _all_children()
    found: list[int] = []
    seen = {root, *spare}
    queue = [root]
    for pid in queue:
        for child in _listed_children(pid) if listed else tree.get(pid, []):
            if child not in seen:
                seen.add(child)
                found.append(child)
                queue.append(child)
    return found


def parent_of(pid: int) -> int | None:
    """Parent of a process, where `/proc` tells; None when it is gone."""
    stat = _stat(pid)
    return None if stat is None else stat[1]


def alive(pids: list[int]) -> int:
    """How many of `pids` still run; zombies do not."""
    if not pids:
        return 0
    if _has_proc():
        return sum((stat := _stat(pid)) is not None and stat[0] not in "ZX" for pid in pids)
    states = _ps("-o", "stat=", "-p", ",".join(map(str, pids)))
    return sum(not state.strip().startswith(b"Z") for state in states)


def group_members(group: int) -> list[int]:
    """The processes of a process group, zombies included."""
    if _has_proc():
        return [pid for pid in _pids() if (stat := _stat(pid)) is not None and stat[2] == group]
    rows = [line.split() for line in _ps("-A", "-o", "pid=", "-o", "pgid=")]
    return [int(row[0]) for row in rows if len(row) == 2 and row[1] == str(group).encode()]


def marked(mark: str) -> list[int]:
    """Processes whose environment carries `mark`, except this one.

    A process that replaced its environment is not found, and macOS does not show the environment
    of programs it ships.
    """
    needle = f"{MARK}={mark}".encode()
    found: list[int] = []
    if _has_proc():
        for pid in _pids():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if needle in file.read().split(b"\0"):
                        found.append(pid)
            except OSError:
                continue
    else:
        for line in _ps("-axEww", "-o", "pid=", "-o", "command="):
            pid_text, _, rest = line.strip().partition(b" ")
            if pid_text.isdigit() and needle in rest.split(b" "):
                found.append(int(pid_text))
    return [pid for pid in found if pid != os.getpid()]


def signal_group(group: int, number: int) -> None:
    """Signal a process group, never this process's own; one that is gone is no error."""
    if group > 1 and group != os.getpgrp():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _signal_one(pid: int, number: int, family: frozenset[int] | None) -> None:
    """Signal one process if it is still the one that was listed.

    A pidfd pins the identity; the parent is then looked up again, so a number that was reused in
    between is never hit: its new owner's parent is not of the family.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(pid)
        except (AttributeError, OSError):
            os.kill(pid, number)
            return
        try:
            stat = _stat(pid)
            if stat is not None and (family is None or stat[1] in family):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def signal_all(pids: list[int], number: int, parents: frozenset[int] | None) -> None:
    """Signal processes and their groups.

    Groups go first: the kernel signals a whole group at once, so nothing in it can fork itself
    away meanwhile. Every group seen here was made inside the command's own sessions.

    Args:
        pids: The processes, all descended from `parents` or from one another.
        number: The signal.
        parents: Who else may be their parent now, or None not to ask.
    """
    groups: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            groups.add(os.getpgid(pid))
    for group in groups:
        signal_group(group, number)
    family = None if parents is None else parents | frozenset(pids)
    for pid in pids:
        _signal_one(pid, number, family)


def kill_marked(mark: str) -> bool:
    """SIGKILL whatever carries `mark` until nothing does; False if something withstood.

    A process that is just being executed shows no environment for a moment, so only several
    looks in a row that find nothing count.
    """
    quiet = 0
    for _ in range(_SWEEPS):
        pids = marked(mark)
        quiet = 0 if alive(pids) else quiet + 1
        if quiet == _QUIET_SWEEPS:
            return True
        signal_all(pids, signal.SIGKILL, None)
        time.sleep(_SWEEP_S)
    return False
