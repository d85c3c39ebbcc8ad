"""`dsh plugins`: what is installed, where it comes from, and whether it is used."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

from dsh.cli._exits import OK
from dsh.cli._out import stderr, stdout
from dsh.cli._settings import read_settings, working_folder
from dsh.cli._table import table
from dsh.core import DshError, entry_points
from dsh.core import json as djson
from dsh.loader import Deployment, explain_choice, installed_seam_keys


@dataclass(frozen=True, slots=True)
class PluginLine:
    """One installed plugin."""

    name: str
    wheel: str
    version: str
    provides: str | None
    """The service key it can serve."""
    used: str | None
    """How the settings in effect use it: as bundle, in a row, or as a provider."""


def command(args: argparse.Namespace) -> int:
    """List the installed plugins."""
    deployment = read_settings(args, working_folder(args.cwd))
    err = stderr()
    for note in deployment.notes:
        err.line(f"dsh: {note}")
    lines = list_plugins(deployment)
    out = stdout()
    if args.json:
        for line in lines:
            out.line(djson.dumps(asdict(line)).decode())
        return OK
    rows = [
        (line.name, f"{line.wheel} {line.version}", line.provides or "-", line.used or "-")
        for line in lines
    ]
    out.line(table(("PLUGIN", "FROM", "PROVIDES", "USED"), rows))
    return OK


def list_plugins(deployment: Deployment) -> list[PluginLine]:
    """Return every installed plugin, without importing one."""
    provides: dict[str, str] = {}
    chosen: set[str] = set()
    for key in installed_seam_keys():
        provides.update({point.name: key for point in entry_points(f"dsh.seam.{key}")})
        try:
            chosen.add(explain_choice(deployment, key).provider.name)
        except DshError:
            continue  # dsh doctor tells it
    rows = {row.use: row for row in deployment.rows}
    lines: list[PluginLine] = []
    for point in entry_points("dsh.plugins"):
        used: str | None = None
        if point.name == deployment.bundle:
            used = "bundle"
        elif point.name in rows:
            used = "disabled" if rows[point.name].disabled else "row"
        elif point.name in chosen:
            used = "provider"
        lines.append(
            PluginLine(
                point.name, point.dist_name, point.dist_version, provides.get(point.name), used
            )
        )
    return lines
