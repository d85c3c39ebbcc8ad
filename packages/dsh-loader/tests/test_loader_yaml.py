"""Strict YAML: what is read, what is refused, and where the message points."""

from __future__ import annotations

import pytest

from dsh.core.json import JsonValue
from dsh.loader import ConfigFileError, parse_yaml


def read(text: str) -> JsonValue:
    return parse_yaml(text, where="t.yaml").value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("12", 12),
        ("-3", -3),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("12:30:45", "12:30:45"),
        ("2020-01-01", "2020-01-01"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[1, [2, {a: b}]]", [1, [2, {"a": "b"}]]),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("1: one\ntrue: yes", {"1": "one", "true": "yes"}),
        ("=: 1", {"=": 1}),
    ],
)
def test_values_are_those_of_yaml_1_2(text: str, value: JsonValue) -> None:
    result = read(text)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "detail", "line"),
    [
        ("a: 1\nb: 2\na: 3", "key 'a' occurs twice (first in line 1)", 3),
        ("a: 1\nb:\n  c: !!python/object:os.system x", "tags are not supported", 3),
        ("a: !!str x", "tags are not supported", 1),
        ("a: !custom [1]", "tags are not supported", 1),
        ("a: !!js process.env.X", "!!js is not evaluated here", 1),
        ("a: !expr env.X", "!expr is not evaluated here", 1),
        ("<<: {a: 1}", "merge keys", 1),
        ("a: .nan", "not a JSON number", 1),
        ("a: -.inf", "not a JSON number", 1),
        ("a: 1e999", "too large", 1),
        ("a: 9007199254740993", "beyond 2^53", 1),
        ("? [1]\n: v", "a key must be a string", 1),
        ("a: &x [*x]", "inside or before its anchor", 1),
        ("a: *nope", "inside or before its anchor", 1),
        ("&x k: 1\n*x : 2", "an alias cannot be a key", 2),
        ("---\na: 1\n---\nb: 2", "second document", 3),
        ("a: [1", "not readable as YAML", 1),
        ("a: 'x", "not readable as YAML", 1),
        ("\ta: 1", "not readable as YAML", 1),
    ],
)
def test_everything_else_is_refused_with_its_line(text: str, detail: str, line: int) -> None:
    with pytest.raises(ConfigFileError) as caught:
        read(text)
    assert detail in caught.value.message
    assert caught.value.stage == "parse"
    assert f"t.yaml, line {line}" in caught.value.where


def test_expression_tags_come_with_the_way_out() -> None:
    with pytest.raises(ConfigFileError) as caught:
        read("a: !!js 1")
    assert "${env:NAME}" in str(caught.value.hint)


def test_an_alias_bomb_is_refused_before_it_explodes() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ConfigFileError, match="more than 50000 values"):
        read("\n".join(lines))


def test_a_deep_document_does_not_exhaust_the_stack() -> None:
    with pytest.raises(ConfigFileError):
        read("[" * 5_000 + "]" * 5_000)
    with pytest.raises(ConfigFileError, match="nested deeper"):
        read("[" * 300 + "]" * 300)


def test_every_key_and_item_has_its_line() -> None:
    lines = parse_yaml("a: 1\nb:\n  - x\n  - c: 2\n    d:\n      e: 3\n", where="t").lines
    assert lines["a",] == 1
    assert lines["b", "0"] == 3
    assert lines["b", "1", "c"] == 4
    assert lines["b", "1", "d", "e"] == 6
