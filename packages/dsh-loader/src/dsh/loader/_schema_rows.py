"""The schema of a row of `plugins`."""

from __future__ import annotations

from typing import Final

from dsh.core.json import JsonObject, JsonValue
from dsh.loader._schema_forms import EXPRESSION_REF, Overlays, reference
from dsh.loader._schema_plugins import Installed
from dsh.loader._shape import ROW_ID

_ROW_ID: Final = rf"^(\./)?({ROW_ID.pattern})$"
_KNOWN: Final[list[JsonValue]] = [
    {"$ref": "#/$defs/plugin"},
    {"$ref": "#/$defs/code"},
    {"$ref": EXPRESSION_REF},
]
"""What `use` may name: something installed, or code that is named outright."""


def row_schema(installed: Installed, overlays: Overlays) -> JsonObject:
    """Return the schema of a row, in its short form and its long one.

    Args:
        installed: The plugins it can name.
        overlays: Where the schemas of their settings are.
    """
    name: JsonObject = {"type": "string", "pattern": _ROW_ID, "anyOf": _KNOWN}
    return {"anyOf": [name, _long_row(installed, overlays)]}


def _long_row(installed: Installed, overlays: Overlays) -> JsonObject:
    disabled: JsonObject = {
        "properties": {"disabled": {"enum": [True, "true"]}},
        "required": ["disabled"],
    }
    without_id: JsonObject = {"not": {"required": ["id"]}}
    return {
        "type": "object",
        "properties": {
            "use": {
                "description": "An installed plugin, `module:attribute`, or a file beside this "
                "one (`./mine.py`, `./mine.py:Name`).",
                "anyOf": [{"$ref": "#/$defs/plugin"}, {"type": "string", "minLength": 1}],
            },
            "id": {
                "description": "The row's identity across layers; `use` if not given.",
                "type": "string",
                "pattern": _ROW_ID,
            },
            "config": {"description": "Settings of the plugin.", "type": ["object", "null"]},
            "disabled": {
                "description": "Do not mount it.",
                "anyOf": [
                    {"type": "boolean"},
                    {"enum": ["true", "false"]},
                    {"$ref": EXPRESSION_REF},
                ],
            },
        },
        "additionalProperties": False,
        "anyOf": [{"required": ["use"]}, {"required": ["id"]}],
        "allOf": [
            {"if": disabled, "else": {"properties": {"use": {"anyOf": _KNOWN}}}},
            {"if": without_id, "then": {"properties": {"use": {"pattern": _ROW_ID}}}},
            *_row_rules(installed, overlays),
        ],
    }


def _row_rules(installed: Installed, overlays: Overlays) -> list[JsonValue]:
    """Return which settings `config` takes, by the plugin that the row names."""
    providers = {item.name for seam in installed.seams for item in seam.providers}
    rules: list[JsonValue] = []
    for plugin in installed.plugins:
        overlay = overlays.of(plugin.definition)
        # a provider may get the rest from the section of its service, a row by id from below
        whole = overlay if plugin.name in providers else plugin.definition
        used: JsonObject = {"properties": {"use": {"const": plugin.name}}, "required": ["use"]}
        by_id: JsonObject = {
            "properties": {"id": {"const": plugin.name}},
            "required": ["id"],
            "not": {"required": ["use"]},
        }
        if whole == overlay:
            rules.append({"if": {"anyOf": [used, by_id]}, "then": _config(overlay)})
        else:
            rules.append({"if": used, "then": _config(whole)})
            rules.append({"if": by_id, "then": _config(overlay)})
    return rules


def _config(definition: str) -> JsonObject:
    return {"properties": {"config": {"anyOf": [{**reference(definition)}, {"type": "null"}]}}}
