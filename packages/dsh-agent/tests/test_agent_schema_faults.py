"""Finding what is wrong with a schema itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dsh.agent._schema import violations
from dsh.agent._schema_faults import faults


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["string", "null"], "pattern": "^a", "unknown": {"type": "anything"}},
        {"properties": {"type": {"type": "string"}, "$ref": {"type": "integer"}}},
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": True}},
        {"properties": {"next": {"$ref": "#"}}},
        {"items": [{"type": "string"}], "additionalProperties": False},
        {"enum": [{"type": "strng"}], "const": {"$ref": "#/nowhere"}, "minLength": 1},
        Tree.model_json_schema(),
    ],
)
def test_sound_schemas_have_no_faults(schema: dict[str, Any]) -> None:
    assert faults(schema) == ()


@pytest.mark.parametrize(
    ("schema", "start"),
    [
        ({"type": "strng"}, '#/type names no type: "strng" (there are string,'),
        ({"type": ["string", 1]}, "#/type names no type: 1"),
        ({"type": []}, "#/type names no type: []"),
        ({"$ref": "#/$defs/x"}, '#/$ref points at nothing in the schema: "#/$defs/x"'),
        ({"$ref": "https://example.org/s"}, "#/$ref points at nothing"),
        ({"$ref": "#anchor"}, "#/$ref points at nothing"),
        ({"$ref": 1}, "#/$ref must be a text"),
        ({"$ref": "#"}, "#/$ref leads back to itself"),
        ({"$ref": "#/x", "x": {"type": "strng"}}, "#/x/type names no type"),
        ({"pattern": "("}, '#/pattern is no valid regular expression: "("'),
        ({"pattern": 1}, "#/pattern must be a regular expression"),
        ({"patternProperties": {"[": {}}}, "#/patternProperties/[ is no valid"),
        ({"anyOf": [{}, {"type": "x"}]}, "#/anyOf/1/type names"),
        ({"anyOf": {}}, "#/anyOf must be an array of schemas"),
        ({"properties": []}, "#/properties must be an object of schemas"),
        ({"properties": {"a/b": {"items": "string"}}}, "#/properties/a~1b/items must be a schema"),
        ({"required": "a"}, "#/required must be an array of names"),
        ({"enum": "a"}, "#/enum must be an array"),
        ({"minimum": "1"}, "#/minimum must be a number"),
        ({"minLength": 1.5}, "#/minLength must be an integer"),
    ],
)
def test_a_fault_names_its_place(schema: dict[str, Any], start: str) -> None:
    (fault,) = faults(schema)
    assert fault.startswith(start)


def test_references_into_arrays_are_followed() -> None:
    schema = {"anyOf": [{"type": "integer"}], "items": {"$ref": "#/anyOf/0"}}
    assert faults(schema) == ()
    assert violations({"$ref": "#/x/0", "x": [{"type": "integer"}]}, "a") != ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(value=JSON)
def test_nothing_breaks_the_search(value: Any) -> None:
    for keyword in ("type", "$ref", "pattern", "enum", "required", "items", "anyOf", "properties"):
        faults({keyword: value})
