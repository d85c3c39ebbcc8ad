"""JSON Schema: what is wrong with a value, and what is wrong with a schema."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from dsh.core.json_schema import faults, violations

# --- values ---------------------------------------------------------------------------------

SERVERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "a path"},
        "mode": {"type": "string", "enum": ["r", "w"], "default": "r"},
        "limit": {"type": "integer"},
        "ratio": {"type": "number"},
        "force": {"type": "boolean"},
        "servers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"host": {"type": "string"}, "port": {"type": "number"}},
                "required": ["host"],
            },
        },
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["path"],
}


# case: T-26
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "a"}, []),
        ({"path": "a", "extra": object}, []),
        ({}, ['missing required property "path"']),
        ({"path": None}, ['"path" must be a string']),
        ({"path": 1}, ['"path" must be a string']),
        ({"path": "a", "mode": "x"}, ['"mode" must be one of ["r", "w"]']),
        ({"path": "a", "limit": 1.5}, ['"limit" must be an integer']),
        ({"path": "a", "limit": 2.0}, []),
        ({"path": "a", "limit": True}, ['"limit" must be an integer']),
        ({"path": "a", "ratio": True}, ['"ratio" must be a number']),
        ({"path": "a", "ratio": 1}, []),
        ({"path": "a", "ratio": float("nan")}, ['"ratio" must be a number']),
        ({"path": "a", "force": 1}, ['"force" must be a boolean']),
        ({"path": "a", "servers": {}}, ['"servers" must be an array']),
        (
            {"mode": 3, "servers": [{"host": "h"}, {"port": "80"}, 7]},
            [
                'missing required property "path"',
                '"mode" must be a string',
                'missing required property "servers[1].host"',
                '"servers[1].port" must be a number',
                '"servers[2]" must be an object',
            ],
        ),
        ({"path": "a", "env": {"A": "1", "B": 2}}, ['"env.B" must be a string']),
        ([], ['"value" must be an object']),
        ("text", ['"value" must be an object']),
        (None, ['"value" must be an object']),
        (object(), ['"value" must be an object']),
    ],
)
def test_violations_name_the_place(arguments: object, expected: list[str]) -> None:
    assert violations(SERVERS, arguments) == expected


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"minimum": 1}, 0, '"x" must be at least 1'),
        ({"maximum": 1}, 2, '"x" must be at most 1'),
        ({"exclusiveMinimum": 0}, 0, '"x" must be greater than 0'),
        ({"exclusiveMaximum": 0}, 0, '"x" must be less than 0'),
        ({"multipleOf": 5}, 7, '"x" must be a multiple of 5'),
        ({"multipleOf": 0.1}, 0.3, None),
        ({"minLength": 1}, "", '"x" must have at least 1 character'),
        ({"maxLength": 2}, "abc", '"x" must have at most 2 characters'),
        ({"pattern": "^a"}, "b", '"x" must match the pattern "^a"'),
        ({"pattern": "("}, "b", None),
        ({"minItems": 2}, [1], '"x" must have at least 2 items'),
        ({"uniqueItems": True}, [1, 1.0], '"x" must not repeat items'),
        ({"uniqueItems": True}, [1, True], None),
        ({"const": "a"}, "b", '"x" must be "a"'),
        ({"const": 1}, True, '"x" must be 1'),
        ({"enum": [1, None]}, True, '"x" must be one of [1, null]'),
        ({"enum": [1]}, {"a": 1}, None),
        ({"type": ["string", "null"]}, 1, '"x" must be a string or null'),
        ({"type": ["string", "array", "object"]}, 1, '"x" must be a string, an array or an object'),
        ({"type": "unheard-of"}, 1, None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5, '"x" must be a string or null'),
        (
            {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]},
            "a",
            '"x" must have at least 2 characters',
        ),
        ({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3, '"x" has none of the allowed forms'),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, None),
        ({"not": {"type": "string"}}, "a", '"x" has a form that is excluded'),
        ({"not": {"type": "string"}}, 1, None),
        ({"maxProperties": 1}, {"a": 1, "b": 1}, '"x" must have at most 1 property'),
        ({"minProperties": 2}, {"a": 1}, '"x" must have at least 2 properties'),
        ({"patternProperties": {"^n": {"type": "null"}}}, {"n": 1}, '"x.n" must be null'),
        ({"patternProperties": {"(": {"type": "null"}}}, {"n": 1}, '"x.n" must be null'),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1.0}], '"x" must not repeat items'),
        ({"additionalProperties": False}, {"a": 1}, None),
        ({"allOf": [{}, {"minLength": 2}]}, "a", '"x" must have at least 2 characters'),
        ({"prefixItems": [True], "items": {"type": "null"}}, ["a", 1], '"x[1]" must be null'),
        ({"$ref": "#/$defs/word"}, 5, '"x" must be a string'),
        ({"$ref": "#/$defs/missing"}, 5, None),
        ({"$ref": "https://example.org/schema"}, 5, None),
        ({"$ref": "#/$defs/loop"}, 5, None),
        (False, 5, '"x" is not allowed'),
        (True, 5, None),
        (7, 5, None),
    ],
)  # fmt: skip
def test_keywords(schema: Any, value: Any, expected: str | None) -> None:
    root: dict[str, Any] = {
        "type": "object",
        "properties": {"x": schema},
        "$defs": {"word": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}},
    }
    assert violations(root, {"x": value}) == ([] if expected is None else [expected])


def test_a_tag_picks_the_alternative_that_is_reported() -> None:
    root: dict[str, Any] = {
        "properties": {
            "shape": {
                "discriminator": {
                    "propertyName": "kind",
                    "mapping": {"circle": "#/$defs/Circle", "box": "#/$defs/Box"},
                },
                "oneOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Box"}],
            }
        },
        "$defs": {
            "Circle": {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                "required": ["kind", "radius"],
            },
            "Box": {
                "type": "object",
                "properties": {"kind": {"const": "box"}, "side": {"type": "number"}},
                "required": ["kind", "side"],
            },
        },
    }
    assert violations(root, {"shape": {"kind": "box", "side": 1}}) == []
    assert violations(root, {"shape": {"kind": "box", "side": "1"}}) == [
        '"shape.side" must be a number'
    ]
    assert violations(root, {"shape": {"kind": "star"}}) == [
        '"shape" has none of the allowed forms'
    ]
    assert violations(root, {"shape": 5}) == ['"shape" must be an object']


# case: T-26
def test_defaults_are_not_applied() -> None:
    arguments: dict[str, Any] = {"path": "a"}
    assert violations(SERVERS, arguments) == []
    assert arguments == {"path": "a"}


def test_the_number_of_violations_is_limited() -> None:
    schema: dict[str, Any] = {"properties": {"x": {"items": {"type": "string"}}}}
    found = violations(schema, {"x": [1] * 10_000})
    assert len(found) == 51
    assert found[-1] == "and more"


def test_recursive_schemas_end() -> None:
    node: dict[str, Any] = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "null"}]}},
    }
    value: dict[str, Any] = {"next": 5}
    for _ in range(40):
        value = {"next": value}
    assert "too large" in violations(node, value)[-1]
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"next": deep}
    simple: dict[str, Any] = {"properties": {"next": {"$ref": "#"}}}
    assert "nested too deeply" in violations(simple, deep)[-1]


class Hostile:
    """Raises from whatever is asked of it."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        return hash("path")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")


