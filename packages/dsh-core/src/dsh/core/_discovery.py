"""Entry points, read once a process without importing what they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

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
        """Import the object.

        Returns:
            The object, as it was imported first; nothing is constructed.

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


@dataclass(frozen=True, slots=True)
class Requirement:
    """One distribution that an installed one requires, and what is there of it."""

    name: str
    """The distribution that is required, in lower case and with dashes."""
    pin: str | None
    """The version that is required, where exactly one is (`==`)."""
    installed: str | None
    """The version that is installed, if any is."""

    @property
    def met(self) -> bool:
        """Whether it is installed, in the one version that will do if there is only one."""
        if self.installed is None or self.pin is None or self.installed == self.pin:
            return self.installed is not None
        # a local label (`1.0+cu121`) says who built a version, not which one it is
        installed = self.installed if "+" in self.pin else self.installed.partition("+")[0]
        return _release(installed) == _release(self.pin)


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of `group`, sorted by name and distribution.

    Args:
        group: `dsh.plugins`, `dsh.bundles`, `dsh.seam.<key>`, `dsh.defaults` or `dsh.commands`.
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


# compiled when the first requirement is read, not whenever the kernel is imported
_REQUIREMENT: Final = r"(?m)^Requires-Dist: *([A-Za-z0-9][\w.-]*) *(?:\[[^]]*\])? *([^;\n]*?) *$"
"""A requirement without a marker; those with one are the installer's business."""
_PIN: Final = r"\(?={2,3} *([^\s,*()]+)\)?"
_SPELLINGS: Final = {
    **{"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"},
    **{"r": "post", "rev": "post"},
}


def _release(version: str) -> str:
    """Return one spelling for all those of one version."""
    plain = re.sub(
        r"[-_.]*([a-z]+)[-_.]*",
        lambda word: _SPELLINGS.get(word[1], word[1]),
        version.lower().removeprefix("v"),
    )
    return re.sub(r"(\.0)+(?![\d.])", "", plain)


def _declares(text: str | None) -> bool:
    return text is not None and "[dsh." in text


def _import(value: str) -> Any:
    from importlib import import_module

    module, _, attribute = value.partition(":")
    target: Any = import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    return target


def requirements_of(distribution: str) -> tuple[Requirement, ...]:
    """Return what an installed distribution requires, in the order in which it says so.

    Requirements with a marker, those of an extra among them, are left out.

    Args:
        distribution: Its name.

    Returns:
        Its requirements; none if it is not installed.
    """
    requirements: list[Requirement] = []
    for name, versions in re.findall(_REQUIREMENT, _headers(distribution) or ""):
        found, pin = _headers(name), re.fullmatch(_PIN, versions)
        requirements.append(
            Requirement(
                re.sub(r"[-_.]+", "-", name).lower(),
                None if pin is None else pin[1],
                None if found is None else _identity(found)[1],
            )
        )
    return tuple(requirements)


def version_of(distribution: str) -> str | None:
    """Return the installed version of `distribution`, or None."""
    headers = _headers(distribution)
    return None if headers is None else _identity(headers)[1]


def _headers(distribution: str) -> str | None:
    """Return the core metadata of an installed distribution, without its description.

    The library's own reading takes a parser of mail for it, which is slow to import.
    """
    from importlib_metadata import PackageNotFoundError
    from importlib_metadata import distribution as find

    try:
        return (find(distribution).read_text("METADATA") or "").split("\n\n", 1)[0]
    except PackageNotFoundError:
        return None
