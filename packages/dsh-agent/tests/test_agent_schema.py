"""Checking answers against a JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent._schema import violations

POINT: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "tag": {"enum": ["a", "b", 1]}},
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (POINT, {"x": 1}, True),
        (POINT, {"x": 1.0}, True),
        (POINT, {"x": True}, False),
        (POINT, {"x": 1, "tag": "c"}, False),
        (POINT, {"x": 1, "tag": True}, False),
        (POINT, {"x": 1, "extra": 1}, False),
        (POINT, {}, False),
        (POINT, [], False),
        ({"type": ["string", "null"]}, None, True),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 5}, 5, True),
        ({"type": "number", "exclusiveMinimum": 0}, 0, False),
        ({"multipleOf": 0.1}, 0.3, True),
        ({"multipleOf": 3}, 4, False),
        ({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"}, "ab", True),
        ({"pattern": "^a"}, "b", False),
        ({"pattern": "("}, "b", True),
        ({"minLength": 2}, "a", False),
        ({"items": {"type": "string"}, "minItems": 1}, [], False),
        ({"items": {"type": "string"}}, ["a", 1], False),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], True),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], False),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1}], False),
        ({"maxItems": 1}, [1, 2], False),
        ({"minProperties": 1}, {}, False),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, False),
        ({"const": {"a": [1]}}, {"a": [1]}, True),
        ({"const": 1}, 2, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "x", True),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3, False),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 1, True),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 3, False),
        ({"not": {"type": "string"}}, "x", False),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "x", False),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 1, True),
        ({"$ref": "#/$defs/missing"}, 1, False),
        ({"$ref": "https://example.org/schema"}, 1, True),
        ({"$ref": "#"}, 1, False),
        ({"type": "no such type"}, 1, True),
        ({"unknown": "keyword"}, 1, True),
        ({}, {"anything": [1]}, True),
    ],
)
def test_values_are_checked(schema: dict[str, Any], value: Any, fits: bool) -> None:
    assert (violations(schema, value) == ()) is fits


def test_violations_name_the_place_and_are_all_reported() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}, "required": ["b"]}
    assert violations(schema, {"a": ["x", 1, "y"]}) == (
        '$ lacks the property "b"',
        "$.a[0] must be integer, not string",
        "$.a[2] must be integer, not string",
    )


def test_the_report_is_bounded() -> None:
    assert len(violations({"items": {"type": "integer"}}, ["x"] * 100)) == 20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(schema=st.dictionaries(st.text(max_size=8), JSON, max_size=5), value=JSON)
def test_no_schema_and_no_value_breaks_the_check(schema: dict[str, Any], value: Any) -> None:
    violations(schema, value)


@given(value=JSON)
def test_odd_keywords_break_nothing(value: Any) -> None:
    for keyword in (
        "type", "enum", "properties", "required", "additionalProperties", "items", "prefixItems",
        "minItems", "minLength", "pattern", "minimum", "multipleOf", "anyOf", "oneOf", "allOf",
        "not", "$ref", "uniqueItems",
    ):  # fmt: skip
        for subject in ({"a": 1}, [1], "x", 1, None):
            violations({keyword: value}, subject)
