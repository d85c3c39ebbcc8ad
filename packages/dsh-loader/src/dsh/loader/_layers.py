"""The layers of a deployment, in the order in which each overrides those before it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsh.loader._deployment import Deployment, compose
from dsh.loader._paths import FILE_NAME, find_project_file
from dsh.loader._sources import (
    Layer,
    LayerKind,
    RawFile,
    file_layer,
    mapping_layer,
    read_file,
    set_layer,
)
from dsh.loader._trust import TrustStore
from dsh.loader._untrusted import untrusted_layer
from dsh.loader.errors import ConfigFileError
from dsh.paths import user_folder


def read_deployment(
    *,
    defaults: Mapping[str, object] | None = None,
    defaults_label: str = "built-in defaults",
    base: Iterable[Layer] = (),
    app: str | None = None,
    user: bool = True,
    project: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    sets: Iterable[str] = (),
) -> Deployment:
    """Read and merge the layers of a deployment, lowest precedence first.

    Defaults, the user's `dsh.yaml`, the project's `dsh.yaml`, `config`, then `sets`. A project
    file takes full effect only if it is trusted, or is the very file named by `config`; until
    then it may pick the model and lower limits, and the deployment carries a note saying so.

    Args:
        defaults: What the app ships.
        defaults_label: How messages and `config show` name the defaults.
        base: Layers of the app's own just above the defaults.
        app: Name of the app being started.
        user: Read the user's file.
        project: The folder whose project file is looked for; `None` reads none.
        config: One more file, which must exist.
        sets: `KEY.PATH=VALUE` assignments.

    Raises:
        ConfigFileError: A file is missing, unreadable or no strict YAML.
        ConfigKeyError: A key is unknown or of the wrong kind.
        InterpolationError: An expression cannot be resolved.
        StateFileError: The trust record is unreadable.
    """
    layers: list[Layer] = []
    notes: list[str] = []
    if defaults is not None:
        layers.append(mapping_layer(defaults, LayerKind.DEFAULTS, defaults_label))
    layers.extend(base)
    seen: set[str] = set()
    explicit = None if config is None else _named_file(Path(config))
    if explicit is not None:
        seen.add(os.path.realpath(explicit.path))
    folder = user_folder() if user else None
    if folder is not None:
        raw = _first_look(folder / FILE_NAME, seen)
        if raw is not None:
            layers.append(file_layer(raw, LayerKind.USER))
    if project is not None:
        raw = _project_file(Path(project), seen)
        if raw is not None:
            _add_project(raw, layers, notes)
    if explicit is not None:
        layers.append(file_layer(explicit, LayerKind.CONFIG))
    layers.extend(set_layer(text) for text in sets)
    return compose(layers, app=app, notes=notes)


def _project_file(folder: Path, seen: set[str]) -> RawFile | None:
    found = find_project_file(folder)
    return None if found is None else _first_look(found, seen)


def _first_look(path: Path, seen: set[str]) -> RawFile | None:
    """Read a file unless it is a layer already under another name."""
    real = os.path.realpath(path)
    if real in seen:
        return None
    seen.add(real)
    return read_file(path)


def _named_file(path: Path) -> RawFile:
    raw = read_file(Path(os.path.expanduser(path)))
    if raw is None:
        raise ConfigFileError("read", str(path), "there is no such file")
    return raw


def _add_project(raw: RawFile, layers: list[Layer], notes: list[str]) -> None:
    state = TrustStore.open().state(raw.path, raw.data)
    if state == "trusted":
        layers.append(file_layer(raw, LayerKind.PROJECT))
        return
    layer, ignored = untrusted_layer(raw)
    if layer is not None:
        layers.append(layer)
    if ignored:
        why = "has changed since you trusted it" if state == "changed" else "is not trusted"
        notes.append(
            f"{raw.path} {why}; ignored: {ignored} (read it, then run `dsh trust` to use it)"
        )
