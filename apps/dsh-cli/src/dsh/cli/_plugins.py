"""`dsh plugins`: what is installed, where it comes from, and whether it is used."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass

from dsh.cli._exit_codes import OK
from dsh.cli._out import stderr, stdout
from dsh.cli._settings import read_settings, working_folder
from dsh.cli._table import table
from dsh.core import DshError, EntryPoint, entry_points, requirements_of
from dsh.core import json as djson
from dsh.loader import (
    SPINE_KEYS,
    Deployment,
    SeamChoice,
    SeamError,
    explain_bundle,
    explain_choice,
    installed_seam_keys,
)


@dataclass(frozen=True, slots=True)
class PluginLine:
    """One installed plugin."""

    name: str
    wheel: str
    version: str
    provides: str | None
    """The service key it can serve."""
    used: str | None
    """How the settings in effect use it: as or in the bundle, in a row, or as the provider that
    is mounted once something needs its service."""


def command(args: argparse.Namespace) -> int:
    """List the installed plugins."""
    deployment = read_settings(args, working_folder(args.cwd))
    err = stderr()
    for note in deployment.notes:
        err.line(f"dsh: {note}")
    out = stdout()
    with redirect_stdout(sys.stderr):  # what a wheel prints is no part of the list
        lines = list_plugins(deployment)
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
    bundle = _bundle(deployment)
    parts = _parts(bundle)
    lines: list[PluginLine] = []
    for point in entry_points("dsh.plugins"):
        used: str | None = None
        if bundle is not None and point.name == bundle.provider.name:
            used = "bundle"
        elif point.name in rows:
            used = "disabled" if rows[point.name].disabled else "row"
        elif point.name in chosen:
            used = "provider"
        elif bundle is not None and _plain(point.dist_name) in parts:
            used = f"in {bundle.provider.name}"
        serves = provides.get(point.name, _spine_service(point))
        lines.append(PluginLine(point.name, point.dist_name, point.dist_version, serves, used))
    return lines


def _bundle(deployment: Deployment) -> SeamChoice | None:
    try:
        return explain_bundle(deployment)
    except SeamError:
        return None  # dsh doctor tells it


def _parts(bundle: SeamChoice | None) -> set[str]:
    """Return the wheels that the wheel of a bundle requires: their plugins are what it mounts."""
    if bundle is None:
        return set()
    return {item.name for item in requirements_of(bundle.provider.dist_name)}


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _spine_service(point: EntryPoint) -> str | None:
    key = point.name.replace("-", "_")
    # the plugin of each is called after its service, so none has to be loaded
    return key if key in SPINE_KEYS and point.dist_name.startswith("dsh-") else None
