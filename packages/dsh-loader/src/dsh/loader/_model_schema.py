"""The JSON Schema of a plugin's settings, with the texts of its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from dsh.core.json import JsonObject
from dsh.loader._attribute_docs import attribute_docs, reflow


def model_schema(model: type[BaseModel], prefix: str) -> tuple[JsonObject, dict[str, JsonObject]]:
    """Return the schema of a model and the definitions it refers to.

    Args:
        model: The model.
        prefix: What its definitions are named after: `PREFIX.NAME`.

    Returns:
        The schema, and the definitions by name.
    """
    schema: Any = model.model_json_schema(
        ref_template=f"#/$defs/{prefix}.{{model}}", schema_generator=_Generator
    )
    definitions = schema.pop("$defs", {})
    return schema, {f"{prefix}.{name}": item for name, item in definitions.items()}


class _Generator(GenerateJsonSchema):
    """Adds what pydantic leaves out: texts under attributes, defaults that are made when used."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Say nothing: what has no JSON form is left out of the schema, and that is all."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave titles made up from field names out."""
        return False

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        """Let a type without a JSON Schema take anything, so that the rest is still checked."""
        return {}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a model."""
        cls: type[BaseModel] = schema["cls"]
        return _explained(super().model_schema(schema), cls, cls.model_fields)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Return the schema of a dataclass."""
        cls: type[Any] = schema["cls"]
        fields: Mapping[str, FieldInfo] = getattr(cls, "__pydantic_fields__", {})
        return _explained(super().dataclass_schema(schema), cls, fields)


def _explained(
    schema: JsonSchemaValue, cls: type[Any], fields: Mapping[str, FieldInfo]
) -> JsonSchemaValue:
    schema.pop("title", None)
    if "description" in schema:
        schema["description"] = reflow(schema["description"])
    properties: dict[str, Any] = schema.get("properties", {})
    docs = attribute_docs(cls)
    for name in properties.keys() | fields.keys():
        field = fields.get(name)
        entry = properties.get(_written_name(name, field), properties.get(name))
        if entry is None:
            continue
        if name in docs:
            entry.setdefault("description", docs[name])
        if field is not None and (empty := _empty_default(field)) is not None:
            entry.setdefault("default", empty)
    return schema


def _written_name(name: str, field: FieldInfo | None) -> str:
    if field is None:
        return name
    alias = field.validation_alias if isinstance(field.validation_alias, str) else field.alias
    return name if alias is None else alias


def _empty_default(field: FieldInfo) -> dict[str, object] | list[object] | None:
    """Return the default of a field that starts as an empty collection of its own."""
    made_by: Any = field.default_factory
    kind = get_origin(made_by) or made_by
    if kind is dict:
        return {}
    return [] if kind in {list, tuple, set, frozenset} else None
