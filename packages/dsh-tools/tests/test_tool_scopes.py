"""Who sees which tool, who is restricted, who is guarded."""

from __future__ import annotations

from typing import Any

import pytest

from dsh.agent.testing import stub_agent
from dsh.core import Context, JsonValue, Next
from dsh.system_prompt import AssembleContext, SystemPrompt
from dsh.tools import (
    Allow,
    Deny,
    PreToolDecision,
    Tool,
    ToolExecution,
    ToolRegistrationError,
    ToolRegistry,
)
from dsh.tools.events import ToolPreExecute, ToolsChange
from dsh.tools.testing import call_tool, text_of, tools_app


def echo(name: str, text: str | None = None) -> Tool:
    return Tool(name, f"about {name}", {}, lambda arguments, call: text or name)


def names(tools: ToolRegistry, scope: object | None = None) -> list[str]:
    return [tool.name for tool in tools.visible(scope)]


class Key:
    """A scope key that is no agent."""


# case: SC-T18
async def test_visibility() -> None:
    async with tools_app() as (app, tools):
        agent, scope = stub_agent(app.ctx, "a")
        other, _ = stub_agent(app.ctx, "b")
        tools.register(app.ctx, echo("shared"))
        tools.register(agent.ctx, echo("mine"))
        assert names(tools, agent) == ["shared", "mine"]
        assert names(tools, other) == names(tools) == ["shared"]
        assert text_of(await call_tool(tools, "mine", agent=agent)) == "mine"
        hidden = await call_tool(tools, "mine", agent=other)
        nobody = await call_tool(tools, "mine")
        assert hidden.is_error
        assert hidden.error is not None
        assert hidden.error.code == "UNKNOWN_TOOL"
        assert hidden == nobody
        await scope.dispose()
        # a tool out of view is answered in the words for one that never was
        assert await call_tool(tools, "mine", agent=agent) == nobody


# case: SC-T19
@pytest.mark.parametrize("scoped_first", [True, False])
async def test_shadowing_in_any_order(scoped_first: bool) -> None:
    async with tools_app() as (app, tools):
        agent, scope = stub_agent(app.ctx)

        def register(ctx: Context, text: str) -> None:
            tools.register(ctx, echo("t", text))

        order = [(agent.ctx, "own"), (app.ctx, "global")]
        for ctx, text in order if scoped_first else reversed(order):
            register(ctx, text)
        assert names(tools, agent) == names(tools) == ["t"]
        assert text_of(await call_tool(tools, "t", agent=agent)) == "own"
        assert text_of(await call_tool(tools, "t")) == "global"
        prompt = app[SystemPrompt]
        assembly = await prompt.assemble(AssembleContext.for_agent(agent))
        assert [tool.name for tool in assembly.tools] == ["t"]
        await scope.dispose()
        assert text_of(await call_tool(tools, "t", agent=agent)) == "global"


# case: T-23
# case: SC-T20
async def test_restrictions_intersect_and_lift_alone() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        for name in ("bash", "read", "write"):
            tools.register(app.ctx, echo(name))
        tools.register(agent.ctx, echo("mine"))
        changes: list[str] = []
        app.ctx.on(ToolsChange, lambda event: changes.append("change"))
        allowed, denied = ["read", "write"], {"write"}
        allow = tools.restrict(agent.ctx, allow=allowed)
        deny = tools.restrict(agent.ctx, deny=denied)
        allowed.append("bash")
        denied.clear()
        assert names(tools, agent) == ["read", "mine"]
        assert names(tools) == ["bash", "read", "write"]
        prompt = app[SystemPrompt]
        assembly = await prompt.assemble(AssembleContext.for_agent(agent))
        assert [(tool.name, tool.description) for tool in assembly.tools] == [
            ("mine", "about mine"),
            ("read", "about read"),
        ]
        for name in ("bash", "write"):
            result = await call_tool(tools, name, agent=agent)
            assert result.error is not None
            assert result.error.code == "UNKNOWN_TOOL"
        # evaluated live: shown by a deny list, hidden by an allow list
        tools.register(app.ctx, echo("late"))
        assert names(tools, agent) == ["read", "mine"]
        allow.dispose_nowait()
        assert names(tools, agent) == ["bash", "read", "late", "mine"]
        deny.dispose_nowait()
        assert names(tools, agent) == ["bash", "read", "write", "late", "mine"]
        assert changes == ["change"] * 5
        assert tools.known_names(agent) == ("bash", "read", "write", "late", "mine")


async def test_an_empty_allow_list_hides_everything_inherited() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        tools.register(app.ctx, echo("bash"))
        tools.restrict(agent.ctx, allow=[])
        assert names(tools, agent) == []


