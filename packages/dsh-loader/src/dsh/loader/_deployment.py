"""A deployment: the layers merged into one, with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dsh.core.json import JsonObject, JsonValue
from dsh.loader._sources import Layer
from dsh.loader._untrusted import tightened
from dsh.loader._yaml import KeyPath


@dataclass(frozen=True, slots=True)
class Origin:
    """Which layer said a value."""

    layer: Layer
    """The layer."""
    path: KeyPath
    """The path of the value."""

    def __str__(self) -> str:
        return self.layer.where(self.path)

    @property
    def written(self) -> str | None:
        """The text with `${...}` as it stands in the layer, if the value came from one."""
        return self.layer.written.get(self.path)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on a turn, and on a whole run; `None` is no bound."""

    max_steps: int | None = None
    """Model requests of one turn."""
    max_tokens: int | None = None
    """Output tokens of one model request."""
    max_turn_tokens: int | None = None
    """Output tokens of one turn."""
    timeout_s: float | None = None
    """Wall-clock seconds of a whole `dsh run`, from the start of the app to its end. An embedder
    bounds what it awaits itself."""


@dataclass(frozen=True, slots=True)
class Row:
    """One plugin to mount."""

    id: str
    """Its identity across layers."""
    use: str
    """The name of an installed plugin, `module:attribute`, or `./file.py`."""
    config: JsonObject
    """Its settings."""
    disabled: bool
    """Not to be mounted."""
    layer: Layer
    """The layer that says what `use` is."""

    @property
    def where(self) -> str:
        """Where the row is written."""
        return self.layer.where(("plugins", self.id))


@dataclass(frozen=True, slots=True)
class Deployment:
    """What to run: model, bundle, plugins, providers and their settings, with origins."""

    data: JsonObject
    """The merged settings; `plugins` is a mapping from row id to row."""
    layers: tuple[Layer, ...]
    """What was merged, lowest precedence first."""
    origins: Mapping[KeyPath, Origin] = field(repr=False)
    """Origin of every leaf of `data`."""
    app: str | None = None
    """Name of the app being started, as its `dsh.defaults` entry point has it."""
    notes: tuple[str, ...] = ()
    """What the person should be told, one line each."""

    @property
    def model(self) -> str | None:
        """The default model, as `provider/model` or a bare name."""
        return cast("str | None", self.data.get("model"))

    @property
    def effort(self) -> str | None:
        """The default reasoning effort."""
        return cast("str | None", self.data.get("effort"))

    @property
    def bundle(self) -> str | None:
        """The bundle that a layer names, if one does; `explain_bundle` tells the one in effect."""
        return cast("str | None", self.data.get("bundle"))

    @property
    def without_bundle(self) -> bool:
        """Whether a layer says `bundle: null`: nothing but the rows is mounted."""
        return "bundle" in self.data and self.data["bundle"] is None

    @property
    def agent(self) -> JsonObject:
        """Settings of the bundle: persona, tool order and what else it takes."""
        return _object(self.data.get("agent"))

    @property
    def limits(self) -> Limits:
        """Bounds of a turn and of a run."""
        return Limits(**cast("dict[str, Any]", _object(self.data.get("limits"))))

    @property
    def seams(self) -> Mapping[str, str]:
        """Providers chosen by name, by service key."""
        named = _object(self.data.get("seams"))
        return {key: name for key, name in named.items() if isinstance(name, str)}

    def section(self, key: str) -> JsonObject:
        """Return the settings under a service key."""
        return _object(self.data.get(key))

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every row, in the order in which the layers first name them."""
        return tuple(self._row(row_id) for row_id in _object(self.data.get("plugins")))

    def _row(self, row_id: str) -> Row:
        row = _object(_object(self.data.get("plugins"))[row_id])
        path: KeyPath = ("plugins", row_id)
        origin = self.origin((*path, "use")) or self.origin(path)
        return Row(
            id=row_id,
            use=cast("str", row.get("use", row_id)),
            config=_object(row.get("config")),
            disabled=row.get("disabled") in {True, "true"},
            layer=origin.layer if origin is not None else self.layers[-1],
        )

    def origin(self, path: KeyPath) -> Origin | None:
        """Return where the value at `path` comes from.

        For a mapping that is the layer of its first leaf; for a path that is not there, the
        origin of its nearest ancestor.
        """
        if path in self.origins:
            return self.origins[path]
        inside = (o for p, o in self.origins.items() if p[: len(path)] == path)
        found = next(inside, None)
        if found is not None or not path:
            return found
        return self.origin(path[:-1])

    def where(self, path: KeyPath) -> str:
        """Name the place of `path` for a message."""
        origin = self.origin(path)
        return "the deployment" if origin is None else str(origin)


def compose(
    layers: Iterable[Layer], *, app: str | None = None, notes: Sequence[str] = ()
) -> Deployment:
    """Merge layers, lowest precedence first.

    Mappings merge by key, rows by id; everything else is replaced whole. A row that names another
    plugin replaces the row below it with its settings. A layer that may only tighten never raises
    a limit.

    Args:
        layers: The layers.
        app: Name of the app being started, whose defaults choose providers.
        notes: Lines for the person, carried along.
    """
    taken = tuple(layers)
    data: JsonObject = {}
    origins: dict[KeyPath, Origin] = {}
    for layer in taken:
        source = tightened(layer.data, data) if layer.tighten_only else layer.data
        _merge(data, source, (), layer, origins)
    return Deployment(data, taken, origins, app, tuple(notes))


def _merge(
    into: JsonObject,
    source: JsonObject,
    path: KeyPath,
    layer: Layer,
    origins: dict[KeyPath, Origin],
) -> None:
    for key, value in source.items():
        here = (*path, key)
        present = into.get(key)
        if not isinstance(value, dict):
            _forget(origins, here)
            into[key] = value
            origins[here] = Origin(layer, here)
            continue
        if not isinstance(present, dict) or _is_other_row(path, present, value):
            _forget(origins, here)
            present = {}
            into[key] = present
        if not value and not present:
            origins[here] = Origin(layer, here)
        elif value:
            origins.pop(here, None)
        _merge(present, value, here, layer, origins)


def _is_other_row(path: KeyPath, present: JsonObject, value: JsonObject) -> bool:
    return path == ("plugins",) and "use" in value and present.get("use") != value["use"]


def _forget(origins: dict[KeyPath, Origin], path: KeyPath) -> None:
    for known in [p for p in origins if p[: len(path)] == path]:
        del origins[known]


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


CALLER_LABEL = "the mapping given to open_app"
"""How messages name a mapping that an embedder passes."""
