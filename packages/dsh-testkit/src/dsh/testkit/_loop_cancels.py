"""Loop contract: cancels at every moment, and disposals at every event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import anyio

from dsh.agent import AgentHandle, Dropped
from dsh.agent.events import AgentStatusChanged
from dsh.llm import LlmRequest, StreamChunk
from dsh.llm_replay import ScriptedAdapter, hang, text, tool_calls
from dsh.session import (
    Aborted,
    AssistantMessage,
    Completed,
    Disposed,
)
from dsh.session.events import SessionEventAppended, SessionFlush
from dsh.testkit._loop_bench import (
    NOTE,
    LoopBench,
    cases_of,
    check_log,
    checkpoints,
    of_type,
    user_prompts,
)
from dsh.testkit._trace import assert_paired_request, soon, turn_reasons
from dsh.tools import ToolExecution

__all__ = ["CANCELS"]


async def cancelling_an_idle_agent_does_nothing(bench: LoopBench) -> None:
    """The prompt after an idle cancel is answered."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        agent.cancel()
        assert (await soon(agent.ask("a"))).ok


async def a_cancel_drops_what_is_queued(bench: LoopBench) -> None:
    """Cancelled before its turn a prompt leaves no trace; one sent afterwards runs."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        dropped = agent.send("a")
        agent.cancel("never mind")
        kept = agent.send("b")
        assert (await soon(dropped.done())).reason == Dropped("never mind")
        assert (await soon(kept.done())).ok
        assert user_prompts(agent.session) == ["b"]


async def a_cancel_when_it_begins_to_run_opens_no_turn(bench: LoopBench) -> None:
    """A listener of the status `running` may still call it off."""
    async with bench.open([text("ok")]) as opened, opened.agent() as agent:

        def cancel(event: AgentStatusChanged) -> None:
            if event.status == "running":
                agent.cancel("no")

        listener = opened.on(AgentStatusChanged, cancel)
        agent.send("a")
        await soon(agent.when_idle())
        assert len(agent.session.events) == 0
        assert opened.traces[agent].statuses == ["running", "idle"]
        listener.dispose_nowait()
        assert (await soon(agent.ask("b"))).ok


async def a_cancelled_stream_keeps_what_was_visible(bench: LoopBench) -> None:
    """The stream is left, the turn says the first reason, the visible part stays interrupted."""
    async with bench.open([hang("So far"), text("ok")]) as opened, opened.agent() as agent:
        receipt = agent.send("a")
        await soon(opened.model.waiting())
        queued = agent.send("queued")
        agent.cancel("stop it")
        agent.cancel("again")
        assert (await soon(receipt.done())).reason == Aborted("stop it")
        assert (await soon(queued.done())).reason == Dropped("stop it")
        (reply,) = of_type(agent.session, AssistantMessage)
        assert reply.interrupted
        assert "So far".startswith(_text(reply.content))
        assert reply.content
        assert (await soon(agent.ask("b"))).ok


async def a_deaf_stream_is_left_at_once(bench: LoopBench) -> None:
    """An adapter that does not listen to its signal holds up neither the turn nor the next one."""
    deaf = True

    class Deaf(ScriptedAdapter):
        async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
            if deaf:
                waiting.set()
                await anyio.sleep_forever()
            async with aclosing(super().stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk

    waiting = anyio.Event()
    async with bench.open(Deaf([text("ok")])) as opened, opened.agent() as agent:
        receipt = agent.send("a")
        await soon(waiting.wait())
        agent.cancel("enough")
        assert (await soon(receipt.done(), 2)).reason == Aborted("enough")
        deaf = False
        assert (await soon(agent.ask("b"))).ok


async def a_cancel_during_the_checkpoint_changes_nothing(bench: LoopBench) -> None:
    """A turn that is closed stays as it ended; what is sent after the cancel runs."""
    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        later: list[Any] = []

        async def flush(event: SessionFlush) -> None:
            if event.session.turn_open is not None:
                return
            if not later:
                later.append(agent.send("lost"))
                agent.cancel("too late")
                later.append(agent.send("runs"))

        opened.on(SessionFlush, flush)
        assert (await soon(agent.ask("a"))).ok
        lost, runs = later
        assert isinstance((await soon(lost.done())).reason, Dropped)
        assert (await soon(runs.done())).text == "2"
        assert turn_reasons(agent.session.events) == [Completed(), Completed()]


def _busy(request: LlmRequest) -> tuple[StreamChunk, ...]:
    spoken = sum(message.role == "assistant" for message in request.messages)
    if spoken == 0 and "and now?" not in str(request.messages[-1].content):
        return tool_calls([("c1", "busy", "{}"), ("c2", "busy", "{}")], text="Hm.")
    return text("done")


async def _work(execution: ToolExecution) -> str:
    agent = execution.agent
    assert agent is not None
    await checkpoints(2)
    if agent.status == "running":
        agent.inject(f"seen by {execution.call_id}", NOTE)
        if execution.call_id == "c2":
            agent.steer("hurry", NOTE)
    await checkpoints(2)
    return "ran"


async def _once(bench: LoopBench, moment: int, act: Callable[[AgentHandle], None]) -> int:
    """Run a busy turn and act at one event of its log, the first being 1; say how many it had."""
    count = 0
    async with bench.open(_busy) as opened:
        opened.tool("busy", _work)
        handle = await opened.make()
        agent = handle.agent

        def listen(event: SessionEventAppended) -> None:
            nonlocal count
            count += 1
            if count == moment:
                act(handle)

        opened.on(SessionEventAppended, listen)
        receipts = [agent.send("first"), agent.send("second")]
        await soon(agent.when_idle())
        total = count
        await checkpoints()
        if agent.status == "disposed":
            await soon(handle.dispose())
        assert all(receipt.settled for receipt in receipts), f"at event {moment}"
        check_log(agent.session)
        for reason in turn_reasons(agent.session.events):
            assert isinstance(reason, Completed | Aborted | Disposed), f"at event {moment}"
        if agent.status != "disposed":
            assert (await soon(agent.ask("and now?"))).text == "done"
            assert_paired_request(opened.requests[-1])
        await soon(handle.dispose())
    return total


async def _sweep(bench: LoopBench, act: Callable[[AgentHandle], None]) -> None:
    total = await _once(bench, 0, act)
    assert total > 15
    for moment in range(1, total + 1):
        await _once(bench, moment, act)


async def a_cancel_at_any_event_leaves_a_log_in_order(bench: LoopBench) -> None:
    """Whatever is under way: all is closed and answered, and the agent goes on."""
    await _sweep(bench, lambda handle: handle.agent.cancel("swept"))


async def a_disposal_at_any_event_leaves_a_log_in_order(bench: LoopBench) -> None:
    """Whatever is under way: all is closed, answered and checkpointed."""
    await _sweep(bench, lambda handle: handle.request_dispose())


def _text(content: tuple[Any, ...]) -> str:
    return "".join(getattr(block, "text", "") for block in content)


CANCELS = cases_of(
    cancelling_an_idle_agent_does_nothing,
    a_cancel_drops_what_is_queued,
    a_cancel_when_it_begins_to_run_opens_no_turn,
    a_cancelled_stream_keeps_what_was_visible,
    a_deaf_stream_is_left_at_once,
    a_cancel_during_the_checkpoint_changes_nothing,
    a_cancel_at_any_event_leaves_a_log_in_order,
    a_disposal_at_any_event_leaves_a_log_in_order,
)
"""The cases of this subject."""