# case: T-26
def test_hostile_objects_are_only_violations() -> None:
    assert violations(SERVERS, Hostile()) == ['"value" must be an object']
    assert violations(SERVERS, {"path": Hostile()}) == ['"path" must be a string']
    assert violations(SERVERS, {Hostile(): 1}) == ['"value" cannot be checked (RuntimeError)']
    circle: dict[str, Any] = {"path": "a"}
    circle["env"] = circle
    assert violations(SERVERS, circle) == ['"env.env" must be a string']


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_ANYTHING = st.recursive(
    _SCALARS | st.binary(max_size=3) | st.just(Hostile),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=15,
)
_KEYWORDS = st.sampled_from(
    ["type", "enum", "const", "required", "properties", "items", "prefixItems", "anyOf", "oneOf"]
) | st.sampled_from(
    [
        "additionalProperties",
        "allOf",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "$ref",
        "$defs",
        "discriminator",
        "patternProperties",
        "maxProperties",
        "default",
    ]
)
_TYPES = st.sampled_from(["string", "object", "array", "integer", "number", "boolean", "null"])
_SCHEMAS = st.recursive(
    st.booleans() | st.fixed_dictionaries({"type": _TYPES}),
    lambda inner: st.dictionaries(
        _KEYWORDS,
        inner
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | _TYPES
        | st.just("#")
        | _ANYTHING,
        max_size=4,
    ),
    max_leaves=10,
)


