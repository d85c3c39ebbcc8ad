"""Tools made of typed functions."""

from __future__ import annotations

import enum
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, field_validator
from pydantic_core import PydanticCustomError

from dsh.core import JsonValue
from dsh.llm import ReasoningBlock, TextBlock
from dsh.tools import (
    NO_OUTPUT,
    FunctionTool,
    TerminalCard,
    TerminalResult,
    Tool,
    ToolArgsError,
    ToolDefinitionError,
    ToolExecution,
    ToolOutcome,
    ToolOutput,
    ToolOutputError,
    tool,
)
from dsh.tools.testing import run_tool, text_of


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Server(BaseModel):
    """A server to talk to."""

    host: str
    port: int = Field(default=80, ge=1)
    tags: list[str] = []

    @field_validator("host")
    @classmethod
    def no_spaces(cls, value: str) -> str:
        if " " in value:
            raise ValueError("a host has no spaces")
        return value


@dataclass
class Point:
    x: int
    y: int


@tool
async def search(
    query: str,
    limit: int = 10,
    mode: Literal["fast", "deep"] = "fast",
    server: Server | None = None,
    points: tuple[Point, ...] = (),
    since: date | None = None,
    level: Level = Level.LOW,
    env: dict[str, str] | None = None,
) -> str:
    """Search the notes.

    Finds words, not meanings.

    Args:
        query: What to look for.
            Several words are one phrase.
        limit: Most hits to return.

    Returns:
        The hits.
    """
    return repr((query, limit, mode, server, points, since, level, env))


def test_name_description_and_schema() -> None:
    assert isinstance(search, FunctionTool)
    assert search.name == "search"
    assert search.description == "Search the notes.\n\nFinds words, not meanings."
    schema: Any = search.parameters
    assert schema["type"] == "object"
    assert schema["required"] == ["query"]
    assert schema["properties"]["query"] == {
        "type": "string",
        "description": "What to look for. Several words are one phrase.",
    }
    assert schema["properties"]["limit"] == {
        "type": "integer",
        "default": 10,
        "description": "Most hits to return.",
    }
    assert schema["properties"]["mode"]["enum"] == ["fast", "deep"]
    assert schema["$defs"]["Server"]["description"] == "A server to talk to."
    assert "title" not in str(schema)
    schema["properties"].clear()
    assert search.parameters != schema


async def test_arguments_arrive_typed() -> None:
    output = await run_tool(
        search,
        {
            "query": "a",
            "limit": 3.0,
            "server": {"host": "h", "port": 2.0},
            "points": [{"x": 1, "y": 2}],
            "since": "2026-01-02",
            "level": "high",
            "unheard": [1],
        },
    )
    server = Server(host="h", port=2)
    expected = ("a", 3, "fast", server, (Point(1, 2),), date(2026, 1, 2), Level.HIGH, None)
    assert text_of(output) == repr(expected)


@pytest.mark.parametrize(
    ("arguments", "violations"),
    [
        ({}, ['missing required property "query"']),
        ({"query": 1}, ['"query" must be a string']),
        ({"query": "a", "limit": "3"}, ['"limit" must be an integer']),
        ({"query": "a", "limit": True}, ['"limit" must be an integer']),
        ({"query": "a", "mode": "slow"}, ['"mode" must be one of ["fast", "deep"]']),
        (
            {"limit": 1.5, "server": {"port": 0}},
            [
                'missing required property "query"',
                '"limit" must be an integer',
                'missing required property "server.host"',
                '"server.port" must be at least 1',
            ],
        ),
        ({"query": "a", "server": 5}, ['"server" must be an object or null']),
        ({"query": "a", "points": [{"x": 1}]}, ['missing required property "points[0].y"']),
        (
            {"query": "a", "server": {"host": "a b"}},
            ['"server.host" is not valid: a host has no spaces'],
        ),
        ({"query": "a", "env": {"A": 1}}, ['"env.A" must be a string']),
    ],
)
async def test_violations_read_like_those_of_a_schema(
    arguments: dict[str, Any], violations: list[str]
) -> None:
    with pytest.raises(ToolArgsError) as caught:
        await run_tool(search, arguments)
    assert list(caught.value.violations) == violations
    assert list(search.check(arguments)) == violations
    assert str(caught.value) == "invalid arguments: " + "; ".join(violations)


