"""The page of the tools that the wheels offer a model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from catalog import shapes
from catalog.shapes import Workspace
from catalog.tools_page import render, tool_plugins
from dsh.agent.events import AgentCreated
from dsh.core import EntryPoint, Plugin, PluginConfig, entry_points, inject, on, settings
from dsh.core.json import JsonObject
from dsh.core.testing import fake_entry_points
from dsh.system_prompt import SystemPrompt
from dsh.tools import Tool, ToolRegistry

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def page(workspace: Workspace) -> str:
    return render(workspace)


def nothing(arguments: JsonObject, execution: object) -> str:
    raise AssertionError("no tool is run for the page")


class Greeter(Plugin):
    """Greets."""

    name: ClassVar[str] = "greeter"

    class Config(PluginConfig):
        words: str = "Good day"
        """What to say."""

    config = settings(Config)
    tools = inject(ToolRegistry)
    system_prompt = inject(SystemPrompt)

    async def start(self) -> None:
        schema: JsonObject = {
            "properties": {
                "who": {"type": "string", "maxLength": 9, "description": "Whom | or what."},
                "times": {"type": "integer", "default": 2, "minimum": 1},
            },
            "required": ["who"],
        }
        text = f"{self.config.words}. Not ```only``` that."
        self.tools.register(
            self.ctx, Tool("greet", text, schema, nothing, concurrent=True, timeout_ms=1500)
        )
        self.system_prompt.section(self.ctx, "greeting", 120, "Greet {{who}} first.")

    @on(AgentCreated, audience="all")
    def own_tool(self, event: AgentCreated) -> None:
        tool = Tool("wave", "Wave.", {}, nothing, concurrent=lambda arguments: bool(arguments))
        self.tools.register(event.agent.ctx, tool)


class Mute(Plugin):
    """Says it offers tools and offers none."""

    tools = inject(ToolRegistry)


Add = Callable[[type[Plugin], str], Workspace]


@pytest.fixture
def add(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Return a function that installs one more wheel with one plugin."""
    groups = ("dsh.plugins", "dsh.bundles", "dsh.defaults", "dsh.seam.bash")
    points = [point for group in groups for point in entry_points(group)]
    with ExitStack() as stack:

        def install(cls: type[Plugin], wheel: str) -> Workspace:
            module = ModuleType("catalog_case_tools")
            setattr(module, cls.__name__, cls)
            monkeypatch.setitem(sys.modules, module.__name__, module)
            value = f"{module.__name__}:{cls.__name__}"
            point = EntryPoint(cls.name, value, "dsh.plugins", wheel, "1", lambda: cls)
            stack.enter_context(fake_entry_points(*points, point))
            known = next(item for item in workspace.plugins if item.name == "tool-bash")
            plugin = replace(known, name=cls.name, wheel=wheel, entry_points=(cls.name,))
            home = next(item for item in workspace.wheels if item.name == "dsh-tool-bash")
            listed = (shapes.EntryPoint("dsh.plugins", cls.name, value),)
            return replace(
                workspace,
                plugins=(*workspace.plugins, plugin),
                wheels=(*workspace.wheels, replace(home, name=wheel, entry_points=listed)),
            )

        yield install


def test_the_tools_of_the_wheels_are_there_as_the_model_sees_them(page: str) -> None:
    names = re.findall(r"^### Tool (\S+) of tool-bash$", page, re.MULTILINE)
    assert names == ["bash", "bash_output", "bash_kill"]
    assert "Run a shell command with `bash -c` and return what it printed.\n\nEach call" in page
    assert "killed after 120000 ms unless" in page
    assert "| `command` | string | yes |  | The shell command. |" in page
    assert "Section `tool:bash`, order 105:" in page
    assert "harness:identity" not in page
    schemas = [json.loads(text) for text in re.findall(r"```json\n(.*?)\n```", page, re.DOTALL)]
    assert len(schemas) == 3
    assert "run_in_background" in schemas[0]["properties"]


def test_the_page_is_the_same_every_time(workspace: Workspace, page: str) -> None:
    assert render(workspace) == page
    assert str(ROOT) not in page


def test_whoever_asks_for_the_registry_is_found_except_the_parts_of_a_bundle(
    workspace: Workspace,
) -> None:
    assert [item.name for item in tool_plugins(workspace)] == ["tool-bash"]


def test_tools_of_an_agent_alone_and_what_else_a_plugin_adds_are_told(add: Add) -> None:
    page = render(add(Greeter, "acme-greeter"))
    part = page.partition("## Plugin greeter")[2].partition("## Plugin tool-bash")[0]
    assert "In `acme-greeter`." in part
    assert "### Tool greet of greeter" in part
    assert "### Tool wave of greeter" in part
    assert "````text\nGood day. Not ```only``` that.\n````" in part
    assert "| `who` | string | yes | at most 9 characters | Whom \\| or what. |" in part
    assert "| `times` | integer | no; `2` when absent | >= 1 |  |" in part
    assert "It takes no parameters." in part
    assert "Calls of it may overlap with other calls that may." in part
    assert "depends on its arguments" in part
    assert "Its time budget is 1500 ms." in part
    assert "Section `greeting`, order 120:\n\n```text\nGreet {{who}} first.\n```" in part
    assert "[`greet`](#tool-greet-of-greeter)" in page


def test_a_tool_wheel_without_tools_is_a_finding(add: Add) -> None:
    with pytest.raises(ValueError, match="no plugin of dsh-tool-mute registers a tool"):
        render(add(Mute, "dsh-tool-mute"))


def test_a_policy_without_tools_is_left_out(add: Add) -> None:
    assert "mute" not in render(add(Mute, "dsh-policy"))
