"""Deployments in pages: the plugins they name exist, and their settings fit.

They are held against the JSON Schema that editors get, which is made from what is installed. What
a page writes itself is known from its entry points; settings of that are the page's own business.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from docs_check.blocks import Page
from dsh.core.json import JsonObject, JsonValue
from dsh.loader.schema import deployment_schema

_APP = "cli"
_SCAFFOLD = re.compile(r"^\s*dsh new plugin ([\w-]+)", re.MULTILINE)
_validators: Any = import_module("jsonschema")


@dataclass(frozen=True)
class Own:
    """What a page brings along."""

    plugins: frozenset[str]
    """Names of plugins and bundles."""
    services: frozenset[str]
    """Keys of services that it offers providers of."""

    @classmethod
    def of(cls, page: Page) -> Own:
        """Read the entry points that a page writes, and what it makes with `dsh new plugin`."""
        plugins: set[str] = set()
        services: set[str] = set()
        for block in page.blocks:
            if block.language == "sh":
                plugins |= set(_SCAFFOLD.findall(block.code))
            for group, names in _entry_points(block.code) if block.language == "toml" else ():
                if group.startswith("dsh.seam."):
                    services.add(group.removeprefix("dsh.seam."))
                if group.startswith("dsh."):
                    plugins |= set(names)
        return cls(frozenset(plugins), frozenset(services))


def _entry_points(text: str) -> Iterator[tuple[str, Sequence[str]]]:
    try:
        groups = tomllib.loads(text)["project"]["entry-points"]
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        return
    yield from ((group, list(names)) for group, names in groups.items())


@functools.cache
def _schema() -> Any:
    schema = deployment_schema(app=_APP)
    return _validators.Draft202012Validator(schema)


def misfits(value: JsonObject, own: Own) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the key paths of a deployment at which it does not fit, with what is wrong there."""
    for error in _schema().iter_errors(_known(value, own)):
        worst = _validators.exceptions.best_match([error])
        yield tuple(worst.absolute_path), _told(worst)


def _told(error: Any) -> str:
    path, value = tuple(error.absolute_path), error.instance
    if not isinstance(value, str) or error.validator not in {"anyOf", "const", "enum", "pattern"}:
        return str(error.message)
    if path[0] in {"bundle", "plugins", "seams"} and "config" not in path:
        return f"no installed plugin is called {value!r}, and the page writes none"
    return f"{value!r} is not what this setting takes"


def _known(value: JsonObject, own: Own) -> JsonObject:
    """Return a deployment without what only the page's own plugins can judge."""
    known = {key: part for key, part in value.items() if key not in own.services}
    installed = {*_schema().schema["properties"]}
    known |= {
        key: _section(key, value[key], own) for key in own.services & value.keys() & installed
    }
    if isinstance(rows := known.get("plugins"), list):
        # an own row stays a row, so that positions are those of the page
        known["plugins"] = [
            {"id": f"own-{n}"} if _is_own(row, own) else row for n, row in enumerate(rows)
        ]
    if isinstance(seams := known.get("seams"), dict):
        known["seams"] = {
            key: name
            for key, name in seams.items()
            if key not in own.services or not _is_one_of(key, name, own)
        }
    if isinstance(bundle := known.get("bundle"), str) and bundle in own.plugins:
        known = {key: part for key, part in known.items() if key not in {"bundle", "agent"}}
    return known


def _section(key: str, section: JsonValue, own: Own) -> JsonValue:
    """Return the settings of a service without those of the page's own providers."""
    if not isinstance(section, dict):
        return section
    return {name: part for name, part in section.items() if not _is_one_of(key, name, own)}


def _is_one_of(key: str, name: JsonValue, own: Own) -> bool:
    """Whether a name, in full or without the key of its service, is that of an own plugin."""
    prefix = key.replace("_", "-")
    return isinstance(name, str) and bool({name, f"{prefix}-{name}"} & own.plugins)


def _is_own(row: JsonValue, own: Own) -> bool:
    use = cast("JsonObject", row).get("use") if isinstance(row, dict) else row
    return isinstance(use, str) and use in own.plugins