def test_types_say_what_schemas_cannot() -> None:
    (text,) = search.check({"query": "a", "since": "yesterday"})
    assert text.startswith('"since" is not valid: ')
    assert search.check({"query": "a", "since": "2026-01-02"}) == ()


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def refuse(value: object) -> object:
    if value == "missing":
        raise PydanticCustomError("missing", "is missing")
    raise {"hostile": Hostile, "runtime": RuntimeError}[str(value)]("broken validator")


def test_validators_may_raise_anything() -> None:
    @tool
    def checked(a: Annotated[str, AfterValidator(refuse)], b: date | None = None) -> None: ...

    @tool
    def any_shape(a: Any) -> None: ...

    assert checked.check({"a": "runtime"}) == ('"arguments" cannot be checked: broken validator',)
    assert checked.check({"a": "hostile"}) == (
        '"arguments" cannot be checked: an error that cannot be described',
    )
    assert checked.check({"a": "missing"}) == ('missing required property "a"',)
    both = checked.check({"a": "missing", "b": "never"})
    assert len(both) == 2
    assert both[1].startswith('"b" is not valid: ')
    not_json: Any = {"a": {1, 2}}
    assert any_shape.check(not_json)[0].startswith("value is not JSON")


def test_union_members_are_named_in_the_path() -> None:
    @tool
    def dated(days: list[date | int]) -> None: ...

    assert dated.check({"days": ["2026-01-02", 3]}) == ()
    found = dated.check({"days": ["2026-99-02"]})
    assert all(text.startswith('"days[0].') for text in found)


def test_types_without_a_schema() -> None:
    @tool
    def call_back(then: Callable[[], int]) -> None: ...

    call_back.prepare()
    with pytest.raises(ToolDefinitionError, match="'call_back' has no JSON Schema"):
        _ = call_back.parameters


