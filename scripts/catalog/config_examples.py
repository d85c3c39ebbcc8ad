"""Deployments that show the settings of a plugin in their place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError

Data = Mapping[str, Any]

_SHOWN_FIELDS: Final = 3
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_RESERVED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def example_settings(name: str, model: type[BaseModel] | None, schema: Data) -> dict[str, Any]:
    """Return settings to show: the example of the model, or a few fields with their defaults.

    Args:
        name: Name of the plugin, for messages.
        model: Its configuration.
        schema: The schema of the configuration.

    Raises:
        ValueError: The model does not take them.
    """
    given = schema.get("examples")
    chosen: dict[str, Any] = dict(given[0]) if given else _defaults(schema)
    if model is not None:
        try:
            model.model_validate(chosen)
        except ValidationError as error:
            raise ValueError(
                f"plugin {name!r}: its Config refuses {chosen}: {error.errors()[0]['msg']}; give "
                'it an example: model_config = ConfigDict(json_schema_extra={"examples": [...]})'
            ) from error
    return chosen


def _defaults(schema: Data) -> dict[str, Any]:
    fields: Data = schema.get("properties", {})
    plain = {
        field: about["default"]
        for field, about in fields.items()
        if isinstance(about.get("default"), str | int | float) and about["default"] != ""
    }
    return dict(list(plain.items())[:_SHOWN_FIELDS])


def yaml_block(data: Data) -> str:
    """Return a mapping as a fenced block of YAML.

    Args:
        data: JSON-like values.
    """
    return "\n".join(["```yaml", *_mapping(data, ""), "```"])


def _mapping(data: Data, indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        lines += _entry(f"{indent}{_scalar(key)}:", value, f"{indent}  ")
    return lines


def _entry(head: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [head, *_mapping(cast("Data", value), indent)]
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        return [head, *(line for item in items for line in _item(item, indent))]
    return [f"{head} {_scalar(cast('object', value))}"]


def _item(value: Any, indent: str) -> list[str]:
    if isinstance(value, Mapping) and value:
        first, *rest = _mapping(cast("Data", value), f"{indent}  ")
        return [f"{indent}- {first.lstrip()}", *rest]
    return [f"{indent}- {_scalar(cast('object', value))}"]


def _scalar(value: object) -> str:
    """Return a value in one line; JSON is YAML, so only plain words need no quotes."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(value, ensure_ascii=False)
