"""Loop contract: how an agent ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from dsh.agent import AgentDisposed, AgentRegistry
from dsh.agent import events as agent_events
from dsh.agent.events import AgentStatusChanged, PreStep
from dsh.agent.loopkit import Loop
from dsh.core import Context, LifecycleDeadlock
from dsh.llm_replay import hang, text, tool_call
from dsh.session import (
    Completed,
    Disposed,
    LiveSessions,
)
from dsh.session.events import SessionDisposed, SessionFlush
from dsh.testkit._loop_bench import (
    LoopBench,
    cases_of,
)
from dsh.testkit._trace import soon
from dsh.tools import ToolExecution

__all__ = ["DISPOSAL"]


async def disposing_ends_the_turn_and_refuses_the_rest(bench: LoopBench) -> None:
    """The turn ends `disposed` and is checkpointed; waiting prompts and new verbs are refused."""
    flushed: list[str] = []

    async def flush(event: SessionFlush) -> None:
        if event.session.turn_open is not None:
            return
        flushed.append(event.session.events[-1].type)

    async with bench.open([hang("Hm")]) as opened:
        opened.on(SessionFlush, flush)
        handle = await opened.make()
        agent = handle.agent
        receipt = agent.send("a")
        await soon(opened.model.waiting())
        waiting = agent.send("b")
        await soon(handle.dispose())
        assert (await soon(receipt.done())).reason == Disposed()
        assert flushed == ["turn/end"]
        assert agent.status == "disposed"
        assert await _raises(AgentDisposed, waiting.done)
        for say in (agent.send, agent.steer, agent.inject):
            assert await _raises(AgentDisposed, partial(say, "x"))
        agent.cancel()
        await soon(agent.when_idle())
        assert opened.traces[agent].statuses == ["running", "disposed"]


async def an_end_has_its_order(bench: LoopBench) -> None:
    """The driver has stopped, then the scope ends, the agent is unlisted, the session leaves."""
    order: list[str] = []

    async def setup(ctx: Context) -> None:
        ctx.defer(lambda: order.append("scope"))

    async with bench.open([hang("Hm")]) as opened:
        opened.on(AgentStatusChanged, lambda event: order.append(event.status))
        opened.on(agent_events.AgentEnded, lambda event: order.append("agent"))
        opened.on(SessionDisposed, lambda event: order.append("session"))
        handle = await opened.make(setup=setup)
        handle.agent.send("a")
        await soon(opened.model.waiting())
        await soon(handle.dispose())
        assert order == ["running", "disposed", "scope", "agent", "session"]
        assert opened.app[AgentRegistry].list() == ()
        assert opened.app[LiveSessions].list() == ()


async def an_agent_may_end_itself(bench: LoopBench) -> None:
    """`request_dispose` works in the agent's own turn, where a wait is refused as a deadlock."""
    refused: list[type[Exception]] = []

    async def leave(execution: ToolExecution) -> str:
        for wait in (handle.dispose, handle.agent.when_idle):
            if await _raises(LifecycleDeadlock, wait):
                refused.append(LifecycleDeadlock)
        handle.request_dispose()
        return "bye"

    async with bench.open([tool_call("c1", "leave"), text("never")]) as opened:
        opened.tool("leave", leave)
        handle = await opened.make()
        receipt = handle.agent.send("a")
        assert (await soon(receipt.done())).reason == Disposed()
        await soon(handle.dispose())
        assert refused == [LifecycleDeadlock, LifecycleDeadlock]
        assert len(opened.requests) == 1


async def unloading_the_loop_takes_its_agents_along(bench: LoopBench) -> None:
    """Agents do not outlive their loop; their sessions are closed and gone."""
    async with bench.open([hang("Hm")]) as opened:
        handle = await opened.make()
        receipt = handle.agent.send("a")
        await soon(opened.model.waiting())
        await soon(opened.app[Loop].ctx.owner.dispose())
        assert (await soon(receipt.done())).reason == Disposed()
        assert opened.app[AgentRegistry].list() == ()
        await soon(handle.dispose())


async def what_hangs_does_not_hold_up_the_end(bench: LoopBench) -> None:
    """A listener that never returns is left behind, and so is a checkpoint that hangs."""

    async def stuck(event: PreStep) -> None:
        waiting.set()
        await anyio.sleep_forever()

    async def flush(event: SessionFlush) -> None:
        waiting.set()
        await anyio.sleep_forever()

    for where in ("agent/pre-step", "session/flush"):
        waiting = anyio.Event()
        async with bench.open([text("ok")], impatient=True) as opened:
            if where == "agent/pre-step":
                opened.on(PreStep, stuck)
            else:
                opened.on(SessionFlush, flush)
            handle = await opened.make()
            receipt = handle.agent.send("a")
            await soon(waiting.wait())
            await soon(handle.dispose(), 30)
            outcome = await soon(receipt.done())
            assert isinstance(outcome.reason, Disposed | Completed), where


async def _raises(kind: type[Exception], step: Callable[[], Any]) -> bool:
    """Whether a call, or what it gives to await, raises this."""
    try:
        result = step()
        if hasattr(result, "__await__"):
            await soon(result)
    except kind:
        return True
    return False


DISPOSAL = cases_of(
    disposing_ends_the_turn_and_refuses_the_rest,
    an_end_has_its_order,
    an_agent_may_end_itself,
    unloading_the_loop_takes_its_agents_along,
    what_hangs_does_not_hold_up_the_end,
)
"""The cases of this subject."""