_ARGUMENTS = st.dictionaries(
    st.sampled_from(["query", "limit", "mode", "server", "points", "env", "more"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-3, 3) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["host", "port", "x", "y"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
)


# case: T-26
@settings(deadline=None)
@given(_ARGUMENTS)
def test_typed_and_hand_written_schemas_agree(arguments: dict[str, JsonValue]) -> None:
    raw = Tool("search", "d", search.parameters, lambda arguments, execution: "x")
    found = raw.check(arguments)
    typed = search.check(arguments)
    if found:
        assert typed == found
    else:
        assert all(" is not valid: " in text for text in typed)


def test_docstring_styles() -> None:
    @tool
    def numpy_style(a: int, b: str = "x") -> None:
        """Do it.

        Parameters
        ----------
        a : int
            The a.
        b
            The b.

        Returns
        -------
        None
        """

    @tool
    def sphinx_style(a: int, b: str = "x") -> None:
        """Do it.

        :param a: The a.
        :param b: The b.
        :returns: Nothing.
        """

    @tool
    def annotated(
        a: Annotated[int, Field(description="The a.", ge=0)],
        b: Annotated[str, Field(description="The b.")] = "x",
    ) -> None:
        """Do it.

        Args:
            a: Not this.
        """

    for made in (numpy_style, sphinx_style, annotated):
        schema: Any = made.parameters
        assert made.description == "Do it."
        assert [schema["properties"][name]["description"] for name in "ab"] == ["The a.", "The b."]
    assert annotated.check({"a": -1}) == ('"a" must be at least 0',)


def test_parameter_names_are_free() -> None:
    @tool
    def odd(schema: str, json: int, copy: bool, model_config: str, self_: str = "") -> str:
        return f"{schema}{json}{copy}{model_config}"

    assert odd.check({"schema": "s", "json": 1, "copy": True, "model_config": "m"}) == ()
    schema: Any = odd.parameters
    assert list(schema["properties"]) == ["schema", "json", "copy", "model_config", "self_"]


async def test_options_win_over_the_function() -> None:
    @tool(name="find", description="Finds.", timeout_ms=5000, concurrent=True)
    async def search_notes(query: str) -> str:
        """Not this."""
        return query

    assert (search_notes.name, search_notes.description) == ("find", "Finds.")
    assert search_notes.timeout_ms == 5000
    assert search_notes.concurrent is True
    assert search_notes.is_concurrent({"query": "a"})
    assert not search_notes.is_concurrent({})
    assert await search_notes("x") == "x"
    assert search_notes.function.__name__ == "search_notes"

    @tool(
        present_call=lambda arguments: TerminalCard("called"),
        present_result=lambda arguments, outcome: TerminalResult(output="came"),
    )
    async def shown() -> None: ...

    assert shown.description == ""
    assert shown.call_view({}) == TerminalCard("called")
    assert shown.result_view({}, ToolOutcome(())) == TerminalResult(output="came")


def test_a_callable_without_a_name_needs_one() -> None:
    with pytest.raises(ToolDefinitionError, match="'' is no name for a tool"):
        tool(partial(search.function))


def test_a_callable_whose_parameters_nobody_knows_cannot_be_a_tool() -> None:
    with pytest.raises(ToolDefinitionError, match="parameters of tool 'str' are not known"):
        tool(str)


def test_titles_are_dropped_and_what_is_called_title_stays() -> None:
    @tool
    def label(
        title: str,
        default: int,
        book: Annotated[dict[str, str], Field(examples=[{"title": "x"}])],
    ) -> None: ...

    schema: Any = label.parameters
    assert schema["required"] == ["title", "default", "book"]
    assert schema["properties"]["default"] == {"type": "integer"}
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["properties"]["book"] == {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "examples": [{"title": "x"}],
    }


async def test_the_execution_is_passed_and_is_no_argument() -> None:
    @tool
    async def by_type(word: str, call: Annotated[ToolExecution | None, "it"] = None) -> str:
        assert call is not None
        return f"{word} {call.call_id}"

    def plain(execution: Any, word: str) -> str:
        return f"{word} {execution.call_id}"

    del plain.__annotations__["execution"]
    by_name = tool(plain)
    made_tools: tuple[Tool, ...] = (by_type, by_name)
    for made in made_tools:
        schema: Any = made.parameters
        assert list(schema["properties"]) == ["word"]
        arguments: dict[str, JsonValue] = {"word": "w", "call": "ignored"}
        execution = ToolExecution("c7", made.name, arguments)
        assert text_of(await run_tool(made, arguments, execution)) == "w c7"


async def test_methods_become_tools_of_their_instance() -> None:
    class Counter:
        def __init__(self, start: int) -> None:
            self.count = start

        @tool
        async def add(self, amount: int) -> int:
            """Add to the counter."""
            self.count += amount
            return self.count

    one, two = Counter(1), Counter(10)
    schema: Any = one.add.parameters
    assert list(schema["properties"]) == ["amount"]
    assert text_of(await run_tool(one.add, {"amount": 1})) == "2"
    assert text_of(await run_tool(two.add, {"amount": 1})) == "11"
    assert await one.add(5) == 7
    assert await one.add(amount=5) == 12
    assert isinstance(Counter.add, FunctionTool)
    with pytest.raises(ToolDefinitionError, match="'self'"):
        Counter.add.prepare()


async def test_a_method_keeps_what_its_decorator_says() -> None:
    class Here:
        @tool(description="Where it runs.", inline=True)
        def thread(self, execution: ToolExecution) -> int:
            """Ignored."""
            return threading.get_ident()

        @tool(name="hello")
        def greet(self, how: Callable[[], str]) -> None: ...

    assert Here().thread.description == "Where it runs."
    assert text_of(await run_tool(Here().thread, {})) == str(threading.get_ident())
    with pytest.raises(ToolDefinitionError, match="'hello' has no JSON Schema"):
        _ = Here().greet.parameters


def test_functions_that_cannot_be_tools() -> None:
    def positional(a: int, /) -> None: ...
    def star(*args: int) -> None: ...
    def keywords(**kwargs: int) -> None: ...

    functions: list[Any] = [positional, star, keywords]
    for function in functions:
        with pytest.raises(ToolDefinitionError, match="by keyword"):
            tool(function)

    def lines(a: int) -> Iterator[int]:
        yield a

    async def later(a: int) -> AsyncIterator[int]:
        yield a

    functions = [lines, later]
    for function in functions:
        with pytest.raises(ToolDefinitionError, match="yields"):
            tool(function)

    def nameless(a: int) -> None: ...

    nameless.__name__ = "<lambda>"
    with pytest.raises(ToolDefinitionError, match="no name"):
        tool(nameless)

    def untyped(a: int) -> None: ...

    del untyped.__annotations__["a"]
    with pytest.raises(ToolDefinitionError, match="'a' of tool 'untyped' has no type"):
        tool(untyped).prepare()

    def unknown(a: int) -> None: ...

    unknown.__annotations__["a"] = "Nowhere"
    with pytest.raises(ToolDefinitionError, match="Nowhere"):
        tool(unknown).prepare()

    @tool
    def impossible(a: threading.Lock) -> None: ...

    impossible.prepare()
    with pytest.raises(ToolDefinitionError, match="impossible"):
        _ = impossible.parameters


async def test_local_types_are_found() -> None:
    class Inner(BaseModel):
        word: str

    @tool
    def local(inner: Inner) -> str:
        return inner.word

    @tool(description="with parentheses")
    def local_too(inner: Inner) -> str:
        return inner.word

    for made in (local, local_too):
        assert text_of(await run_tool(made, {"inner": {"word": "w"}})) == "w"


async def test_mutable_defaults_are_fresh() -> None:
    @tool
    async def collect(item: str, into: list[str] = []) -> int:  # noqa: B006
        into.append(item)
        return len(into)

    for _ in range(2):
        assert text_of(await run_tool(collect, {"item": "x"})) == "1"

    @tool
    async def sort(item: str, into: dict[str, list[str]] = {"all": []}) -> int:  # noqa: B006
        into["all"].append(item)
        return len(into["all"])

    for _ in range(2):
        assert text_of(await run_tool(sort, {"item": "x"})) == "1"


# case: T-05
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ("", NO_OUTPUT),
        (None, NO_OUTPUT),
        (Server(host="h"), '{"host":"h","port":80,"tags":[]}'),
        ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
        ([Server(host="h")], '[{"host":"h","port":80,"tags":[]}]'),
        ([], "[]"),
        ({}, "{}"),
        (Point(1, 2), '{"x":1,"y":2}'),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (float("nan"), "null"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
    ],
)
async def test_return_values(value: object, expected: str) -> None:
    @tool
    async def give() -> object:
        return value

    assert await run_tool(give) == ToolOutput((TextBlock(expected),))


# case: T-05
async def test_blocks_and_outputs_are_taken_as_they_are() -> None:
    blocks = (TextBlock("a"), ReasoningBlock("b"))
    cases: list[tuple[object, ToolOutput]] = [
        (blocks[0], ToolOutput((blocks[0],))),
        (list(blocks), ToolOutput(blocks)),
        (blocks, ToolOutput(blocks)),
        (ToolOutput(list(blocks), {"n": (1, 2)}), ToolOutput(blocks, {"n": [1, 2]})),  # pyright: ignore[reportArgumentType]
        (ToolOutput(()), ToolOutput(())),
    ]
    for value, expected in cases:
        made = Tool("t", "d", {}, lambda arguments, execution, value=value: value)
        assert await run_tool(made) == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "return a text, content blocks, JSON"),
        (print, "return a text, content blocks, JSON"),
        ((item for item in "ab"), "return a text, content blocks, JSON"),
        (b"\xff", "return a text, content blocks, JSON"),
        ({"a": object()}, "has no JSON form"),
        (ToolOutput("text"), "content"),  # pyright: ignore[reportArgumentType]
        (ToolOutput(("text",)), "content"),  # pyright: ignore[reportArgumentType]
        (ToolOutput((TextBlock("a"),), {"a": float("inf")}), "meta.a is not JSON"),
        (ToolOutput((TextBlock("a"),), [1]), "meta"),  # pyright: ignore[reportArgumentType]
    ],
    ids=lambda value: type(value).__name__,
)
async def test_return_values_without_a_json_form(value: object, problem: str) -> None:
    made = Tool("t", "d", {}, lambda arguments, execution: value)
    with pytest.raises(ToolOutputError, match=problem):
        await run_tool(made)


