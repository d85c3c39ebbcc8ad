"""A tool that says its task is to end, which nobody has asked for: that is its result alone."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from dsh.core import JsonObject
from dsh.tools import Tool, ToolExecution
from dsh.tools.testing import call_tool, run_tool, text_of, tools_app

STRAYS: dict[str, Any] = {
    "cancelled": asyncio.CancelledError,
    "left": GeneratorExit,
    "both": lambda: BaseExceptionGroup("x", [ValueError("v"), asyncio.CancelledError()]),
    "left in a group": lambda: BaseExceptionGroup("x", [GeneratorExit()]),
}


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Only asyncio lets anybody else raise its cancellation."""
    return str(request.param)


async def answer_of(body: Any, **more: Any) -> str:
    async with tools_app() as (app, tools):
        tools.register(app.ctx, Tool("t", "d", {}, body, **more))
        result = await call_tool(tools, "t")
        assert result.is_error
        assert result.error is not None
        assert result.error.code == "INVALID_RESULT"
        # the registry and its app are none the worse for it
        await anyio.lowlevel.checkpoint()
        tools.register(app.ctx, Tool("u", "d", {}, lambda a, e: "well", inline=True))
        assert text_of(await call_tool(tools, "u")) == "well"
        return text_of(result)


@pytest.mark.parametrize("how", STRAYS)
@pytest.mark.parametrize("kind", ["async", "inline", "thread"])
async def test_a_stray_end_of_a_body_is_an_error_result(how: str, kind: str) -> None:
    async def waits(arguments: JsonObject, execution: ToolExecution) -> str:
        await anyio.lowlevel.checkpoint()
        raise STRAYS[how]()

    def runs(arguments: JsonObject, execution: ToolExecution) -> str:
        raise STRAYS[how]()

    body = waits if kind == "async" else runs
    assert "Error: the tool " in await answer_of(body, inline=kind == "inline")


async def test_a_body_that_waits_for_something_cancelled_gets_an_error_result() -> None:
    async def waits(arguments: JsonObject, execution: ToolExecution) -> str:
        other = asyncio.ensure_future(asyncio.sleep(3600))
        other.cancel()
        await other
        return "never"

    answer = await answer_of(waits)
    assert answer == "Error: the tool was cancelled by something it waited for"


@pytest.mark.parametrize("saves", [True, False])
async def test_a_call_that_is_cancelled_gives_what_its_body_saved(saves: bool) -> None:
    async def stubborn(arguments: JsonObject, execution: ToolExecution) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if not saves:
                raise
        return "saved"

    outputs: list[str] = []
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(stop, scope)
            tool = Tool("t", "d", {}, stubborn)
            outputs.append(text_of(await run_tool(tool)))
    assert outputs == (["saved"] if saves else [])


async def stop(scope: anyio.CancelScope) -> None:
    await anyio.wait_all_tasks_blocked()
    scope.cancel()
