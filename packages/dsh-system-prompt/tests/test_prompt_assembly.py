"""Registration and assembly of the prompt."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.agent.testing import stub_agent
from dsh.core import App, ConfigError, Context, JsonValue, Mount, Next
from dsh.llm import ToolSchema
from dsh.system_prompt import (
    IDENTITY,
    IDENTITY_SECTION,
    PERSONA_SECTION,
    AssembleContext,
    AssembledSection,
    PromptAssembly,
    PromptError,
    SystemPrompt,
    ToolProviderResult,
    render_prompt,
)
from dsh.system_prompt.events import SystemPromptAssemble, SystemPromptChange


@asynccontextmanager
async def prompt_app(**config: object) -> AsyncGenerator[tuple[App, SystemPrompt]]:
    async with App() as app:
        await app.mount(SystemPrompt, config).settled()
        yield app, app[SystemPrompt]


async def plugin_context(app: App) -> tuple[Context, Mount]:
    """A context that can be disposed without the service."""
    found: list[Context] = []

    async def owner(ctx: Context, config: object) -> None:
        found.append(ctx)

    mount = app.mount(owner)
    await mount.settled()
    return found[0], mount


def schema(name: str, **parameters: JsonValue) -> ToolSchema:
    return ToolSchema(name, f"tool {name}", {"type": "object", **parameters})


def names(assembly: PromptAssembly) -> list[str]:
    return [section.name for section in assembly.sections]


def tools(assembly: PromptAssembly) -> list[str]:
    return [tool.name for tool in assembly.tools]


# case: P-01
async def test_built_in_sections() -> None:
    async with prompt_app() as (_, prompt):
        assembly = await prompt.assemble()
        assert assembly.sections == [
            AssembledSection(IDENTITY_SECTION, -100, IDENTITY),
            AssembledSection(PERSONA_SECTION, 0, ""),
        ]
        assert render_prompt(assembly) == IDENTITY
        assert "DeepSeek Harness" in IDENTITY
    async with prompt_app(persona="You are terse.") as (_, prompt):
        assert render_prompt(await prompt.assemble()) == f"{IDENTITY}\n\nYou are terse."


async def test_persona_is_reserved() -> None:
    async with prompt_app() as (app, prompt):
        with pytest.raises(PromptError, match=r"deployment:persona.*agent\.ctx") as caught:
            prompt.section(app.ctx, PERSONA_SECTION, 0, "me")
        assert caught.value.code == PromptError.DUPLICATE


# case: P-02
async def test_sections_are_sorted_and_computed_again() -> None:
    async with prompt_app() as (app, prompt):
        agent, _ = stub_agent(app.ctx, "a1")
        prompt.section(app.ctx, "late", 10, "late")
        prompt.section(app.ctx, "tie-1", 5, "first")
        prompt.section(app.ctx, "who", 5, lambda c: c.agent.id if c.agent else "nobody")
        prompt.section(app.ctx, "early", 2.5, "early")
        assembly = await prompt.assemble()
        assert names(assembly)[2:] == ["early", "tie-1", "who", "late"]
        assert assembly.sections[4].text == "nobody"
        assembly = await prompt.assemble(AssembleContext.for_agent(agent))
        assert assembly.sections[4].text == "a1"


# case: P-03
async def test_duplicates_bad_names_and_owner_disposal() -> None:
    async with prompt_app() as (app, prompt):
        ctx, mount = await plugin_context(app)
        changes: list[str] = []
        app.ctx.on(SystemPromptChange, lambda event: changes.append("change"))
        prompt.section(ctx, "s", 1, "text")
        prompt.variable(ctx, "v", "value")
        assert len(changes) == 2
        for register in (
            lambda: prompt.section(app.ctx, "s", 2, "other"),
            lambda: prompt.variable(app.ctx, "v", "other"),
        ):
            with pytest.raises(PromptError, match=r"already registered.*agent\.ctx") as caught:
                register()
            assert caught.value.code == PromptError.DUPLICATE
        for bad in ("V", "1v", "a-b", "", "a b", "é", "v\n"):
            with pytest.raises(PromptError) as caught:
                prompt.variable(app.ctx, bad, "x")
            assert caught.value.code == PromptError.INVALID
        assert len(changes) == 2
        await mount.dispose()
        assert len(changes) == 4
        assembly = await prompt.assemble()
        assert names(assembly) == [IDENTITY_SECTION, PERSONA_SECTION]
        assert assembly.variables == {}


async def test_unusable_registrations_are_refused() -> None:
    async with prompt_app() as (app, prompt):

        async def later(context: AssembleContext) -> str:
            return "x"

        refused = [
            lambda: prompt.section(app.ctx, "", 1, "x"),
            lambda: prompt.section(app.ctx, "s", float("nan"), "x"),
            lambda: prompt.section(app.ctx, "s", float("inf"), "x"),
            lambda: prompt.section(app.ctx, "s", True, "x"),
            lambda: prompt.section(app.ctx, "s", 1, later),  # pyright: ignore[reportArgumentType]
            lambda: prompt.variable(app.ctx, "v", later),  # pyright: ignore[reportArgumentType]
            lambda: prompt.tools(app.ctx, 5),  # pyright: ignore[reportArgumentType]
            lambda: prompt.protect(app.ctx, sections="abc"),
        ]
        for register in refused:
            with pytest.raises(PromptError) as caught:
                register()
            assert caught.value.code == PromptError.INVALID
        assert names(await prompt.assemble()) == [IDENTITY_SECTION, PERSONA_SECTION]


# case: P-04
async def test_raising_change_listener_rolls_back() -> None:
    async with prompt_app() as (app, prompt):
        agent, _ = stub_agent(app.ctx)
        before = await prompt.assemble(AssembleContext.for_agent(agent))

        def veto(event: SystemPromptChange) -> None:
            raise RuntimeError("no changes today")

        listener = app.ctx.on(SystemPromptChange, veto)
        for ctx in (app.ctx, agent.ctx):
            for register in (
                lambda ctx=ctx: prompt.section(ctx, "s", 1, "text"),
                lambda ctx=ctx: prompt.variable(ctx, "v", "value"),
                lambda ctx=ctx: prompt.tools(ctx, lambda context: [schema("t")]),
                lambda ctx=ctx: prompt.protect(ctx, tools=["t"]),
            ):
                with pytest.raises(RuntimeError, match="no changes today"):
                    register()
        listener.dispose_nowait()
        assert await prompt.assemble(AssembleContext.for_agent(agent)) == before
        prompt.section(app.ctx, "s", 1, "text")
        prompt.section(agent.ctx, "s", 1, "mine")


# case: P-05
async def test_listeners_compose_and_take_over() -> None:
    async with prompt_app() as (app, prompt):
        agent, _ = stub_agent(app.ctx)
        seen: list[object] = []

        async def outer(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
            seen.append(event.context.agent)
            event.assembly.sections.append(AssembledSection("outer", 500, "outer"))
            result = await next()
            return PromptAssembly(
                [*result.sections, AssembledSection("last", 0, "last")],
                result.tools,
                result.variables,
            )

        async def inner(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
            event.assembly.sections.append(AssembledSection("inner", 400, "inner"))
            return await next()

        app.ctx.on(SystemPromptAssemble, outer)
        app.ctx.on(SystemPromptAssemble, inner)
        assembly = await prompt.assemble(AssembleContext.for_agent(agent))
        assert names(assembly)[2:] == ["outer", "inner", "last"]
        assert seen == [agent]

        async def take_over(
            event: SystemPromptAssemble, next: Next[PromptAssembly]
        ) -> PromptAssembly:
            return PromptAssembly()

        app.ctx.on(SystemPromptAssemble, take_over, prepend=True)
        assert await prompt.assemble() == PromptAssembly()
        assert render_prompt(await prompt.assemble()) == ""
        assert seen == [agent]


async def test_listener_has_to_return_an_assembly() -> None:
    async with prompt_app() as (app, prompt):

        async def nothing(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> object:
            return None

        app.ctx.on(SystemPromptAssemble, nothing)  # pyright: ignore[reportArgumentType, reportCallIssue]
        with pytest.raises(PromptError, match="NoneType") as caught:
            await prompt.assemble()
        assert caught.value.code == PromptError.BAD_ASSEMBLY


@pytest.mark.parametrize("what", ["section", "variable", "tools", "schema"])
async def test_providers_have_to_return_parts_of_a_prompt(what: str) -> None:
    async with prompt_app() as (app, prompt):

        def wrong(context: AssembleContext) -> object:
            return [5] if what == "schema" else 5

        if what == "section":
            prompt.section(app.ctx, "s", 1, wrong)  # pyright: ignore[reportArgumentType]
        elif what == "variable":
            prompt.variable(app.ctx, "v", wrong)  # pyright: ignore[reportArgumentType]
        else:
            prompt.tools(app.ctx, wrong)  # pyright: ignore[reportArgumentType]
        with pytest.raises(PromptError, match="int") as caught:
            await prompt.assemble()
        assert caught.value.code == PromptError.BAD_ASSEMBLY


# case: P-06
async def test_assemblies_share_nothing() -> None:
    async with prompt_app(persona="be kind") as (app, prompt):
        mine = schema("t", properties={"a": {"enum": ["x"]}}, required=["a"])
        prompt.tools(app.ctx, lambda context: [mine])
        prompt.variable(app.ctx, "v", "1")
        prompt.protect(app.ctx, tools=["other"])
        pristine = await prompt.assemble()
        spoiled = await prompt.assemble()
        properties: Any = spoiled.tools[0].parameters["properties"]
        properties["a"]["enum"].append("y")
        spoiled.tools[0].parameters["required"] = []
        spoiled.tools.append(schema("more"))
        spoiled.sections.clear()
        spoiled.variables["v"] = "2"
        assert await prompt.assemble() == pristine
        assert mine == schema("t", properties={"a": {"enum": ["x"]}}, required=["a"])


# case: P-11
async def test_protected_names_are_restored() -> None:
    async with prompt_app() as (app, prompt):
        for order, name in enumerate("abcde", start=1):
            prompt.section(app.ctx, name, order, f"text {name}")
        prompt.tools(app.ctx, lambda context: [schema(name) for name in "klmn"])
        sections, guarded = ["b", "c", "e"], ["k", "m"]
        protection = prompt.protect(app.ctx, sections, guarded)
        sections.clear()
        guarded.append("l")

        async def spoil(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
            result = await next()
            by_name = {section.name: section for section in result.sections}
            tool = {item.name: item for item in result.tools}
            tool["k"].parameters["type"] = "spoiled"
            frozen = PromptAssembly()
            # moved, doubled, replaced and removed; and nothing here can be changed in place
            object.__setattr__(
                frozen,
                "sections",
                (
                    AssembledSection("c", 9, "fake"),
                    by_name["d"],
                    AssembledSection("b", 9, "fake"),
                    by_name["b"],
                    AssembledSection("new", 9, "new"),
                    by_name["a"],
                ),
            )
            object.__setattr__(frozen, "tools", (tool["n"], tool["k"], tool["k"], tool["l"]))
            return frozen

        app.ctx.on(SystemPromptAssemble, spoil, prepend=True)
        assembly = await prompt.assemble()
        assert [(s.name, s.text) for s in assembly.sections] == [
            ("b", "text b"),
            ("c", "text c"),
            ("d", "text d"),
            ("new", "new"),
            ("a", "text a"),
            ("e", "text e"),
        ]
        assert tools(assembly) == ["k", "m", "n", "l"]
        assert assembly.tools[0].parameters == {"type": "object"}
        protection.dispose_nowait()
        assert names(await prompt.assemble()) == ["c", "d", "b", "b", "new", "a"]


# case: P-12
async def test_protected_but_absent_stays_absent() -> None:
    async with prompt_app() as (app, prompt):
        protection = prompt.protect(app.ctx, sections=["ghost"], tools=["ghost-tool"])

        async def fabricate(
            event: SystemPromptAssemble, next: Next[PromptAssembly]
        ) -> PromptAssembly:
            event.assembly.sections.append(AssembledSection("ghost", 1, "boo"))
            event.assembly.tools.append(schema("ghost-tool"))
            return await next()

        app.ctx.on(SystemPromptAssemble, fabricate)
        assembly = await prompt.assemble()
        assert "ghost" not in names(assembly)
        assert tools(assembly) == []
        with pytest.raises(PromptError, match="at least one"):
            prompt.protect(app.ctx)
        await protection.dispose()
        assembly = await prompt.assemble()
        assert "ghost" in names(assembly)
        assert tools(assembly) == ["ghost-tool"]


# case: P-13
async def test_scoped_registrations_are_for_their_scope() -> None:
    async with prompt_app(persona="global persona") as (app, prompt):
        agent, scope = stub_agent(app.ctx, "a")
        other, _ = stub_agent(app.ctx, "b")
        prompt.variable(app.ctx, "mood", "neutral")
        prompt.section(app.ctx, "common", 50, "common")

        async def shout(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
            event.assembly.sections.append(AssembledSection("heard", 600, "heard"))
            event.assembly.sections[:] = [s for s in event.assembly.sections if s.name != "mine"]
            return await next()

        def compose(ctx: Context) -> None:
            prompt.section(ctx, PERSONA_SECTION, 0, "own persona")
            prompt.section(ctx, "mine", 10, "mine")
            prompt.variable(ctx, "mood", "merry")
            prompt.tools(ctx, lambda context: [schema("own")])
            prompt.protect(ctx, sections=["mine"])
            ctx.on(SystemPromptAssemble, shout)

        compose(agent.ctx)
        with pytest.raises(PromptError, match="already registered in this scope"):
            prompt.section(agent.ctx, "mine", 10, "again")
        mine = await prompt.assemble(AssembleContext.for_agent(agent))
        assert names(mine) == [IDENTITY_SECTION, PERSONA_SECTION, "mine", "common", "heard"]
        assert mine.sections[1].text == "own persona"
        assert mine.variables == {"mood": "merry"}
        assert tools(mine) == ["own"]
        for context in (AssembleContext.for_agent(other), AssembleContext(), None):
            assembly = await prompt.assemble(context)
            assert names(assembly) == [IDENTITY_SECTION, PERSONA_SECTION, "common"]
            assert assembly.sections[1].text == "global persona"
            assert assembly.variables == {"mood": "neutral"}
            assert tools(assembly) == []

        await scope.dispose()
        assert names(await prompt.assemble(AssembleContext.for_agent(agent))) == [
            IDENTITY_SECTION,
            PERSONA_SECTION,
            "common",
        ]
        compose(app.ctx.scope(agent).ctx)
        again = await prompt.assemble(AssembleContext.for_agent(agent))
        assert again.sections[1].text == "own persona"


async def test_scoped_section_keeps_the_place_of_its_twin() -> None:
    async with prompt_app() as (app, prompt):
        agent, _ = stub_agent(app.ctx)
        prompt.section(app.ctx, "one", 5, "1")
        prompt.section(app.ctx, "two", 5, "2")
        prompt.section(agent.ctx, "three", 5, "3")
        prompt.section(agent.ctx, "one", 5, "mine")
        assembly = await prompt.assemble(AssembleContext.for_agent(agent))
        assert [s.text for s in assembly.sections[2:]] == ["mine", "2", "3"]


# case: P-14
async def test_protection_against_shadowing() -> None:
    async with prompt_app() as (app, prompt):
        agent, _ = stub_agent(app.ctx)
        prompt.section(app.ctx, "rules", 1, "rules")
        prompt.section(app.ctx, "style", 1, "style")
        protection = prompt.protect(app.ctx, sections=["rules"])
        with pytest.raises(PromptError, match=r"rules.*protected") as caught:
            prompt.section(agent.ctx, "rules", 1, "no rules")
        assert caught.value.code == PromptError.PROTECTED
        mine = prompt.section(agent.ctx, "style", 1, "my style")
        with pytest.raises(PromptError, match=r"style.*already replaces"):
            prompt.protect(app.ctx, sections=["style"])
        mine.dispose_nowait()
        prompt.protect(app.ctx, sections=["style"])
        protection.dispose_nowait()
        prompt.section(agent.ctx, "rules", 1, "no rules")
        # a scope may protect its own
        prompt.protect(agent.ctx, sections=["rules"])


async def test_protection_of_an_ancestor_scope() -> None:
    async with prompt_app() as (app, prompt):
        team, member = stub_agent(app.ctx, "team")[0], stub_agent(app.ctx, "unused")[0]
        inner = app.ctx.scope(member_key := object.__new__(type("Key", (), {})), parent=team)
        assert member is not member_key
        prompt.section(team.ctx, "rules", 1, "team rules")
        prompt.section(inner.ctx, "habits", 1, "habits")
        prompt.protect(team.ctx, sections=["rules"])
        with pytest.raises(PromptError, match="protected"):
            prompt.section(inner.ctx, "rules", 1, "mine")
        with pytest.raises(PromptError, match="already replaces"):
            prompt.protect(team.ctx, sections=["habits"])
        inherited = await prompt.assemble(AssembleContext(scope=member_key))
        assert names(inherited)[2:] == ["rules", "habits"]


# case: SC-T24
async def test_shadowed_providers_are_never_called() -> None:
    async with prompt_app() as (app, prompt):
        agent, _ = stub_agent(app.ctx)
        called: list[str] = []

        def record(context: AssembleContext) -> str:
            called.append("global")
            return "global"

        prompt.section(app.ctx, "s", 1, record)
        prompt.variable(app.ctx, "v", record)
        prompt.section(agent.ctx, "s", 1, "own")
        prompt.variable(agent.ctx, "v", "own")
        assembly = await prompt.assemble(AssembleContext.for_agent(agent))
        assert (assembly.sections[2].text, assembly.variables["v"]) == ("own", "own")
        assert called == []
        await prompt.assemble()
        assert called == ["global", "global"]


# case: P-15
async def test_tools_go_by_name_without_an_order() -> None:
    async with prompt_app() as (app, prompt):
        prompt.tools(app.ctx, lambda context: [schema("zeta"), schema("Beta")])
        prompt.tools(app.ctx, lambda context: ToolProviderResult((schema("éa"), schema("alpha"))))
        assert tools(await prompt.assemble()) == ["Beta", "alpha", "zeta", "éa"]


# case: P-16
async def test_configured_tool_order() -> None:
    order = ["read", "<unlisted-tools>", "bash", "hidden"]
    async with prompt_app(tool_order=order) as (app, prompt):
        with pytest.raises(PromptError) as caught:
            await prompt.assemble()
        assert caught.value.code == PromptError.TOOL_ORDER
        assert all(f"'{name}'" in str(caught.value) for name in ("read", "bash", "hidden"))
        assert "(none)" in str(caught.value)
        offered = ["write", "bash", "read", "grep"]
        provider = prompt.tools(
            app.ctx,
            lambda context: ToolProviderResult(
                [schema(name) for name in offered], [*offered, "hidden"]
            ),
        )
        assert tools(await prompt.assemble()) == ["read", "grep", "write", "bash"]
        provider.dispose_nowait()
        prompt.tools(app.ctx, lambda context: [schema("bash"), schema("grep")])
        with pytest.raises(PromptError, match=r"'read', 'hidden'; known tools: bash, grep"):
            await prompt.assemble()


# case: P-17
@pytest.mark.parametrize(
    ("order", "token"),
    [
        ([], "<unlisted-tools>"),
        (["bash"], "<unlisted-tools>"),
        (["bash", "bash", "<unlisted-tools>"], "'bash'"),
        (["<unlisted-tools>", "<unlisted-tools>"], "'<unlisted-tools>'"),
    ],
)
async def test_unusable_orders_are_refused_at_load(order: list[str], token: str) -> None:
    async with App() as app:
        mount = app.mount(SystemPrompt, {"tool_order": order})
        with pytest.raises(ConfigError, match="tool_order") as caught:
            await mount.settled()
        assert token in str(caught.value)


# case: P-17
@pytest.mark.parametrize("config", [{}, {"tool_order": ["<unlisted-tools>"]}])
async def test_a_tool_named_like_the_marker(config: dict[str, object]) -> None:
    async with prompt_app(**config) as (app, prompt):
        prompt.tools(app.ctx, lambda context: [schema("<unlisted-tools>")])
        for _ in range(2):
            with pytest.raises(PromptError, match="<unlisted-tools>") as caught:
                await prompt.assemble()
            assert caught.value.code == PromptError.TOOL_ORDER


# case: P-18
async def test_listeners_see_the_order_and_are_not_sorted_again() -> None:
    async with prompt_app() as (app, prompt):
        twin = ToolSchema("same", "second", {})
        prompt.tools(app.ctx, lambda context: [schema("z"), schema("same")])
        prompt.tools(app.ctx, lambda context: [twin, schema("a")])
        seen: list[list[str]] = []

        async def add(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
            seen.append(tools(event.assembly))
            event.assembly.tools.append(schema("aardvark"))
            return await next()

        app.ctx.on(SystemPromptAssemble, add)
        assembly = await prompt.assemble()
        assert seen == [["a", "same", "same", "z"]]
        assert tools(assembly) == ["a", "same", "same", "z", "aardvark"]
        assert [tool.description for tool in assembly.tools[1:3]] == ["tool same", "second"]


async def test_membership_is_settled_before_the_first_provider_runs() -> None:
    async with prompt_app() as (app, prompt):

        def provider(context: AssembleContext) -> list[ToolSchema]:
            prompt.tools(app.ctx, lambda context: [schema("late")])
            return [schema("early")]

        first = prompt.tools(app.ctx, provider)
        assert tools(await prompt.assemble()) == ["early"]
        first.dispose_nowait()
        assert tools(await prompt.assemble()) == ["late"]
