"""Loop contract: nothing happens of which the log could lose the trace."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from dsh.core import DshError, JsonObject
from dsh.llm_replay import text, tool_call, tool_calls
from dsh.session import (
    TOOL_NOT_STARTED,
    Aborted,
    AssistantChunk,
    Failed,
    ToolCall,
    ToolResult,
)
from dsh.session.events import SessionFlush
from dsh.testkit._loop_bench import LoopBench, OpenLoop, cases_of, of_type
from dsh.testkit._trace import soon
from dsh.tools import Tool, ToolExecution, ToolRegistry

__all__ = ["CHECKPOINTS"]


class DiskFull(DshError):
    """What a store says that cannot write."""

    code = "DISK_FULL"


async def a_turn_is_checkpointed_where_it_matters(bench: LoopBench) -> None:
    """Before each request, before each tool, and at the end of the turn; in this order."""
    seen: list[tuple[str, int, int]] = []
    ran = 0

    async def look(execution: ToolExecution) -> str:
        nonlocal ran
        ran += 1
        return "looked"

    async def flush(event: SessionFlush) -> None:
        seen.append((event.session.events[-1].type, len(opened.requests), ran))

    async with bench.open([tool_call("c1", "look"), text("ok")]) as opened:
        opened.tool("look", look)
        opened.on(SessionFlush, flush)
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).ok
            await soon(agent.when_idle())
        assert seen == [
            ("request/header", 0, 0),
            ("tool/call", 1, 0),
            ("step/start", 1, 1),
            ("turn/end", 2, 1),
        ]


async def a_body_begins_with_its_call_durable(bench: LoopBench) -> None:
    """Also where tools overlap: whatever a loop does, no body is ahead of the stored log."""
    durable = 0
    behind: list[str] = []

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        assert execution.agent is not None
        for event in execution.agent.session.events[durable:]:
            if isinstance(event.data, ToolCall) and event.data.call_id == execution.call_id:
                behind.append(execution.call_id)
        return "looked"

    async def flush(event: SessionFlush) -> None:
        nonlocal durable
        length = event.session.seq
        await anyio.lowlevel.checkpoint()
        durable = length

    calls = [(f"c{number}", "look", "{}") for number in range(4)]
    async with bench.open([tool_calls(calls), text("ok")]) as opened:
        tool = Tool("look", "Look.", {"type": "object"}, run, concurrent=True)
        opened.app[ToolRegistry].register(opened.ctx, tool)
        opened.on(SessionFlush, flush)
        async with opened.agent() as agent:
            assert (await soon(agent.ask("a"))).ok
        assert behind == []


async def a_failing_checkpoint_lets_no_request_through(bench: LoopBench) -> None:
    """The turn ends with the store's error, reported once; the next turn is well again."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        _fail_at(opened, "request/header")
        reason = (await soon(agent.ask("a", check=False))).reason
        assert reason == Failed(1, "no room left", DiskFull.code)
        assert opened.requests == []
        assert not of_type(agent.session, AssistantChunk)
        assert opened.reports == [(1, 1, "no room left")]
        assert (await soon(agent.ask("b"))).text == "ok"


async def a_failing_checkpoint_lets_no_tool_through(bench: LoopBench) -> None:
    """The call has an error with the store's code for its result, and the turn goes on."""
    ran: list[str] = []

    async def look(execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        return "looked"

    script = [tool_call("c1", "look"), tool_call("c2", "look"), text("ok")]
    async with bench.open(script) as opened:
        opened.tool("look", look)
        async with opened.agent() as agent:
            _fail_at(opened, "tool/call")
            assert (await soon(agent.ask("a"))).text == "ok"
            assert ran == ["c2"]
            first, second = of_type(agent.session, ToolResult)
            assert first.is_error
            assert first.error is not None
            assert first.error.code == DiskFull.code
            assert "no room left" in str(first.content)
            assert not second.is_error
            assert opened.errors == []


async def a_cancel_during_a_checkpoint_ends_the_turn(bench: LoopBench) -> None:
    """It is left at once: no request is made after it, and no tool begins."""
    ran: list[str] = []

    async def look(execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        return "looked"

    for kind, requests in (("request/header", 0), ("tool/call", 1)):
        async with bench.open([tool_call("c1", "look"), text("ok")]) as opened:
            opened.tool("look", look)
            async with opened.agent() as agent:
                waiting = _hang_at(opened, kind)
                receipt = agent.send("a")
                await soon(waiting.wait())
                agent.cancel("enough")
                assert (await soon(receipt.done())).reason == Aborted("enough"), kind
                assert len(opened.requests) == requests
                results = of_type(agent.session, ToolResult)
                codes = [result.error and result.error.code for result in results]
                assert codes == [TOOL_NOT_STARTED] * requests
                assert ran == []


async def a_disposal_during_a_checkpoint_ends_the_turn(bench: LoopBench) -> None:
    """As with a cancel; the log is closed."""
    for kind in ("request/header", "tool/call"):
        async with bench.open([tool_call("c1", "look"), text("ok")], impatient=True) as opened:
            opened.tool("look")
            handle = await opened.make()
            waiting = _hang_at(opened, kind)
            receipt = handle.agent.send("a")
            await soon(waiting.wait())
            await soon(handle.dispose(), 30)
            assert (await soon(receipt.done())).reason.kind == "disposed", kind


def _fail_at(opened: OpenLoop, kind: str) -> None:
    """Let the first checkpoint fail that has an event of one type last in the log."""
    left = 1

    async def flush(event: SessionFlush) -> None:
        nonlocal left
        if left and event.session.events[-1].type == kind:
            left -= 1
            raise DiskFull("no room left")

    opened.on(SessionFlush, flush)


def _hang_at(opened: OpenLoop, kind: str) -> anyio.Event:
    """Let every checkpoint hang that has an event of one type last in the log."""
    waiting = anyio.Event()

    async def flush(event: SessionFlush) -> None:
        if event.session.events[-1].type == kind:
            waiting.set()
            await anyio.sleep_forever()

    opened.on(SessionFlush, flush)
    return waiting


CHECKPOINTS = cases_of(
    a_turn_is_checkpointed_where_it_matters,
    a_body_begins_with_its_call_durable,
    a_failing_checkpoint_lets_no_request_through,
    a_failing_checkpoint_lets_no_tool_through,
    a_cancel_during_a_checkpoint_ends_the_turn,
    a_disposal_during_a_checkpoint_ends_the_turn,
)
"""The cases of this subject."""
