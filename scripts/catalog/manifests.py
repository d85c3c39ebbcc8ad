"""Reads the manifests of the workspace."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from catalog.shapes import EntryPoint, Problem, Wheel


def read_wheels(root: Path, problems: list[Problem]) -> tuple[Wheel, ...]:
    """Return the wheels below `packages/` and `apps/`, by distribution name.

    A manifest that cannot be read as a wheel's is left out and reported.
    """
    manifests = [
        path for place in ("packages", "apps") for path in root.glob(f"{place}/*/pyproject.toml")
    ]
    found: list[tuple[Path, dict[str, Any]]] = []
    for path in sorted(manifests):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
            data["project"]["name"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            where = path.relative_to(root).as_posix()
            problems.append(Problem(where, f"is no manifest of a wheel ({error}); mend it"))
            continue
        found.append((path, data))
    names = {data["project"]["name"] for _, data in found}
    wheels = [_wheel(root, path, data, names) for path, data in found]
    return tuple(sorted(wheels, key=lambda wheel: wheel.name))


def _wheel(root: Path, path: Path, data: dict[str, Any], names: set[str]) -> Wheel:
    project = data["project"]
    own: list[str] = []
    foreign: list[str] = []
    for line in project.get("dependencies", []):
        name = _distribution(line)
        (own if name in names else foreign).append(name if name in names else line)
    points = [
        EntryPoint(group, name, value)
        for group, entries in project.get("entry-points", {}).items()
        for name, value in entries.items()
    ]
    points += [EntryPoint("console", name, v) for name, v in project.get("scripts", {}).items()]
    name = project["name"]
    return Wheel(
        name=name,
        module="dsh." + name.removeprefix("dsh-").replace("-", "_"),
        role=data.get("tool", {}).get("dsh", {}).get("role", ""),
        description=project.get("description", ""),
        folder=path.parent.relative_to(root).as_posix(),
        dependencies=tuple(sorted(own)),
        foreign=tuple(sorted(foreign)),
        entry_points=tuple(sorted(points, key=lambda p: (p.group, p.name))),
    )


def _distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else requirement
