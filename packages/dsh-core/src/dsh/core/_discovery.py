"""Entry points, read once a process without importing what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dsh.core.errors import PluginLoadError


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One entry point of an installed distribution."""

    name: str
    """Its name inside the group, in kebab case."""
    value: str
    """`module:attribute` of the object it offers."""
    group: str
    """The group it belongs to, `dsh.plugins` for example."""
    dist_name: str
    """Name of the distribution that declares it."""
    dist_version: str
    """Version of that distribution."""
    loader: Callable[[], Any] | None = None
    """How to import the object; tests may pass their own."""

    def load(self) -> Any:
        """Import and return the object.

        Raises:
            PluginLoadError: The import failed or the attribute is missing; the cause is attached.
        """
        try:
            return self.loader() if self.loader is not None else _import(self.value)
        except Exception as error:
            raise PluginLoadError(
                f"entry point {self.name!r} ({self.value}) of {self.dist_name} "
                f"{self.dist_version} failed to load: {type(error).__name__}: {error}",
                hint=f"reinstall or remove {self.dist_name}",
            ) from error


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of `group`, sorted by name and distribution.

    Args:
        group: `dsh.plugins`, `dsh.seam.<key>`, `dsh.defaults` or `dsh.commands`.
    """
    return _load_table().get(group, ())


def entry_point_groups(prefix: str) -> tuple[str, ...]:
    """Return the names of all groups that start with `prefix`, sorted."""
    return tuple(sorted(name for name in _load_table() if name.startswith(prefix)))


def replace_table(points: Iterable[EntryPoint] | None) -> tuple[EntryPoint, ...] | None:
    """Set what discovery sees (`None` = read the environment again); return what it saw."""
    global _table
    previous = None if _table is None else tuple(p for group in _table.values() for p in group)
    _table = None if points is None else _grouped(points)
    return previous


_table: dict[str, tuple[EntryPoint, ...]] | None = None


def _load_table() -> dict[str, tuple[EntryPoint, ...]]:
    global _table
    if _table is None:
        _table = _grouped(_read())
    return _table


def _grouped(points: Iterable[EntryPoint]) -> dict[str, tuple[EntryPoint, ...]]:
    groups: dict[str, list[EntryPoint]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    return {
        name: tuple(sorted(items, key=lambda p: (p.name, p.dist_name)))
        for name, items in groups.items()
    }


def _read() -> Iterable[EntryPoint]:
    # importlib_metadata costs import time that a process without discovery should not pay
    import importlib_metadata

    metadata: Any = importlib_metadata

    seen: set[str] = set()
    for dist in metadata.distributions():
        if not _declares(dist.read_text("entry_points.txt")):
            continue
        name, version = _identity(dist.read_text("METADATA") or "")
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        for point in dist.entry_points:
            if point.group.startswith("dsh."):
                yield EntryPoint(point.name, point.value, point.group, name, version)


def _identity(text: str) -> tuple[str, str]:
    """Return name and version from core metadata, without parsing the description it carries."""
    headers: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        field, _, value = line.partition(": ")
        headers.setdefault(field, value)
    return headers.get("Name", "unknown"), headers.get("Version", "unknown")


def _declares(text: str | None) -> bool:
    return text is not None and "[dsh." in text


def _import(value: str) -> Any:
    from importlib import import_module

    module, _, attribute = value.partition(":")
    target: Any = import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    return target


def version_of(distribution: str) -> str | None:
    """Return the installed version of `distribution`, or None."""
    from importlib_metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
