"""Gate: every wheel of the workspace is whole, honest about its imports, and in its place.

`workspace/` has the rules: `manifests.py` for files, metadata, README, versions and roles;
`imports.py` for declared dependencies and public faces; `entry_points.py`, which also imports what
they lead to; `texts.py` for what no file may hold.

Usage: `python scripts/check_workspace.py [ROOT]`. Prints one line per finding; exits 1 if any.
"""

from __future__ import annotations

import sys
from pathlib import Path

from command_line import gate_parser
from workspace import entry_points, imports, manifests, texts
from workspace.wheels import read_wheels

ROOT = Path(__file__).resolve().parent.parent


def check(root: Path) -> list[str]:
    """Return every finding of the workspace at `root` that can be had without importing it."""
    wheels = read_wheels(root)
    own = {wheel.name: wheel for wheel in wheels}
    kernel = own.get("dsh-core")
    if kernel is None:
        return ["the workspace has no dsh-core"]
    findings = list(manifests.check_root(root, wheels))
    findings += texts.check_texts(root)
    for folder in ("scripts", "tests", "benchmarks", "examples"):
        findings += texts.check_sizes(root, root / folder)
    project = manifests.root_project(root)
    for wheel in wheels:
        findings += manifests.check_layout(wheel, root)
        findings += manifests.check_metadata(wheel, project)
        findings += manifests.check_readme(wheel)
        findings += manifests.check_versions(wheel, own, kernel.version)
        findings += imports.check_dependencies(wheel, own)
        findings += imports.check_isolated(wheel)
        findings += manifests.check_roles(wheel, own)
        findings += entry_points.check_entry_points(wheel)
        findings += texts.check_sizes(root, wheel.folder)
    findings += imports.check_faces(root, wheels)
    return findings


def main(arguments: list[str] | None = None) -> int:
    """Run the gate on the workspace given, or on this one."""
    root: Path = gate_parser(__doc__, ROOT).parse_args(arguments).root
    findings = check(root) + entry_points.check_loading(read_wheels(root))
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"workspace: {len(findings)} findings\n")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
