"""Entry points: they lead somewhere, and what they lead to is what their group says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from workspace.wheels import Wheel

_GROUPS = re.compile(r"dsh\.(plugins|bundles|defaults|commands|seam\.[a-z][a-z0-9_]*)")
_PROBE = Path(__file__).with_name("probe.py")


def check_entry_points(wheel: Wheel) -> Iterator[str]:
    """Check, without importing them, that entry points name modules of their wheel."""
    plugins = wheel.entry_points.get("dsh.plugins", {})
    for group, points in wheel.entry_points.items():
        if group.startswith("dsh.") and not _GROUPS.fullmatch(group):
            yield f"{wheel.name}: nobody reads the entry-point group {group}"
        # other programs' groups (pytest11) may name a whole module
        whole = group != "console" and not group.startswith("dsh.")
        for name, value in points.items():
            module, _, attribute = value.partition(":")
            path = wheel.folder / "src" / Path(*module.split("."))
            found = (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()
            if not found or not (attribute or whole):
                yield f"{wheel.name}: entry point {name} = {value} names no module:attribute of it"
            offers = group.startswith("dsh.seam.") or group == "dsh.bundles"
            if offers and plugins.get(name) != value:
                yield f"{wheel.name}: {group} offers {name}, which dsh.plugins does not"
            if group == "dsh.bundles" and wheel.role != "bundle":
                yield f"{wheel.name}: offers the bundle {name}; its role must be 'bundle'"


def check_loading(wheels: list[Wheel]) -> list[str]:
    """Import every entry point in a process of its own, and check what it leads to."""
    points = [
        [wheel.name, group, name, value]
        for wheel in wheels
        for group, entries in wheel.entry_points.items()
        for name, value in entries.items()
    ]
    sources = [str(wheel.folder / "src") for wheel in wheels]
    done = subprocess.run(
        [sys.executable, str(_PROBE)],
        input=json.dumps(points),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sources)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return [f"entry points: importing them ended with code {done.returncode}\n{done.stderr}"]
    findings: list[str] = json.loads(done.stdout.rpartition("\n")[2])
    return findings
