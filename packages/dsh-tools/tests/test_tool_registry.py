"""Registration, look-up and definitions."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pytest

from dsh.agent.testing import stub_agent
from dsh.core import App, Context, Effect, JsonValue, Mount
from dsh.llm import TextBlock
from dsh.system_prompt import SystemPrompt
from dsh.tools import (
    GenericCard,
    Tool,
    ToolDefinitionError,
    ToolExecution,
    ToolOutput,
    ToolRegistrationError,
    tool,
)
from dsh.tools.events import ToolsChange
from dsh.tools.testing import call_tool, text_of, tools_app

OBJECT: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"a": {"type": "string", "enum": ["x"]}},
}


def echo(name: str, text: str | None = None, **options: Any) -> Tool:
    return Tool(name, f"about {name}", OBJECT, lambda arguments, call: text or name, **options)


async def owner(app: App) -> tuple[Context, Mount]:
    found: list[Context] = []

    async def apply(ctx: Context, config: object) -> None:
        found.append(ctx)

    mount = app.mount(apply)
    await mount.settled()
    return found[0], mount


def generic(arguments: object) -> GenericCard:
    return GenericCard("x")


# case: T-01
async def test_the_model_sees_name_description_and_parameters_only() -> None:
    async with tools_app() as (app, tools):
        made = echo("t", timeout_ms=5, present_call=generic)
        tools.register(app.ctx, made)
        (schema,) = tools.schemas()
        assert (schema.name, schema.description, schema.parameters) == ("t", "about t", OBJECT)
        assert set(schema.__slots__) == {"name", "description", "parameters"}
        properties: Any = schema.parameters["properties"]
        properties["a"]["enum"].append("y")
        schema.parameters.clear()
        made.parameters.clear()
        assert tools.schemas()[0].parameters == OBJECT
        assembly = await app[SystemPrompt].assemble()
        assert [tool.parameters for tool in assembly.tools] == [OBJECT]
        assembly.tools[0].parameters.clear()
        assert tools.schemas()[0].parameters == OBJECT


# case: T-02
async def test_duplicates_vetoes_and_owner_disposal() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        ctx, mount = await owner(app)
        changes: list[str] = []
        app.ctx.on(ToolsChange, lambda event: changes.append("change"))
        tools.register(ctx, echo("t"))
        tools.register(agent.ctx, echo("t"))
        assert len(changes) == 2
        with pytest.raises(ToolRegistrationError, match=r"'t'.*agent\.ctx") as caught:
            tools.register(app.ctx, echo("t"))
        assert caught.value.code == ToolRegistrationError.DUPLICATE
        with pytest.raises(ToolRegistrationError, match="already registered in this scope"):
            tools.register(agent.ctx, echo("t"))
        assert len(changes) == 2

        def veto(event: ToolsChange) -> None:
            raise RuntimeError("frozen")

        listener = app.ctx.on(ToolsChange, veto)
        for where in (app.ctx, agent.ctx):
            with pytest.raises(RuntimeError, match="frozen"):
                tools.register(where, echo("u"))
            assert tools.get("u", agent) is None
        listener.dispose_nowait()
        changes.clear()
        await mount.dispose()
        assert len(changes) == 1
        assert tools.get("t") is None
        assert tools.get("t", agent) is not None


# case: T-03
async def test_a_registration_nests_in_a_composite_effect() -> None:
    async with tools_app() as (app, tools):
        trace: list[str] = []

        def note(name: str) -> Effect:
            return app.ctx.defer(lambda: trace.append(f"{name}: {tools.get('t') is not None}"))

        def body() -> Generator[Effect, None, None]:
            yield note("outermost")
            yield tools.register(app.ctx, echo("t"))
            yield note("innermost")

        composite = app.ctx.effect(body, "composite")
        assert tools.get("t") is not None
        await composite.dispose()
        assert trace == ["innermost: True", "outermost: False"]


class Shifty(Mapping[str, JsonValue]):
    """A schema that changes after the first look."""

    def __init__(self) -> None:
        self.looks = 0

    def __getitem__(self, key: str) -> JsonValue:
        self.looks += 1
        return "object" if self.looks == 1 else object()  # pyright: ignore[reportReturnType]

    def __iter__(self) -> Iterator[str]:
        return iter(["type"])

    def __len__(self) -> int:
        return 1


# case: T-04
async def test_definitions_are_copied_and_bound_once() -> None:
    wrong: list[Any] = [{"x": object()}, {"x": float("nan")}, {1: 2}, [], {"type": "array"}]
    for bad in wrong:
        with pytest.raises(ToolDefinitionError, match="parameters of tool 't'") as caught:
            Tool("t", "d", bad, lambda arguments, call: "x")
        assert caught.value.code == ToolDefinitionError.INVALID_TOOL
    shifty = Shifty()
    made = Tool("t", "d", shifty, lambda arguments, call: "x")
    assert made.parameters == {"type": "object"}
    assert shifty.looks == 1

    class Body:
        answer = "original"

        def run(self, arguments: object, execution: ToolExecution) -> str:
            return self.answer

    source: dict[str, Any] = {"type": "object", "properties": {}}
    body = Body()
    async with tools_app() as (app, tools):
        made = Tool("t", "d", source, body.run)
        tools.register(app.ctx, made)
        source["properties"]["late"] = {"type": "string"}
        Body.run = lambda self, arguments, execution: "replaced"
        for attribute in ("name", "execute", "_missing", "timeout_ms"):
            with pytest.raises(AttributeError):
                setattr(made, attribute, "changed")
        assert text_of(await call_tool(tools, "t")) == "original"
        assert tools.schemas()[0].parameters == {"type": "object", "properties": {}}


# case: T-27
@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), True, "5"])
def test_time_budgets_are_positive_and_finite(timeout: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="timeout_ms"):
        echo("t", timeout_ms=timeout)


def test_a_time_budget_may_be_a_part_of_a_millisecond() -> None:
    assert echo("t", timeout_ms=0.5).timeout_ms == 0.5


@pytest.mark.parametrize("name", ["", "a b", "a.b", "<unlisted-tools>", "x" * 65, "é", "t\n", 5])
def test_names_a_model_cannot_use(name: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="no name for a tool"):
        echo(name)


def test_other_unusable_definitions() -> None:
    wrong: list[tuple[Any, ...]] = [("t", 5, {}, print), ("t", "d", {}, "not callable")]
    for arguments in wrong:
        with pytest.raises(ToolDefinitionError):
            Tool(*arguments)
    with pytest.raises(ToolDefinitionError, match="present_call"):
        echo("t", present_call="x")
    with pytest.raises(ToolDefinitionError, match="present_result"):
        echo("t", present_result="x")


async def test_only_tools_can_be_registered() -> None:
    async with tools_app() as (app, tools):
        for wrong in (print, "bash", None):
            with pytest.raises(ToolDefinitionError, match="no tool"):
                tools.register(app.ctx, wrong)  # pyright: ignore[reportArgumentType]

        def unresolvable(a: int) -> None: ...

        unresolvable.__annotations__["a"] = "Nowhere"
        with pytest.raises(ToolDefinitionError, match="Nowhere"):
            tools.register(app.ctx, tool(unresolvable))
        assert tools.visible() == ()


# case: T-05
async def test_metadata_is_carried_or_absent() -> None:
    async with tools_app() as (app, tools):
        outputs: dict[str, object] = {
            "blocks": [TextBlock("x")],
            "meta": ToolOutput([TextBlock("x")], {"rows": [1, {"a": None}]}),
            "no-meta": ToolOutput([TextBlock("x")]),
        }
        for name, value in outputs.items():
            tools.register(app.ctx, Tool(name, "d", {}, lambda arguments, call, value=value: value))
        for name in outputs:
            result = await call_tool(tools, name)
            assert result.content == (TextBlock("x"),)
            assert not result.is_error
            assert result.meta == ({"rows": [1, {"a": None}]} if name == "meta" else None)


async def test_look_up() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        one, two, mine = echo("one"), echo("two"), echo("mine")
        for made in (two, one):
            tools.register(app.ctx, made)
        tools.register(agent.ctx, mine)
        assert tools.visible() == (two, one)
        assert tools.visible(agent) == (two, one, mine)
        assert tools.get("mine") is None
        assert tools.get("mine", agent) is mine
        assert tools.known_names(agent) == ("two", "one", "mine")
        assert [schema.name for schema in tools.schemas(agent)] == ["two", "one", "mine"]
