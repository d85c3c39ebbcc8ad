"""The JSON Schema of a deployment file, for editors: what `dsh.yaml` may say here and now.

It imports every installed plugin, so nothing that starts an agent may load this module.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final, cast

from dsh.core import PluginLike
from dsh.core.json import JsonObject, JsonValue
from dsh.loader._bundles import choose_bundle
from dsh.loader._schema_forms import (
    EXPRESSION,
    EXPRESSION_REF,
    SOUND,
    TEXT,
    Overlays,
    as_written,
    merged,
    reference,
)
from dsh.loader._schema_plugins import (
    Described,
    Installed,
    Report,
    Seam,
    describe,
    describe_installed,
)
from dsh.loader._schema_rows import row_schema
from dsh.loader._shape import LIMITS, VERSION
from dsh.loader.errors import SeamError

__all__ = ["DIALECT", "deployment_schema", "settings_schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of the schemas made here."""

_CODE: Final = r"^[./~]|^[^$]*:|\.py$"
logger = logging.getLogger("dsh.loader")


def settings_schema(plugin: PluginLike) -> JsonObject:
    """Return the JSON Schema of the settings of a plugin, with the texts under its fields.

    It describes the values that the plugin's `Config` takes, without the expressions that may
    stand for them in a file. A plugin without a `Config` takes no fields; a function without one
    takes any.

    Args:
        plugin: A plugin class or function.
    """
    described = describe("", plugin)
    definitions = cast("JsonObject", described.definitions)
    return {**described.settings, **({"$defs": definitions} if definitions else {})}


def deployment_schema(
    *, app: str | None = None, wheels: Collection[str] | None = None, report: Report | None = None
) -> JsonObject:
    """Return the JSON Schema (2020-12) of a deployment file with what is installed.

    It takes every file that the loader takes, and refuses unknown keys, plugins and fields,
    values of the wrong kind and those beyond their limits. It is stricter in what is no use to
    anybody: a number for a truth value or the reverse, settings of a provider that is not in use
    or of a disabled row. What a variable holds, how large a number in a text is and what only a
    plugin's own checks can find stays for the start. A file is one layer of several, so a field
    that is required may be left out where it can come from another.

    Args:
        app: Name of the app whose default bundle `agent` belongs to.
        wheels: The distributions whose plugins count; all that are installed if not given.
        report: Told, in one sentence each, which plugins do not import and are left out; without
            it they are logged.
    """
    installed = describe_installed(wheels, report or _log)
    definitions = _definitions(installed)
    overlays = Overlays(definitions)
    schema: JsonObject = {
        "$schema": DIALECT,
        "title": "dsh.yaml",
        "description": "A deployment of dsh: which model, which plugins, which settings.",
        "type": ["object", "null"],
        "properties": cast("JsonObject", _keys(installed, overlays)),
        "additionalProperties": False,
        "allOf": _agent_rules(installed, overlays, app),
    }
    definitions["row"] = row_schema(installed, overlays)
    schema["$defs"] = {name: definitions[name] for name in sorted(definitions)}
    return schema


def _log(message: str) -> None:
    logger.warning("left out of the schema: %s", message)


# -- what is referred to -------------------------------------------------------------------------


def _definitions(installed: Installed) -> dict[str, JsonObject]:
    found: dict[str, JsonObject] = {
        "expression": {
            "type": "string",
            "pattern": EXPRESSION,
            "description": "`${env:NAME}`, `${env:NAME:-default}` or `${file:path}`.",
        },
        "text": {
            "pattern": SOUND,
            "patternErrorMessage": "A ${ without an expression: write ${env:NAME}, "
            "${env:NAME:-default} or ${file:path}; $${ is a literal ${.",
        },
        "code": {
            "type": "string",
            "pattern": _CODE,
            "description": "`module:attribute`, or a file beside this one: `./mine.py`, "
            "`./mine.py:Name`.",
        },
        "plugin": _names(installed.plugins),
    }
    seams = (provider for seam in installed.seams for provider in seam.providers)
    for item in (*installed.plugins, *installed.bundles, *seams):
        found[item.definition] = as_written(item.settings)
        found.update({name: as_written(part) for name, part in item.definitions.items()})
    return found


def _names(plugins: tuple[Described, ...]) -> JsonObject:
    if not plugins:
        return {"not": {}}
    return {
        "type": "string",
        "anyOf": [{"const": item.name, "description": item.text} for item in plugins],
    }


# -- the keys at the top -------------------------------------------------------------------------


