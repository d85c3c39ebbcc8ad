"""How calls and results look in user interfaces."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dsh.agent.testing import stub_agent
from dsh.core import JsonObject
from dsh.llm import TextBlock
from dsh.tools import (
    CallView,
    Diff,
    DiffCard,
    DiffResult,
    GenericCard,
    GenericResult,
    Location,
    ResultView,
    TerminalCard,
    TerminalResult,
    Tool,
    ToolOutcome,
)
from dsh.tools.testing import tools_app

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}


def present_call(arguments: JsonObject) -> CallView | None:
    return TerminalCard(str(arguments.pop("command")), cwd="/w")


def present_result(arguments: JsonObject, outcome: ToolOutcome) -> ResultView | None:
    exit_code: Any = outcome.meta["exitCode"] if outcome.meta else None
    return TerminalResult(output=f"{arguments.pop('command')} ok", exit_code=exit_code)


def bash(**options: Any) -> Tool:
    return Tool("bash", "d", SCHEMA, lambda arguments, execution: "x", **options)


def test_views() -> None:
    tool = bash(present_call=present_call, present_result=present_result)
    arguments: dict[str, Any] = {"command": "ls"}
    outcome = ToolOutcome((TextBlock("x"),), meta={"exitCode": 0})
    assert tool.call_view(arguments) == TerminalCard("ls", cwd="/w")
    assert tool.result_view(arguments, outcome) == TerminalResult(output="ls ok", exit_code=0)
    assert arguments == {"command": "ls"}


# case: T-27
@pytest.mark.parametrize("arguments", [{}, {"command": 5}])
def test_presenters_never_see_arguments_that_do_not_fit(arguments: dict[str, Any]) -> None:
    seen: list[str] = []

    def see(*_: object) -> None:
        seen.append("presenter")

    tool = bash(present_call=see, present_result=see)
    assert tool.call_view(arguments) == GenericCard("bash", raw_input=arguments)
    assert tool.result_view(arguments, ToolOutcome(())) == GenericResult()
    assert seen == []


def silent(*_: object) -> None: ...


def wrong(*_: object) -> int:
    return 5


def broken(*_: object) -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize("presenter", [None, silent, wrong, broken])
def test_presenters_that_have_nothing_to_say(presenter: Any) -> None:
    tool = bash(present_call=presenter, present_result=presenter)
    assert tool.call_view({"command": "ls"}) == GenericCard("bash", raw_input={"command": "ls"})
    assert tool.result_view({"command": "ls"}, ToolOutcome(())) == GenericResult()


async def test_the_registry_presents_logged_calls() -> None:
    async with tools_app() as (app, tools):
        agent, _ = stub_agent(app.ctx)
        made = bash(present_call=present_call, present_result=present_result)
        tools.register(agent.ctx, made)
        card = tools.call_view("bash", '{"command": "ls"}', agent)
        assert card == TerminalCard("ls", cwd="/w")
        assert tools.call_view("bash", {"command": "ls"}, agent) == card
        assert tools.call_view("bash", "{broken", agent) == GenericCard("bash", raw_input="{broken")
        assert tools.call_view("gone", "", agent) == GenericCard("gone", raw_input={})
        outcome = ToolOutcome((TextBlock("x"),), meta={"exitCode": 1})
        view = tools.result_view("bash", '{"command": "ls"}', outcome, agent)
        assert view == TerminalResult(output="ls ok", exit_code=1)
        assert tools.result_view("bash", {"command": "ls"}, outcome, agent) == view
        for name, arguments in (("bash", "{broken"), ("gone", "{}")):
            assert tools.result_view(name, arguments, outcome, agent) == GenericResult()
        # a message of the debug log, no more: replay meets calls of every age
        assert logging.getLogger("dsh.tools").name == "dsh.tools"


def test_the_vocabulary() -> None:
    diff = Diff("a.py", None, "x")
    assert [
        view.card for view in (GenericCard("t"), TerminalCard("t"), DiffCard("t", (diff,)))
    ] == [
        "generic",
        "terminal",
        "diff",
    ]
    assert [view.card for view in (GenericResult(), TerminalResult(), DiffResult())] == [
        "generic",
        "terminal",
        "diff",
    ]
    card = GenericCard("t", kind="read", locations=(Location("a.py", 3),))
    assert card.locations[0].line == 3
