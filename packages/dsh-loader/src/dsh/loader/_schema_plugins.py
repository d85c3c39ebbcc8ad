"""The installed plugins as a schema sees them: imported, with the schemas of their settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import BaseModel

from dsh.core import EntryPoint, PluginLike, entry_points
from dsh.core.json import JsonObject
from dsh.loader._attribute_docs import reflow
from dsh.loader._choice import BUNDLE, installed_seam_keys
from dsh.loader._model_schema import model_schema
from dsh.loader._plugins import PLUGIN_GROUP, load_point
from dsh.loader._seams import candidates_for, short_name
from dsh.loader.errors import RowError

Report = Callable[[str], None]
"""Takes one sentence about a plugin that is left out."""


@dataclass(frozen=True, slots=True)
class Described:
    """An installed plugin and the schema of its settings."""

    name: str
    """The name a row uses."""
    wheel: str
    """The distribution it comes from."""
    target: Any
    """The class or function."""
    settings: JsonObject
    """The schema of its settings as its model takes them."""
    definitions: dict[str, JsonObject]
    """What `settings` refers to, by name."""

    @property
    def definition(self) -> str:
        """The name of the definition that holds its settings."""
        return definition_of(self.name)

    @property
    def text(self) -> str:
        """What it is, in the first paragraph of its docstring, and where it comes from."""
        doc = first_paragraph(self.target)
        return f"{doc} ({self.wheel})" if doc else self.wheel

    @property
    def fields(self) -> JsonObject:
        """Its own fields by name; nothing where it takes whatever it is given."""
        schema = self.settings
        target = schema.get("$ref")
        if isinstance(target, str):
            schema = self.definitions[target.removeprefix("#/$defs/")]
        return cast("JsonObject", schema.get("properties", {}))

    @property
    def is_open(self) -> bool:
        """Whether it takes fields that it does not name."""
        return (
            "$ref" not in self.settings and self.settings.get("additionalProperties") is not False
        )

    @property
    def shared(self) -> frozenset[str]:
        """Fields that every provider of its service honours; none where it is no provider."""
        interface = getattr(self.target, "service_type", None)
        model: Any = getattr(interface, "Config", None)
        if model is None or not isinstance(model, type) or not issubclass(model, BaseModel):
            return frozenset()
        return frozenset(model.model_fields)


@dataclass(frozen=True, slots=True)
class Seam:
    """A service key with its installed providers."""

    key: str
    """The service key."""
    text: str
    """What the service is."""
    providers: tuple[Described, ...]
    """Its providers."""

    def names_of(self, provider: Described) -> tuple[str, ...]:
        """Return the names a file may use for a provider, the short one first."""
        return tuple(dict.fromkeys((short_name(self.key, provider.name), provider.name)))


@dataclass(frozen=True, slots=True)
class Installed:
    """Everything a schema is made of."""

    plugins: tuple[Described, ...]
    """The plugins that could be imported, by name."""
    bundles: tuple[Described, ...]
    """Those that are bundles."""
    seams: tuple[Seam, ...]
    """The service keys with providers."""


def describe_installed(wheels: Collection[str] | None, report: Report) -> Installed:
    """Import the plugins of the installed wheels.

    Args:
        wheels: The distributions to look at; all if not given.
        report: Told about each plugin that does not import.
    """
    points = _of(entry_points(PLUGIN_GROUP), wheels)
    bundles = _of(BUNDLE.candidates, wheels)
    providers = {
        key: found for key in installed_seam_keys() if (found := _of(candidates_for(key), wheels))
    }
    known: dict[str, Described] = {}
    for point in (*points, *bundles, *(p for found in providers.values() for p in found)):
        if point.name in known:
            continue
        known[point.name] = _described(point, report)
    usable = {name: item for name, item in known.items() if item is not _UNUSABLE}
    return Installed(
        plugins=_pick(usable, points),
        bundles=_pick(usable, bundles),
        seams=tuple(_seam(key, _pick(usable, found)) for key, found in providers.items()),
    )


def _described(point: EntryPoint, report: Report) -> Described:
    try:
        target = load_point(point, point.name, point.dist_name)
    except RowError as error:
        report(str(error))
        return _UNUSABLE
    try:
        return describe(point.name, target, point.dist_name)
    except Exception as error:  # noqa: BLE001 - one broken model must not cost the whole schema
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        report(f"{point.dist_name}: plugin {point.name!r}: its settings have no schema: {told}")
        return _UNUSABLE


def describe(name: str, plugin: PluginLike, wheel: str = "") -> Described:
    """Return a plugin with the schema of its settings.

    Args:
        name: The name its definitions are kept under.
        plugin: The plugin.
        wheel: The distribution it comes from.
    """
    model: Any = getattr(plugin, "Config", None)
    definitions: dict[str, JsonObject] = {}
    settings: JsonObject
    if isinstance(model, type) and issubclass(model, BaseModel):
        settings, definitions = model_schema(model, definition_of(name))
    elif isinstance(plugin, type):
        settings = {
            "type": "object",
            "description": "This plugin takes no settings.",
            "properties": {},
            "additionalProperties": False,
        }
    else:
        settings = {"type": "object", "description": "Whatever the function takes."}
    return Described(name, wheel, plugin, settings, definitions)


def definition_of(name: str) -> str:
    """Return the name of the definition of a plugin's settings; no other definition has it."""
    return f"settings.{name}" if name else "settings"


def first_paragraph(target: Any) -> str:
    """Return the first paragraph of an object's own docstring, in one line."""
    doc = getattr(target, "__doc__", None)
    return reflow(inspect.cleandoc(doc).split("\n\n")[0]) if isinstance(doc, str) else ""


_UNUSABLE: Final = Described("", "", None, {}, {})


def _of(points: Iterable[EntryPoint], wheels: Collection[str] | None) -> list[EntryPoint]:
    return [point for point in points if wheels is None or point.dist_name in wheels]


def _pick(known: dict[str, Described], points: Iterable[EntryPoint]) -> tuple[Described, ...]:
    names = dict.fromkeys(point.name for point in points)
    return tuple(known[name] for name in names if name in known)


def _seam(key: str, providers: tuple[Described, ...]) -> Seam:
    interfaces = [getattr(item.target, "service_type", None) for item in providers]
    text = next((first_paragraph(item) for item in interfaces if item is not None), "")
    return Seam(key, text, providers)