def _keys(installed: Installed, overlays: Overlays) -> dict[str, JsonObject]:
    keys = _fixed_keys(installed)
    for seam in installed.seams:
        keys[seam.key] = _section(seam, overlays)
    keys["plugins"] = {
        "description": "Plugins to mount, in any order: a name, or a mapping with `use`. Rows of "
        "several layers merge by `id`.",
        "type": ["array", "null"],
        "items": {"$ref": "#/$defs/row"},
        "uniqueItems": True,
    }
    return keys


def _fixed_keys(installed: Installed) -> dict[str, JsonObject]:
    return {
        "version": {"description": "The version of this format.", "const": VERSION},
        "model": {
            "description": "The default model: `provider/model`, or a bare name that one provider "
            "declares.",
            "type": "string",
            "pattern": r"\S",
            **TEXT,
        },
        "effort": {
            "description": "The default reasoning effort, one that the model declares.",
            "type": "string",
            "pattern": r"\S",
            **TEXT,
        },
        "limits": {
            "description": "Bounds on a turn or a run; what is not given is not bounded.",
            "type": "object",
            "properties": _limits(),
            "additionalProperties": False,
        },
        "bundle": {
            "description": "The plugin that mounts the spine; null for none.",
            "anyOf": [
                _names(installed.bundles),
                {"type": "null"},
                {"$ref": "#/$defs/code"},
                {"$ref": EXPRESSION_REF},
            ],
        },
        "agent": {"description": "Settings of the bundle.", "type": "object"},
        "seams": {
            "description": "Which provider serves a service, by its key; only needed to choose. "
            "Null takes back what a lower layer names.",
            "type": "object",
            "properties": {seam.key: _choice(seam) for seam in installed.seams},
            "additionalProperties": False,
        },
    }


def _limits() -> JsonObject:
    return {
        name: {
            "description": limit.text,
            "type": "integer" if limit.whole else "number",
            "exclusiveMinimum": 0,
        }
        for name, limit in LIMITS.items()
    }


def _choice(seam: Seam) -> JsonObject:
    names: list[JsonValue] = [
        {"const": name, "description": provider.text}
        for provider in seam.providers
        for name in seam.names_of(provider)
    ]
    return {"description": seam.text, "anyOf": [*names, {"type": "null"}, {"$ref": EXPRESSION_REF}]}


def _section(seam: Seam, overlays: Overlays) -> JsonObject:
    """Return the settings of a service: shared fields, and each provider's under its name."""
    described = f"Settings of the service `{seam.key}`. {seam.text}".strip()
    section: JsonObject = {"description": described, "type": "object"}
    if not seam.providers:
        return section
    fields: dict[str, list[JsonObject]] = {}
    for provider in seam.providers:
        for name, field in provider.fields.items():
            assert isinstance(field, dict)  # a schema of ours
            own = name not in provider.shared
            fields.setdefault(name, []).append(_misplaced(seam, provider, field) if own else field)
    properties: JsonObject = {name: as_written(merged(kinds)) for name, kinds in fields.items()}
    for provider in seam.providers:
        for name in seam.names_of(provider):
            properties[name] = {
                "description": f"Settings of `{provider.name}` alone. {provider.text}",
                "type": "object",
                **reference(overlays.of(provider.definition)),
            }
    section["properties"] = properties
    if not any(provider.is_open for provider in seam.providers):
        section["additionalProperties"] = False
    return section


def _misplaced(seam: Seam, provider: Described, field: JsonObject) -> JsonObject:
    """Return a field that works at the top only while its provider is the one in use."""
    short = seam.names_of(provider)[0]
    told = f"Only {provider.name} has it: write it under `{short}`, and the file survives a swap."
    return {**field, "deprecated": True, "deprecationMessage": told}


def _agent_rules(installed: Installed, overlays: Overlays, app: str | None) -> list[JsonValue]:
    """Return which settings `agent` takes, by the bundle that is named or would be picked."""
    usual = _usual_bundle(app)
    rules: list[JsonValue] = []
    for bundle in installed.bundles:
        named: JsonObject = {
            "properties": {"bundle": {"const": bundle.name}},
            "required": ["bundle"],
        }
        absent: JsonObject = {"not": {"required": ["bundle"]}}
        condition: JsonObject = {"anyOf": [named, absent]} if bundle.name == usual else named
        takes: JsonObject = {"agent": {**reference(overlays.of(bundle.definition))}}
        rules.append({"if": {"type": "object", **condition}, "then": {"properties": takes}})
    return rules or [{}]


def _usual_bundle(app: str | None) -> str | None:
    try:
        return choose_bundle(app=app).provider.name
    except SeamError:
        return None  # several are as good, or there is none: a file has to name one
