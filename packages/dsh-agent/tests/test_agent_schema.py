"""The schema of an answer: taken at its word, and refused when it is none."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.agent import AgentFault
from dsh.agent._output import SchemaShape, Unfit

POINT: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "tag": {"enum": ["a", ["b"]]}},
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "text", "problems"),
    [
        (POINT, '{"x": 1, "y": 2}', ('unknown property "y"',)),
        (POINT, '{"x": "1"}', ('"x" must be an integer',)),
        (POINT, '{"x": 1, "tag": []}', ('"tag" must be one of ["a", ["b"]]',)),
        (POINT, "[]", ('"answer" must be an object',)),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
            "3",
            ('"answer" fits 2 of the forms, of which it must fit one',),
        ),
    ],
)
def test_an_answer_has_to_fit_exactly(
    schema: dict[str, Any], text: str, problems: tuple[str, ...]
) -> None:
    with pytest.raises(Unfit) as caught:
        SchemaShape(schema).read(text)
    assert caught.value.problems == problems


def test_an_answer_that_fits_is_the_value() -> None:
    assert SchemaShape(POINT).read('{"x": 1.0, "tag": ["b"]}') == {"x": 1, "tag": ["b"]}


def test_a_schema_that_is_none_is_refused_with_the_place() -> None:
    with pytest.raises(AgentFault, match="#/items/type names no type") as caught:
        SchemaShape({"items": {"type": "strng"}})
    assert caught.value.code == AgentFault.INVALID_SCHEMA
