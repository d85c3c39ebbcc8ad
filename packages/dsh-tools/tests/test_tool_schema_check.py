"""The argument check of a tool: what it lets through beyond the letter of its schema."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.tools import Tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "mode": {"enum": ["r", "w"]},
        "size": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


# case: T-26
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ('missing required property "path"',)),
        ({"path": "x"}, ()),
        ({"path": "x", "extra": 1}, ()),
        ({"path": "x", "mode": ["r"]}, ()),
        ({"path": "x", "mode": "a"}, ('"mode" must be one of ["r", "w"]',)),
        ({"path": "x", "size": 1}, ()),
        ({"path": "x", "size": "1"}, ('"size" must be an integer or a number',)),
        ([], ('"arguments" must be an object',)),
    ],
)
def test_a_tool_checks_its_arguments(arguments: Any, expected: tuple[str, ...]) -> None:
    tool = Tool("t", "d", SCHEMA, lambda arguments, execution: "x")
    assert tool.check(arguments) == expected
