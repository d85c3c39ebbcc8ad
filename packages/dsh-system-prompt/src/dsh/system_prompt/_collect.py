"""Collects what the layers of a scope contribute to one assembly."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TypeVar, cast

from dsh.core import JsonValue, ScopedLayers
from dsh.llm import ToolSchema
from dsh.system_prompt._layer import Layer
from dsh.system_prompt._types import (
    AssembleContext,
    AssembledSection,
    ToolProviderResult,
)
from dsh.system_prompt.errors import PromptError

__all__ = ["collect_sections", "collect_tools", "collect_variables", "copy_schema"]

J = TypeVar("J", bound="JsonValue")


def collect_variables(
    layers: ScopedLayers[Layer], context: AssembleContext
) -> dict[str, str | None]:
    """Evaluate the variables a scope sees; one that a nearer layer replaces is never called."""
    values: dict[str, str | None] = {}
    seen = layers.merge(context.scope, lambda layer: layer.variables.entries)
    for name, provider in seen.items():
        value = provider(context) if callable(provider) else provider
        values[name] = None if value is None else _text(value, f"variable {name!r}")
    return values


def collect_sections(
    layers: ScopedLayers[Layer], context: AssembleContext
) -> list[AssembledSection]:
    """Resolve the sections a scope sees, sorted by order; ties stay as registered."""
    sections: list[AssembledSection] = []
    seen = layers.merge(context.scope, lambda layer: layer.sections.entries)
    for section in seen.values():
        text = section.text(context) if callable(section.text) else section.text
        text = _text(text, f"text of section {section.name!r}")
        sections.append(AssembledSection(section.name, section.order, text))
    sections.sort(key=lambda section: section.order)
    return sections


def collect_tools(
    layers: ScopedLayers[Layer], context: AssembleContext
) -> tuple[list[ToolSchema], set[str]]:
    """Ask every tool provider of a scope.

    Returns:
        Copies of the offered schemas in order of collection, and every known name.
    """
    # who is asked is settled before the first one is asked
    providers = [p for layer in layers.chain(context.scope) for p in layer.providers]
    tools: list[ToolSchema] = []
    known: set[str] = set()
    for provider in providers:
        result = provider(context)
        if isinstance(result, ToolProviderResult):
            copies = _copies(result.schemas)
            names = result.known_names
        else:
            copies = _copies(result)
            names = None
        tools.extend(copies)
        known.update([tool.name for tool in copies] if names is None else names)
    return tools, known


def copy_schema(schema: ToolSchema) -> ToolSchema:
    """Return a schema that shares nothing mutable with `schema`."""
    return ToolSchema(schema.name, schema.description, _copy(schema.parameters))


def _copy(value: J) -> J:
    plain: JsonValue = value
    if isinstance(plain, dict):
        return cast("J", {key: _copy(item) for key, item in plain.items()})
    if isinstance(plain, list):
        return cast("J", [_copy(item) for item in plain])
    return value


def _copies(schemas: object) -> list[ToolSchema]:
    if not isinstance(schemas, Sequence):
        raise _bad("what a tool provider returned", schemas, "a sequence of tool schemas")
    copies: list[ToolSchema] = []
    for schema in cast("Sequence[object]", schemas):
        if not isinstance(schema, ToolSchema):
            raise _bad("what a tool provider returned", schema, "a tool schema")
        copies.append(copy_schema(schema))
    return copies


def _text(value: object, what: str) -> str:
    if isinstance(value, str):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise _bad(what, value, "a text")


def _bad(what: str, value: object, wanted: str) -> PromptError:
    return PromptError(
        f"{what} is a {type(value).__name__}, not {wanted}", code=PromptError.BAD_ASSEMBLY
    )
