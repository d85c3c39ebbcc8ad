"""Helpers for tests of tools and of what stands around them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dsh.core import App
from dsh.llm import TextBlock
from dsh.system_prompt import SystemPrompt
from dsh.tools._arguments import parse_arguments
from dsh.tools._execution import ExecutionToken, ToolCallInput, ToolExecution
from dsh.tools._registry import ToolRegistry
from dsh.tools._results import ToolExecutionResult, ToolOutput
from dsh.tools._tool import Tool

if TYPE_CHECKING:
    from dsh.agent import Agent
    from dsh.core import JsonObject, JsonValue
    from dsh.llm import CancelSignal
    from dsh.session import ToolResult

__all__ = ["call_tool", "run_tool", "text_of", "tools_app"]


@asynccontextmanager
async def tools_app() -> AsyncGenerator[tuple[App, ToolRegistry]]:
    """Open an app with a prompt service and a tool registry, and nothing else."""
    async with App() as app:
        prompt, tools = app.mount(SystemPrompt), app.mount(ToolRegistry)
        await prompt.settled()
        await tools.settled()
        yield app, app[ToolRegistry]


async def call_tool(
    tools: ToolRegistry,
    name: str,
    arguments: JsonValue = None,
    *,
    call_id: str = "call-1",
    agent: Agent | None = None,
    parent: ExecutionToken | None = None,
    signal: CancelSignal | None = None,
) -> ToolExecutionResult:
    """Send a call through the whole pipeline.

    Args:
        tools: The registry.
        name: Name of the tool.
        arguments: Parsed arguments; a text is parsed as the model's would be, None means none.
        call_id: Id of the call.
        agent: Whose call it is.
        parent: Token of the execution that makes it.
        signal: Cancels it.
    """
    parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
    call = ToolCallInput(call_id, name, {} if parsed is None else parsed, agent, parent, signal)
    return await tools.execute(call)


async def run_tool(
    tool: Tool, arguments: JsonObject | None = None, execution: ToolExecution | None = None
) -> ToolOutput:
    """Run a tool without any registry; what it raises is raised.

    Args:
        tool: The tool.
        arguments: Its arguments, checked as in a real call.
        execution: What the body gets to see; a bare one when absent.
    """
    arguments = {} if arguments is None else arguments
    return await tool.run(arguments, execution or ToolExecution("call-1", tool.name, arguments))


def text_of(result: ToolExecutionResult | ToolOutput | ToolResult) -> str:
    """Return the visible text of a result, as a tool gave it or as the log keeps it."""
    return "".join(block.text for block in result.content if isinstance(block, TextBlock))
