"""The plugins of the workspace, imported: what only a running program can tell about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import anyio
from pydantic import BaseModel

from catalog.shapes import PluginClass, Workspace
from dsh.loader import open_app


@dataclass(frozen=True, slots=True)
class LivePlugin:
    """A plugin that a wheel lists, with the class it names."""

    name: str
    """Its name in a deployment."""
    plugin: PluginClass
    """What its source says."""
    target: Any
    """The class or function."""


def live_plugins(workspace: Workspace) -> tuple[LivePlugin, ...]:
    """Return every plugin that the wheels list, by name.

    Args:
        workspace: The workspace.

    Raises:
        ValueError: One cannot be imported, or its source was not found.
    """
    by_name = {name: item for item in workspace.plugins for name in item.entry_points}
    found: list[LivePlugin] = []
    for wheel in workspace.wheels:
        for point in wheel.points("dsh.plugins"):
            if point.name not in by_name:
                raise ValueError(f"{wheel.name}: the source of plugin {point.name!r} is not found")
            found.append(LivePlugin(point.name, by_name[point.name], _imported(point.value)))
    return tuple(sorted(found, key=lambda item: item.name))


def _imported(value: str) -> Any:
    module, _, attribute = value.partition(":")
    try:
        target: Any = import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{value} cannot be imported: {error}") from error
    return target


def model_of(target: Any) -> type[BaseModel] | None:
    """Return the configuration model of a plugin or of an interface, if it has one."""
    model: Any = getattr(target, "Config", None)
    return cast("type[BaseModel]", model) if _is_model(model) else None


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)


def points_of(workspace: Workspace, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the group, without the prefix, and the name of each entry point below a prefix.

    Args:
        workspace: The workspace.
        prefix: How the group begins, `dsh.seam.` for example.
    """
    for wheel in workspace.wheels:
        for point in wheel.entry_points:
            if point.group.startswith(prefix):
                yield point.group.removeprefix(prefix), point.name


def mounted_by_bundle(workspace: Workspace) -> Mapping[Any, str]:
    """Return the bundle that mounts each class, by class; bundles are started for it.

    Args:
        workspace: The workspace.
    """
    owners: dict[Any, str] = {}
    for _, name in sorted(points_of(workspace, "dsh.bundles")):
        for target in anyio.run(_parts_of, name):
            owners.setdefault(target, name)
    return owners


async def _parts_of(bundle: str) -> list[Any]:
    async with open_app({"bundle": bundle}) as app:
        own = app.rows[bundle]
        return [
            mount.definition.target
            for mount in app.mounts
            if mount is not own and own.owns(mount) and mount.definition.target is not None
        ]