# case: T-24
# case: SC-T20
async def test_unusable_restrictions() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        tools.register(app.ctx, echo("bash"))
        tools.register(app.ctx, echo("read"))
        tools.register(agent.ctx, echo("mine"))
        cases: list[tuple[Context, dict[str, Any], str, str]] = [
            (app.ctx, {"deny": ["bash"]}, ToolRegistrationError.UNSCOPED, "scoped context"),
            (agent.ctx, {}, ToolRegistrationError.EMPTY, "no-op"),
            (agent.ctx, {"deny": []}, ToolRegistrationError.EMPTY, "no-op"),
            (
                agent.ctx,
                {"deny": ["bahs"]},
                ToolRegistrationError.UNKNOWN_NAMES,
                "an unknown tool 'bahs'; inherited tools: bash, read",
            ),
            (
                agent.ctx,
                {"allow": ["x"], "deny": ["y", "bash"]},
                ToolRegistrationError.UNKNOWN_NAMES,
                "unknown tools 'x', 'y'",
            ),
            # what a scope has itself is not inherited
            (agent.ctx, {"deny": ["mine"]}, ToolRegistrationError.UNKNOWN_NAMES, "'mine'"),
            (
                agent.ctx,
                {"allow": "bash"},
                ToolRegistrationError.BAD_NAMES,
                "allow is the string 'bash'",
            ),
            (
                agent.ctx,
                {"deny": ["bash", 5]},
                ToolRegistrationError.BAD_NAMES,
                "deny holds something",
            ),
        ]
        for ctx, options, code, token in cases:
            with pytest.raises(ToolRegistrationError) as caught:
                tools.restrict(ctx, **options)
            assert caught.value.code == code
            assert token in str(caught.value)
        assert names(tools, agent) == ["bash", "read", "mine"]


# case: SC-T21
async def test_a_mask_filters_what_is_inherited() -> None:
    async with tools_app() as (app, tools):
        team, member, guest = Key(), Key(), Key()
        team_scope = app.ctx.scope(team)
        member_scope = app.ctx.scope(member, parent=team)
        app.ctx.scope(guest, parent=member)
        tools.register(app.ctx, echo("global"))
        tools.register(team_scope.ctx, echo("team"))
        tools.register(member_scope.ctx, echo("own"))
        assert names(tools, member) == ["global", "team", "own"]
        mask = tools.restrict(member_scope.ctx, deny=["team"])
        assert names(tools, member) == ["global", "own"]
        assert names(tools, team) == ["global", "team"]
        # a member's own tool of a masked name is its own
        tools.register(member_scope.ctx, echo("team", "mine"))
        assert names(tools, member) == ["global", "own", "team"]
        mask.dispose_nowait()
        tools.restrict(team_scope.ctx, allow=[])
        assert names(tools, team) == ["team"]
        assert names(tools, member) == ["team", "own"]
        assert names(tools, guest) == ["team", "own"]


# case: T-11
# case: SC-T22
async def test_a_guard_cannot_be_overruled() -> None:
    async with tools_app() as (app, tools):
        agent, scope = stub_agent(app.ctx)
        other, _ = stub_agent(app.ctx, "other")
        tools.register(app.ctx, echo("t"))

        def no(execution: ToolExecution) -> str | None:
            return f"not {execution.name} on a Sunday"

        first, second = tools.guard(agent.ctx, no), tools.guard(agent.ctx, no)

        async def always(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            return Allow()

        app.ctx.on(ToolPreExecute, always, prepend=True)
        result = await call_tool(tools, "t", agent=agent)
        assert result.is_error
        assert text_of(result) == "Error: not t on a Sunday"
        assert not (await call_tool(tools, "t", agent=other)).is_error
        assert not (await call_tool(tools, "t")).is_error
        first.dispose_nowait()
        assert (await call_tool(tools, "t", agent=agent)).is_error
        second.dispose_nowait()
        assert not (await call_tool(tools, "t", agent=agent)).is_error
        tools.guard(agent.ctx, no)
        await scope.dispose()
        assert not (await call_tool(tools, "t", agent=agent)).is_error


async def test_guards_run_outermost_first_and_leave_no_change_event() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        tools.register(app.ctx, echo("t"))
        changes: list[str] = []
        app.ctx.on(ToolsChange, lambda event: changes.append("change"))
        trace: list[str] = []

        def note(name: str, reason: str | None = None) -> Any:
            def guard(execution: ToolExecution) -> str | None:
                trace.append(name)
                return reason

            return guard

        tools.guard(agent.ctx, note("own", "own reason"))
        tools.guard(app.ctx, note("global"))
        result = await call_tool(tools, "t", agent=agent)
        assert trace == ["global", "own"]
        assert text_of(result) == "Error: own reason"
        tools.guard(app.ctx, note("global-2", "global reason"))
        trace.clear()
        assert text_of(await call_tool(tools, "t", agent=agent)) == "Error: global reason"
        assert trace == ["global", "global-2"]
        assert changes == []


async def test_unusable_guards() -> None:
    async with tools_app() as (app, tools):

        async def later(execution: ToolExecution) -> str | None:
            return None

        for wrong in (later, "no"):
            with pytest.raises(ToolRegistrationError) as caught:
                tools.guard(app.ctx, wrong)  # pyright: ignore[reportArgumentType]
            assert caught.value.code == ToolRegistrationError.BAD_GUARD


# case: T-25
async def test_a_scoped_policy_gates_its_agent_alone() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx, "a")
        other, _ = stub_agent(app.ctx, "b")
        tools.register(app.ctx, echo("t"))

        async def gate(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            return Deny("gated")

        agent.ctx.on(ToolPreExecute, gate)
        assert text_of(await call_tool(tools, "t", agent=agent)) == "Error: gated"
        assert text_of(await call_tool(tools, "t", agent=other)) == "t"
        assert text_of(await call_tool(tools, "t")) == "t"


async def test_a_scope_can_be_used_again() -> None:
    async with tools_app() as (app, tools):
        key = Key()
        arguments: dict[str, JsonValue] = {}
        for round_ in ("1", "2"):
            async with app.ctx.scope(key) as scope:
                tools.register(scope.ctx, echo("t", round_))
                tools.restrict(scope.ctx, allow=[])
                tools.guard(scope.ctx, lambda execution: None)
                assert tools.get("t", key) is not None
            assert tools.get("t", key) is None
        assert arguments == {}
