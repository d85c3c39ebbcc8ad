"""The wheels of the workspace, as their manifests describe them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROLES: dict[str, frozenset[str]] = {
    "kernel": frozenset(),
    "library": frozenset({"kernel", "library", "interface"}),
    "interface": frozenset({"kernel", "library", "interface"}),
    "provider": frozenset({"kernel", "library", "interface"}),
    "consumer": frozenset({"kernel", "library", "interface"}),
    "bundle": frozenset({"kernel", "library", "interface", "provider", "consumer"}),
    "testkit": frozenset({"kernel", "library", "interface", "provider", "consumer", "bundle"}),
    "app": frozenset({"kernel", "library", "interface", "provider", "consumer", "bundle"}),
}
"""Each role, with the roles that it may depend on."""


@dataclass(frozen=True)
class Wheel:
    """One wheel.

    Args:
        folder: Where it lies.
        manifest: Its whole `pyproject.toml`.
        project: The `[project]` table of it.
        role: Its `[tool.dsh] role`, empty where none is given.
        dependencies: What it requires, each with its version constraint.
        optional: What its extras require.
    """

    folder: Path
    manifest: dict[str, Any]
    project: dict[str, Any]
    role: str
    dependencies: dict[str, str]
    optional: frozenset[str]

    @property
    def name(self) -> str:
        """The name of the distribution."""
        return str(self.project["name"])

    @property
    def version(self) -> str:
        """Its version."""
        return str(self.project["version"])

    @property
    def module(self) -> str:
        """The portion of the namespace it owns."""
        return self.name.removeprefix("dsh-").replace("-", "_")

    @property
    def package(self) -> Path:
        """Where that portion lies."""
        return self.folder / "src" / "dsh" / self.module

    @property
    def entry_points(self) -> dict[str, dict[str, str]]:
        """Its entry points by group; its commands are the group `console`."""
        return {
            **self.project.get("entry-points", {}),
            "console": self.project.get("scripts", {}),
        }


def read_wheels(root: Path) -> list[Wheel]:
    """Read every manifest of the workspace."""
    found = [*root.glob("packages/*/pyproject.toml"), *root.glob("apps/*/pyproject.toml")]
    return [_read(path) for path in sorted(found)]


def _read(path: Path) -> Wheel:
    manifest: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    project = manifest["project"]
    extras: dict[str, list[str]] = project.get("optional-dependencies", {})
    return Wheel(
        folder=path.parent,
        manifest=manifest,
        project=project,
        role=manifest.get("tool", {}).get("dsh", {}).get("role", ""),
        dependencies=dict(_requirement(line) for line in project["dependencies"]),
        optional=frozenset(_requirement(line)[0] for lines in extras.values() for line in lines),
    )


def _requirement(line: str) -> tuple[str, str]:
    found = re.match(r"([A-Za-z0-9._-]+)(\[[^]]*\])?\s*(.*)", line)
    if found is None:
        raise SystemExit(f"cannot read requirement {line!r}")
    return found[1].lower().replace("_", "-").replace(".", "-"), found[3].split(";")[0].strip()
