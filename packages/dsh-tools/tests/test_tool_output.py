"""Answers of a given shape, and the parsing of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from dsh.agent.testing import stub_agent
from dsh.core import json as djson
from dsh.tools import InvalidArguments, OutputTool, ToolDefinitionError, parse_arguments
from dsh.tools.testing import call_tool, text_of, tools_app


class Verdict(BaseModel):
    """A verdict."""

    passed: bool
    score: int = Field(ge=0, le=10)


async def test_an_answer_of_a_model() -> None:
    async with tools_app() as (_app, tools):
        agent, _ = stub_agent(_app.ctx)
        answer = OutputTool(Verdict)
        tools.register(agent.ctx, answer)
        schema: Any = tools.schemas(agent)[0].parameters
        assert schema["required"] == ["passed", "score"]
        with pytest.raises(LookupError, match="final_answer"):
            _ = answer.value
        result = await call_tool(tools, "final_answer", {"score": 11}, agent=agent)
        assert text_of(result) == (
            'Error: invalid arguments: missing required property "passed"; '
            '"score" must be at most 10'
        )
        assert not answer.received
        for score in (7, 8):
            result = await call_tool(
                tools, "final_answer", {"passed": True, "score": score}, agent=agent
            )
            assert text_of(result) == "The answer was recorded."
        assert answer.received
        assert answer.value == Verdict(passed=True, score=8)
        assert tools.get("final_answer") is None


async def test_an_answer_that_is_no_object() -> None:
    answer = OutputTool(list[Verdict], name="verdicts")
    schema: Any = answer.parameters
    assert schema["required"] == ["answer"]
    assert schema["type"] == "object"
    assert "Verdict" in schema["$defs"]
    assert "$defs" not in schema["properties"]["answer"]
    async with tools_app() as (app, tools):
        tools.register(app.ctx, answer)
        result = await call_tool(tools, "verdicts", {"answer": [{"passed": True}]})
        assert 'missing required property "answer[0].score"' in text_of(result)
        await call_tool(tools, "verdicts", {"answer": [{"passed": True, "score": 1}]})
        assert answer.value == [Verdict(passed=True, score=1)]


async def test_an_answer_of_a_schema() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    answer = OutputTool(schema, description="Say where.")
    assert answer.description == "Say where."
    async with tools_app() as (app, tools):
        tools.register(app.ctx, answer)
        result = await call_tool(tools, "final_answer", {"city": 5})
        assert '"city" must be a string' in text_of(result)
        await call_tool(tools, "final_answer", {"city": "Bern", "extra": 1})
        assert answer.value == {"city": "Bern", "extra": 1}
    numbers = OutputTool({"type": "array", "items": {"type": "number"}})
    assert numbers.check({"answer": ["x"]}) == ('"answer[0]" must be a number',)
    assert numbers.check({}) == ('missing required property "answer"',)
    named = OutputTool(
        {
            "type": "array",
            "items": {"$ref": "#/definitions/Number"},
            "definitions": {"Number": {"type": "number"}},
        }
    )
    assert named.check({"answer": ["x"]}) == ('"answer[0]" must be a number',)
    wrapped: Any = named.parameters
    assert "definitions" not in wrapped["properties"]["answer"]


def test_shapes_without_a_schema() -> None:
    opaque: Any = type("Opaque", (), {})
    shapes: list[tuple[Any, str]] = [
        (opaque, "the output type Opaque has a type"),
        (opaque | None, r"the output type .*Opaque \| None has a type"),
        (Callable[[], int], "the output type Callable has no JSON Schema"),
        ({"type": object()}, "the output schema"),
    ]
    for wrong, problem in shapes:
        with pytest.raises(ToolDefinitionError, match=problem):
            OutputTool(wrong)


_JSON_OBJECTS = st.dictionaries(
    st.text(max_size=3),
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.lists(st.text()),
)


@given(_JSON_OBJECTS)
def test_objects_are_parsed(value: dict[str, Any]) -> None:
    assert parse_arguments(djson.dumps(value).decode()) == value


@given(st.text() | st.text(alphabet='{}[]",:0123456789eE-.ntf\\u ', max_size=20))
def test_parsing_never_raises(text: str) -> None:
    parsed = parse_arguments(text)
    if isinstance(parsed, InvalidArguments):
        assert parsed.text == text
        assert parsed.problem
    else:
        djson.check(parsed)