# case: T-26
@given(_SCHEMAS, _ANYTHING)
@settings(max_examples=300)
def test_the_check_is_total(schema: Any, value: Any) -> None:
    root: dict[str, Any] = {"properties": {"x": schema}, "anyOf": [schema, schema]}
    found = violations(root, {"x": value}) + violations({"allOf": [schema]}, value)
    assert all(isinstance(text, str) and text for text in found)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)


def _schema_of(value: Any) -> dict[str, Any]:
    """A schema made of a value, which that value has to fit."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        properties = {key: _schema_of(item) for key, item in items.items()}
        return {"type": "object", "properties": properties, "required": list(items)}
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        return {"type": "array", "prefixItems": [_schema_of(item) for item in parts]}
    match value:
        case None:
            return {"type": "null"}
        case bool():
            return {"type": "boolean", "const": value}
        case str():
            return {"type": "string", "enum": ["other", value], "minLength": len(value)}
        case int():
            return {"type": "integer", "minimum": value, "maximum": value}
        case _:
            return {"type": "number", "const": value}


@given(st.dictionaries(st.text(max_size=4), _JSON, max_size=4))
def test_a_value_fits_its_own_schema(value: dict[str, Any]) -> None:
    schema = _schema_of(value)
    assert violations(schema, value) == []
    assert violations(schema, json.loads(json.dumps(value))) == []
    for key in value:
        rest = {name: item for name, item in value.items() if name != key}
        assert len(violations(schema, rest)) == 1


# --- strictly -------------------------------------------------------------------------------

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
        # no constraints: `faults` is what refuses such schemas
        ({"$ref": "#/$defs/missing"}, 1, True),
        ({"$ref": "https://example.org/schema"}, 1, True),
        ({"$ref": "#"}, 1, True),
        ({"type": "no such type"}, 1, True),
        ({"unknown": "keyword"}, 1, True),
        ({}, {"anything": [1]}, True),
    ],
)
def test_strictly(schema: dict[str, Any], value: Any, fits: bool) -> None:
    assert (violations(schema, value, strict=True) == []) is fits


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"a": 1, "b": {"c": 2}},
            'unknown property "x.b"',
        ),
        (
            {"patternProperties": {"^n_": {}}, "additionalProperties": False},
            {"n_a": 1, "m": 1},
            'unknown property "x.m"',
        ),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 2}, {"minimum": 9}]},
            3,
            '"x" fits 2 of the forms, of which it must fit one',
        ),
        ({"enum": [{"a": [1]}]}, {"a": [1.0]}, None),
        ({"enum": [{"a": [1]}]}, {"a": [True]}, '"x" must be one of [{"a": [1]}]'),
        ({"const": []}, [1], '"x" must be []'),
    ],
)  # fmt: skip
def test_what_only_the_strict_check_refuses(schema: Any, value: Any, expected: str | None) -> None:
    root: dict[str, Any] = {"properties": {"x": schema}}
    assert violations(root, {"x": value}) == []
    assert violations(root, {"x": value}, strict=True) == ([] if expected is None else [expected])


@given(_SCHEMAS, _ANYTHING)
@settings(max_examples=200)
def test_what_fits_strictly_fits(schema: Any, value: Any) -> None:
    root: dict[str, Any] = {"allOf": [schema], "anyOf": [schema, {"type": "null"}]}
    if not violations(root, value, strict=True):
        assert violations(root, value) == []


def test_the_value_has_the_name_it_is_given() -> None:
    assert violations({"items": {"type": "null"}}, [None, 1], root="answer") == [
        '"answer[1]" must be null'
    ]
    assert violations({"type": "null"}, 1, root="answer") == ['"answer" must be null']


def test_an_option_that_fails_at_length_leaves_the_others_a_chance() -> None:
    schema = {"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "integer"}}]}
    assert violations(schema, [1] * 1_000) == []


def test_a_reference_does_not_hide_the_keywords_beside_it() -> None:
    schema = {"$ref": "#/$defs/n", "minimum": 3, "$defs": {"n": {"type": "integer"}}}
    assert violations(schema, 2) == ['"value" must be at least 3']
    assert violations(schema, "2") == ['"value" must be an integer']


# --- schemas --------------------------------------------------------------------------------


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
    assert faults(schema) == []


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
    assert faults(schema) == []
    assert violations({"$ref": "#/x/0", "x": [{"type": "integer"}]}, "a") != []


@given(value=_JSON)
def test_nothing_breaks_the_search(value: Any) -> None:
    for keyword in ("type", "$ref", "pattern", "enum", "required", "items", "anyOf", "properties"):
        faults({keyword: value})
