"""The argument check: what it says, and that nothing makes it fail or hang."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.tools import Tool
from dsh.tools._schema import violations

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
        ([], ['"arguments" must be an object']),
        ("text", ['"arguments" must be an object']),
        (None, ['"arguments" must be an object']),
        (object(), ['"arguments" must be an object']),
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
        ({"multipleOf": 5}, 10, None),
        ({"multipleOf": 2}, 10**17 + 1, '"x" must be a multiple of 2'),
        ({"multipleOf": 0.1}, 0.3, None),
        ({"multipleOf": 0.1}, 3, None),
        ({"multipleOf": 0.1}, 0.25, '"x" must be a multiple of 0.1'),
        ({"multipleOf": 3}, 2.9999999999999996, None),
        ({"multipleOf": 3}, 2.5, '"x" must be a multiple of 3'),
        ({"multipleOf": 1}, 1e-12, '"x" must be a multiple of 1'),
        ({"multipleOf": 1e-10}, 1e308, None),
        ({"minLength": 1}, "", '"x" must have at least 1 character'),
        ({"maxLength": 2}, "abc", '"x" must have at most 2 characters'),
        ({"pattern": "^a"}, "b", '"x" must match the pattern "^a"'),
        ({"pattern": "("}, "b", None),
        ({"minItems": 2}, [1], '"x" must have at least 2 items'),
        ({"maxItems": 1}, [1, 2], '"x" must have at most 1 item'),
        ({}, [1, 1], None),
        ({"uniqueItems": True}, [1, 1.0], '"x" must not repeat items'),
        ({"uniqueItems": True}, [1, True], None),
        ({"uniqueItems": True}, [True, 1, True], '"x" must not repeat items'),
        ({"uniqueItems": True}, [[1], [1]], None),
        ({"uniqueItems": True}, ["a", "b", "a"], '"x" must not repeat items'),
        ({"const": "\u00e9"}, "e", '"x" must be "\u00e9"'),
        ({"const": "y" * 1_998}, "e", f'"x" must be "{"y" * 1_998}"'),
        ({"const": "y" * 1_999}, "e", f'"x" must be "{"y" * 1_999}\u2026'),
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
        ({"allOf": [{}, {"minLength": 2}]}, "a", '"x" must have at least 2 characters'),
        ({"prefixItems": [True], "items": {"type": "null"}}, ["a", 1], '"x[1]" must be null'),
        ({"$ref": "#/$defs/word"}, 5, '"x" must be a string'),
        ({"$ref": "#/$defs/one~1two~0"}, 5, '"x" must be null'),
        ({"$ref": "#/$defs/missing"}, 5, None),
        ({"anyOf": [False, {"type": "string"}]}, 5, '"x" is not allowed'),
        (
            {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
            {"a": 1, "b": "c"},
            None,
        ),
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
        "$defs": {
            "word": {"type": "string"},
            "loop": {"$ref": "#/$defs/loop"},
            "one/two~": {"type": "null"},
        },
    }
    assert violations(root, {"x": value}) == ([] if expected is None else [expected])


def test_a_place_is_named_from_the_top_and_not_at_any_length() -> None:
    assert violations({"items": {"type": "string"}}, [1]) == ['"arguments[0]" must be a string']
    name = "a" * 100 + "b" * 100 + "c" * 100
    shown = "a" * 100 + "\u2026" + "c" * 100
    schema: dict[str, Any] = {"properties": {name: {"type": "string"}}}
    assert violations(schema, {name: 1}) == [f'"{shown}" must be a string']


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
    assert violations(SERVERS, Hostile()) == ['"arguments" must be an object']
    assert violations(SERVERS, {"path": Hostile()}) == ['"path" must be a string']
    assert violations(SERVERS, {Hostile(): 1}) == ['"arguments" cannot be checked (RuntimeError)']
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


def test_a_tool_offers_the_check() -> None:
    tool = Tool("t", "d", SERVERS, lambda arguments, execution: "x")
    assert tool.check({}) == ('missing required property "path"',)
    assert tool.check({"path": "x"}) == ()
