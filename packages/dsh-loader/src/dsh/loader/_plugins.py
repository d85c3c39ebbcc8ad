"""From the name in a row to the plugin object, and from its settings to a checked config."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from dsh.core import (
    ConfigError,
    EntryPoint,
    Plugin,
    PluginLike,
    PluginLoadError,
    entry_point_groups,
    entry_points,
    validated_config,
    version_of,
)
from dsh.core.json import JsonObject
from dsh.loader._deployment import Row
from dsh.loader._suggest import did_you_mean, nearest
from dsh.loader._yaml import KeyPath
from dsh.loader.errors import ConfigKeyError, PluginNameError, RowError

PLUGIN_GROUP: Final = "dsh.plugins"
_FIRST_PARTY: Final = frozenset(
    {"agent-core", "bash-local", "invariants", "llm-deepseek", "llm-replay", "tool-bash"}
)
"""Plugins whose wheel is called `dsh-` and their name; of others nobody knows the wheel."""


def load_plugin(row: Row) -> PluginLike:
    """Import the plugin of a row.

    Raises:
        PluginNameError: Nothing installed has that name, or the layer may not name a file.
        RowError: The code raised, or holds no plugin.
    """
    use = row.use
    if use.startswith((".", "/", "~")) or use.partition(":")[0].endswith(".py"):
        return _from_file(row)
    if ":" in use:
        return _from_module(row)
    return _from_entry_point(row)


def _from_entry_point(row: Row) -> PluginLike:
    for point in entry_points(PLUGIN_GROUP):
        if point.name == row.use:
            return load_point(point, row.id, row.where)
    raise unknown_plugin(row.use, f"{row.where}: plugins.{row.id}")


def load_point(point: EntryPoint, name: str, where: str) -> PluginLike:
    """Import what an entry point names.

    Raises:
        RowError: The code raised, whatever it raised.
    """
    try:
        return cast("PluginLike", point.load())
    except PluginLoadError as error:
        raise RowError(name, where, error.message, hint=error.hint) from (error.__cause__ or error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that ends the process is only a broken one
        detail = f"{point.name} of {point.dist_name} did not load: {_told(error)}"
        raise RowError(name, where, detail) from error


def unknown_plugin(name: str, where: str) -> PluginNameError:
    """Describe a plugin name that nothing installed offers."""
    if name in _FIRST_PARTY:
        return PluginNameError(
            f"{where}: the plugin {name!r} is not installed", hint=f"install dsh-{name}"
        )
    installed = [point.name for point in entry_points(PLUGIN_GROUP)]
    close = nearest(name, installed)
    hint = _not_offered(name)
    if hint is None:
        hint = f"did you mean {close!r}?" if close else "`dsh plugins` lists what is installed"
    return PluginNameError(f"{where}: no installed plugin is called {name!r}", hint=hint)


def _not_offered(name: str) -> str | None:
    """Return what a wheel lacks that is installed and meant to offer a plugin, or None."""
    for group in entry_point_groups("dsh."):
        for point in entry_points(group):
            if point.name == name:
                return (
                    f"{point.dist_name} offers {name!r} in the entry-point group {group}; "
                    f"a plugin that a row names is offered in {PLUGIN_GROUP}"
                )
    if version_of(name) is None:
        return None
    return (
        f"the distribution {name} is installed, but has no entry point {name!r} in the group "
        f"{PLUGIN_GROUP}; after adding one, install it again"
    )


def _from_module(row: Row) -> PluginLike:
    # only rows of this kind need it
    from importlib import import_module

    name, _, attribute = row.use.partition(":")
    try:
        target: Any = import_module(name)
        for part in attribute.split("."):
            target = getattr(target, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that ends the process is only a broken one
        raise RowError(row.id, row.where, f"{row.use} did not load: {_told(error)}") from error
    return cast("PluginLike", target)


def _from_file(row: Row) -> PluginLike:
    if not row.layer.kind.may_name_files:
        raise PluginNameError(
            f"{row.where}: plugins.{row.id}: a {row.layer.kind.value} layer may not load "
            f"the file {row.use}",
            hint="name it in your own dsh.yaml or in a file given with --config",
        )
    location, _, attribute = row.use.partition(":")
    file = (row.layer.folder / Path(location).expanduser()).absolute()
    if not file.is_file():
        raise PluginNameError(f"{row.where}: plugins.{row.id}: there is no file {file}")
    module = _load_file(row, file)
    if attribute:
        found = getattr(module, attribute, None)
        if found is None:
            raise RowError(row.id, row.where, f"{file} has no {attribute!r}")
        return cast("PluginLike", found)
    return _only_plugin(row, file, module)


def _load_file(row: Row, file: Path) -> ModuleType:
    from hashlib import sha256
    from importlib.util import module_from_spec, spec_from_file_location

    name = f"dsh_file_{file.stem}_{sha256(str(file).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise RowError(row.id, row.where, f"{file} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # a module that ends the process is only a broken one
        sys.modules.pop(name, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise RowError(row.id, row.where, f"{file} did not load: {_told(error)}") from error
    return module


def _only_plugin(row: Row, file: Path, module: ModuleType) -> PluginLike:
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Plugin)
        and value.__module__ == module.__name__
    ]
    if len(own) == 1:
        return own[0]
    apply = getattr(module, "apply", None)
    if not own and callable(apply):
        return cast("PluginLike", apply)
    detail = (
        f"{file} has neither a Plugin class nor an apply(ctx, config) function"
        if not own
        else f"{file} has several plugins: {', '.join(cls.__name__ for cls in own)}"
    )
    raise RowError(row.id, row.where, detail, hint=f"write use: {row.use}:NAME")


def checked_config(
    plugin: PluginLike, config: JsonObject, path_of: Callable[[KeyPath], tuple[str, str]]
) -> object:
    """Return the settings of a plugin as it will receive them, before anything starts.

    Args:
        plugin: The plugin.
        config: Its settings.
        path_of: Maps a path inside the settings to where it is written and its dotted path.

    Raises:
        InvalidPluginError: It is no plugin.
        ConfigKeyError: Names the first field that is unknown or does not fit.
    """
    try:
        return validated_config(plugin, config)
    except ConfigError as error:
        raise _first_issue(plugin, error, path_of) from error


def _first_issue(
    plugin: PluginLike, error: ConfigError, path_of: Callable[[KeyPath], tuple[str, str]]
) -> ConfigKeyError:
    # an unknown field explains a missing one beside it, so it is told first
    issue = min(error.issues, key=lambda item: not item.unknown)
    where, path = path_of(issue.location)
    if issue.unknown:
        fields = _fields_at(getattr(plugin, "Config", None), issue.location[:-1])
        hint = did_you_mean(issue.location[-1], fields, what="fields here")
        return ConfigKeyError(where, path, issue.detail, hint=hint, unknown=True)
    if getattr(plugin, "Config", None) is None:
        name = getattr(plugin, "name", None) or plugin.__name__
        hint = f"leave it out; a plugin like {name} takes settings once it declares a Config"
        return ConfigKeyError(where, path, issue.detail, hint=hint)
    more = len(error.issues) - 1
    return ConfigKeyError(where, path, issue.detail + (f" (and {more} more)" if more else ""))


def _fields_at(model: Any, location: KeyPath) -> Iterable[str]:
    """Return the field names of the model that sits at `location`, or nothing if unsure."""
    for part in location:
        field = getattr(model, "model_fields", {}).get(part)
        model = None if field is None else _model_in(field.annotation)
        if model is None:
            return ()
    return tuple(getattr(model, "model_fields", {}))


def _model_in(annotation: Any) -> Any:
    from typing import get_args

    options = (annotation, *get_args(annotation))
    return next((item for item in options if hasattr(item, "model_fields")), None)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
