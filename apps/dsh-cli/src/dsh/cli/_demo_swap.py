"""`dsh demo --swap`: the same task, kept by each session store that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dsh.cli._demo_project import MODULE, TASK, script, write_project
from dsh.cli._demo_settings import at_home, demo_deployment
from dsh.cli._exit_codes import ERROR, OK
from dsh.cli._failures import say
from dsh.cli._logs import Logs
from dsh.cli._out import Out, stderr
from dsh.cli._recording import STORE_KEY
from dsh.cli._signals import Signals
from dsh.cli._task import Task, perform
from dsh.cli._view import Report, TextView
from dsh.cli.errors import UsageError
from dsh.core import entry_points
from dsh.llm_replay.server import WireServer
from dsh.loader import Deployment
from dsh.sessions import newest_session, open_store

GROUP: Final = f"dsh.seam.{STORE_KEY}"
STORES: Final = ("dsh-session-persistence-jsonl", "dsh-session-persistence-sqlite")
"""Wheels with a store, for whoever has none or only one."""

INTRODUCTION: Final = """\
dsh demo --swap: one task, kept once by each session store that is installed. Nothing else changes
between the runs.
"""


def installed_stores() -> list[str]:
    """Return the names of the installed session stores."""
    return [point.name for point in entry_points(GROUP)]


def need_stores(count: int, option: str) -> list[str]:
    """Return the installed stores, if there are enough of them.

    Raises:
        UsageError: There are not; says what to install.
    """
    names = installed_stores()
    if len(names) >= count:
        return names
    wheels = {point.dist_name for point in entry_points(GROUP)}
    missing = [name for name in STORES if name not in wheels]
    have = f"only {names[0]} is installed" if names else "none is installed"
    needs = "a session store" if count == 1 else "two session stores"
    raise UsageError(
        f"dsh demo {option} needs {needs}, and {have}",
        hint=f"run: pip install {' '.join(missing[: count - len(names)])}",
    )


async def run_swap_demo(folder: Path, home: Path, out: Out, signals: Signals, logs: Logs) -> int:
    """Do the task once on each store and compare what they kept; return an exit code."""
    kept: dict[str, tuple[list[str], str]] = {}
    for name in need_stores(2, "--swap"):
        out.line(f"--- seams: {{session_persistence: {name}}}\n")
        write_project(folder)
        with at_home(home):
            async with WireServer(script()) as server:
                deployment = demo_deployment(server.url, store=name)
                report = await _run(deployment, folder, out, signals, logs)
            if report.exit_code != OK:
                return report.exit_code
            kept[name] = await _kept(deployment, folder)
        if (folder / "slugs.py").read_text(encoding="utf-8") == MODULE:
            say("the project was not repaired as expected")
            return ERROR
        out.line()
    for name, (_, place) in kept.items():
        out.line(f"{name}: {place.replace(str(home), '$DSH_HOME')}")
    first, *others = (types for types, _ in kept.values())
    if any(types != first for types in others):
        say("the stores did not keep the same session")
        return ERROR
    out.line(f"The same {len(first)} events in each, and not a line of dsh differs.")
    return OK


async def _run(
    deployment: Deployment, folder: Path, out: Out, signals: Signals, logs: Logs
) -> Report:
    view = TextView(out, stderr(), quiet=True, final_only=False)
    task = Task(text=TASK, deployment=deployment, folder=folder)
    report = await perform(task, view, signals, logs)
    view.end(report)
    return report


async def _kept(deployment: Deployment, folder: Path) -> tuple[list[str], str]:
    """Return the types of the events that a store kept, and where it kept them."""
    async with open_store(deployment) as store:
        found = await newest_session(store, folder)
        events = await store.read_from(found.header.id, 0)
        place = store.locate(found.header) or "kept in no file of its own"
    types = [event.type for event in events]
    size = "" if found.size is None else f", {found.size} bytes"
    return types, f"{place} ({len(types)} events{size})"
