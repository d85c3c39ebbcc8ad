"""What a project file may say that nobody trusts yet."""

from __future__ import annotations

from typing import Any

from dsh.core.json import JsonObject, JsonValue
from dsh.loader._choice import installed_seam_keys
from dsh.loader._shape import LIMITS, TOP_KEYS
from dsh.loader._sources import Layer, LayerKind, RawFile, parse_file
from dsh.loader.errors import ConfigFileError


def untrusted_layer(raw: RawFile) -> tuple[Layer | None, str]:
    """Read from a file that nobody trusts only what picks a model or lowers a limit.

    Nothing in it is interpolated, imported or opened, and nothing wrong with it is an error.

    Returns:
        The layer, or `None` if nothing is left, and what was ignored, for the person to read.
    """
    label = str(raw.path)
    try:
        value = parse_file(raw).value
    except ConfigFileError as error:
        return None, f"everything, as it is not readable: {error.detail}"
    assert isinstance(value, dict)  # parse_file returns nothing else
    kept: JsonObject = {}
    for key in ("model", "effort"):
        item = value.get(key)
        if isinstance(item, str) and item.strip() and "${" not in item:
            kept[key] = item
    limits = value.get("limits")
    if isinstance(limits, dict):
        kept["limits"] = {
            key: item for key, item in limits.items() if key in LIMITS and LIMITS[key].takes(item)
        }
    ignored = [key for key in value if key not in kept and key != "version"]
    layer = Layer(LayerKind.PROJECT, label, kept, raw.path, tighten_only=True) if kept else None
    known = sorted(key for key in ignored if key in TOP_KEYS or key in installed_seam_keys())
    others = len(ignored) - len(known)
    if others:
        known.append("1 unknown key" if others == 1 else f"{others} unknown keys")
    return layer, ", ".join(known)


def tightened(source: JsonObject, below: JsonObject) -> JsonObject:
    """Drop the limits that would be higher than what trusted layers say."""
    present = _object(below.get("limits"))
    limits: JsonObject = {}
    for key, value in _object(source.get("limits")).items():
        current = present.get(key)
        numbers = isinstance(current, int | float) and isinstance(value, int | float)
        if not numbers or _lower(value, current):
            limits[key] = value
    result = {k: v for k, v in source.items() if k != "limits"}
    return {**result, "limits": limits} if limits else result


def _lower(value: Any, current: Any) -> bool:
    return bool(value < current)


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
