"""The keys a deployment file may have, and the one inner form of its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from dsh.core.json import JsonObject, JsonValue
from dsh.loader._suggest import did_you_mean, nearest
from dsh.loader._yaml import KeyPath
from dsh.loader.errors import ConfigKeyError

VERSION: Final = 1
"""The format version this loader reads."""

TOP_KEYS: Final = (
    "agent",
    "bundle",
    "effort",
    "limits",
    "model",
    "plugins",
    "seams",
    "version",
)
"""Every top-level key that is not the key of a seam."""


@dataclass(frozen=True, slots=True)
class LimitKind:
    """What one key of `limits` takes."""

    text: str
    """What it bounds."""
    whole: bool = True
    """Whether only whole numbers will do."""

    def takes(self, value: JsonValue) -> bool:
        """Whether `value` can be the limit."""
        kinds = (int,) if self.whole else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool) and value > 0


LIMITS: Final[Mapping[str, LimitKind]] = {
    "max_steps": LimitKind("Model requests of one turn."),
    "max_tokens": LimitKind("Output tokens of one model request."),
    "max_turn_tokens": LimitKind("Output tokens of one turn."),
    "timeout_s": LimitKind("Wall-clock seconds of a whole `dsh run`.", whole=False),
}
"""The keys of `limits`."""

ROW_KEYS: Final = ("config", "disabled", "id", "use")
ROW_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")

Where = Callable[[KeyPath], str]
"""Names the place of a path for an error message."""


def normalise_rows(
    data: JsonObject, lines: Mapping[KeyPath, int], label: str, *, allow_mapping: bool
) -> tuple[JsonObject, dict[KeyPath, int]]:
    """Return `data` with `plugins` as a mapping from row id to row, and `lines` to match.

    Args:
        data: One layer as written.
        lines: Lines of its paths.
        label: Name of the layer.
        allow_mapping: Also take a mapping from id to row, as `--set plugins.ID...` makes one.

    Raises:
        ConfigKeyError: `plugins` is no list, a row is malformed, or two rows share an id.
    """
    rows = data.get("plugins")
    if rows is None:
        return {k: v for k, v in data.items() if k != "plugins"}, dict(lines)
    if isinstance(rows, dict) and allow_mapping:
        return data, dict(lines)
    if not isinstance(rows, list):
        raise ConfigKeyError(
            _at(label, lines, ("plugins",)), "plugins", "must be a list of plugin names or rows"
        )
    table: JsonObject = {}
    moved = {path: line for path, line in lines.items() if path[:1] != ("plugins",)}
    moved.update({path: line for path, line in lines.items() if path == ("plugins",)})
    for index, item in enumerate(rows):
        old: KeyPath = ("plugins", str(index))
        row_id, row = _row(item, _at(label, lines, old), f"plugins[{index}]")
        if row_id in table:
            raise ConfigKeyError(
                _at(label, lines, old),
                f"plugins[{index}]",
                f"a second row with the id {row_id!r}",
                hint="give one of them its own `id`",
            )
        table[row_id] = row
        for path, line in lines.items():
            if path[:2] == old:
                moved["plugins", row_id, *path[2:]] = line
    return {**data, "plugins": table}, moved


def _row(item: JsonValue, where: str, path: str) -> tuple[str, JsonObject]:
    if isinstance(item, str):
        return _row_id(item, where, path), {"use": item}
    if not isinstance(item, dict):
        raise ConfigKeyError(
            where, path, "a row is a plugin name or a mapping with `use`, `id`, `config`"
        )
    for key in item:
        if key not in ROW_KEYS:
            raise ConfigKeyError(
                where,
                f"{path}.{key}",
                "a row has no such key",
                hint=_row_hint(key, item),
            )
    named = item.get("id", item.get("use"))
    if not isinstance(named, str):
        raise ConfigKeyError(where, path, "a row needs `use: PLUGIN`, or the `id` of a known row")
    row = {key: value for key, value in item.items() if key != "id"}
    return _row_id(named, where, path), row


def _row_hint(key: str, item: JsonObject) -> str:
    if len(item) == 1 and nearest(key, ROW_KEYS) is None:
        return f"write {{use: {key}, config: ...}}"
    hint = did_you_mean(key, ROW_KEYS, what="keys of a row")
    return hint if nearest(key, ROW_KEYS) else f"{hint}; settings of the plugin go under `config`"


def _row_id(text: str, where: str, path: str) -> str:
    name = text.removeprefix("./")
    if not ROW_ID.fullmatch(name):
        raise ConfigKeyError(where, path, f"{text!r} is no usable row id", hint="give it an `id`")
    return name


def check_shape(
    data: JsonObject, where: Where, *, seam_keys: Callable[[], tuple[str, ...]]
) -> None:
    """Check the keys of one normalised layer and the kinds of their values.

    Args:
        data: The layer after interpolation, with rows by id.
        where: Names the place of a path.
        seam_keys: Returns the service keys some installed wheel provides.

    Raises:
        ConfigKeyError: Names the first key that is wrong.
    """
    for key, value in data.items():
        check = _CHECKS.get(key)
        if check is not None:
            check(value, where)
        elif key in seam_keys():
            _mapping(value, where, (key,))
        else:
            raise _unknown_key(key, where, seam_keys())


def _unknown_key(key: str, where: Where, seams: tuple[str, ...]) -> ConfigKeyError:
    # a plugin's name at the top is the commonest slip; discovery is loaded by now
    from dsh.core import entry_points

    if any(point.name == key for point in entry_points("dsh.plugins")):
        hint = f"settings of a plugin belong in its row: plugins: [{{use: {key}, config: {{...}}}}]"
    else:
        hint = did_you_mean(key, (*TOP_KEYS, *seams), what="keys of a deployment")
    return ConfigKeyError(where((key,)), key, "unknown key", hint=hint)


def _version(value: JsonValue, where: Where) -> None:
    if value != VERSION or isinstance(value, bool):
        raise ConfigKeyError(
            where(("version",)),
            "version",
            f"this dsh reads format version {VERSION}, not {value!r}",
            hint="install the dsh that wrote the file, or rewrite it",
        )


def _text(key: str) -> Callable[[JsonValue, Where], None]:
    def check(value: JsonValue, where: Where) -> None:
        if not isinstance(value, str) or not value.strip():
            raise ConfigKeyError(where((key,)), key, "must be a non-empty string")

    return check


def _bundle(value: JsonValue, where: Where) -> None:
    if value is not None and not (isinstance(value, str) and value):
        raise ConfigKeyError(
            where(("bundle",)), "bundle", "must be the name of a bundle, or null for none"
        )


def _limits(value: JsonValue, where: Where) -> None:
    for key, item in _mapping(value, where, ("limits",)).items():
        path: KeyPath = ("limits", key)
        limit = LIMITS.get(key)
        if limit is None:
            raise ConfigKeyError(
                where(path),
                ".".join(path),
                "unknown limit",
                hint=did_you_mean(key, LIMITS, what="limits"),
            )
        if not limit.takes(item):
            kind = "a positive whole number" if limit.whole else "a positive number of seconds"
            raise ConfigKeyError(where(path), ".".join(path), f"must be {kind}, not {item!r}")


def _seams(value: JsonValue, where: Where) -> None:
    for key, item in _mapping(value, where, ("seams",)).items():
        if item is not None and (not isinstance(item, str) or not item):
            raise ConfigKeyError(
                where(("seams", key)),
                f"seams.{key}",
                "must be the name of a provider, or null for no choice",
            )


def _plugins(value: JsonValue, where: Where) -> None:
    for row_id, item in _mapping(value, where, ("plugins",)).items():
        row = _mapping(item, where, ("plugins", row_id))
        for key, field in row.items():
            path: KeyPath = ("plugins", row_id, key)
            if key == "use":
                good, kind = isinstance(field, str) and bool(field), "the name of a plugin"
            elif key == "config":
                good, kind = field is None or isinstance(field, dict), "a mapping"
            elif key == "disabled":
                good, kind = isinstance(field, bool) or field in ("true", "false"), "true or false"
            else:
                raise ConfigKeyError(
                    where(path),
                    ".".join(path),
                    "a row has no such key",
                    hint=did_you_mean(key, ROW_KEYS, what="keys of a row"),
                )
            if not good:
                raise ConfigKeyError(where(path), ".".join(path), f"must be {kind}")


def _agent(value: JsonValue, where: Where) -> None:
    _mapping(value, where, ("agent",))


def _mapping(value: JsonValue, where: Where, path: KeyPath) -> JsonObject:
    if not isinstance(value, dict):
        raise ConfigKeyError(where(path), ".".join(path), "must be a mapping")
    return value


def _at(label: str, lines: Mapping[KeyPath, int], path: KeyPath) -> str:
    line = lines.get(path)
    return label if line is None else f"{label}, line {line}"


_CHECKS: Final = cast(
    "dict[str, Callable[[JsonValue, Where], None]]",
    {
        "agent": _agent,
        "bundle": _bundle,
        "effort": _text("effort"),
        "limits": _limits,
        "model": _text("model"),
        "plugins": _plugins,
        "seams": _seams,
        "version": _version,
    },
)