async def test_synchronous_functions_run_in_a_worker_thread() -> None:
    here = threading.get_ident()

    @tool
    def away() -> bool:
        return threading.get_ident() == here

    @tool(inline=True)
    def inside() -> bool:
        return threading.get_ident() == here

    @tool
    async def asynchronous() -> bool:
        return threading.get_ident() == here

    assert text_of(await run_tool(away)) == "false"
    assert text_of(await run_tool(inside)) == "true"
    assert text_of(await run_tool(asynchronous)) == "true"


async def test_an_inline_body_runs_where_the_loop_runs() -> None:
    here = threading.get_ident()
    for inline in (True, False):
        made = Tool("t", "d", {}, lambda arguments, _: str(threading.get_ident()), inline=inline)
        assert (text_of(await run_tool(made)) == str(here)) is inline


async def test_a_cancelled_call_does_not_wait_for_its_thread() -> None:
    started, release = threading.Event(), threading.Event()

    @tool
    def stuck() -> str:
        started.set()
        release.wait(20)
        return "late"

    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(run_tool, stuck)
                await anyio.to_thread.run_sync(started.wait)
                group.cancel_scope.cancel()
    finally:
        release.set()


@pytest.mark.parametrize("inline", [True, False])
async def test_a_tool_cannot_end_the_process(inline: bool) -> None:
    def leave(arguments: object, execution: object) -> None:
        raise SystemExit(3)

    def stop(arguments: object, execution: object) -> None:
        raise StopIteration("odd")

    with pytest.raises(ToolOutputError, match=r"exit the process \(code 3\)"):
        await run_tool(Tool("t", "d", {}, leave, inline=inline))
    with pytest.raises(RuntimeError):
        await run_tool(Tool("t", "d", {}, stop, inline=inline))


async def test_callable_objects_are_bodies() -> None:
    class Body:
        async def __call__(self, arguments: dict[str, JsonValue], execution: ToolExecution) -> str:
            return execution.name

    async def coroutine() -> str:
        return "from a lambda"

    assert text_of(await run_tool(Tool("t", "d", {}, Body()))) == "t"
    made = Tool("t", "d", {}, lambda arguments, execution: coroutine())
    assert text_of(await run_tool(made)) == "from a lambda"


def test_the_docstring_parser_is_loaded_only_when_needed() -> None:
    program = """
import sys
from dsh.tools import tool
@tool
def plain(a: int) -> str:
    "One line, no sections."
@tool
def documented(a: int) -> str:
    '''Do it.

    Args:
        a: The a.
    '''
plain.schema
assert "griffe" not in sys.modules
documented.prepare()
assert "griffe" not in sys.modules
assert documented.schema.parameters["properties"]["a"]["description"] == "The a."
assert "griffe" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
