"""Cancel, dispose, leave, at every moment: nothing dangles, lives on or is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.agent import Agent, AgentHandle
from dsh.core import App
from dsh.llm_replay import server as wire
from dsh.process.testing import eventually, is_alive
from dsh.session import Aborted, Completed, Disposed, TurnEnd
from dsh.session.events import SessionEventAppended
from dsh.testkit import soon

LASTING = "sleep 300 & echo $$ $! >> pids; echo started; wait"
"""A command that does not end by itself, with a child, whose processes are noted."""


def bash(command: str, call_id: str, **more: Any) -> wire.Behaviour:
    arguments = {"command": command, "description": "x"}
    return wire.tool_call_success("bash", arguments, call_id=call_id, chunk_size=99, **more)


def busy(request: wire.WireRequest) -> wire.Behaviour:
    """Play a turn of three steps with three commands, then answer whatever is asked."""
    prompts = [m for m in request.messages if m["role"] == "user"]
    done = [m for m in request.messages if m["role"] == "tool"]
    if len(prompts) > 1:
        return wire.success("fine", chunk_size=99)
    if not done:
        calls = [
            ("a", "bash", {"command": "echo one", "description": "x"}),
            ("b", "bash", {"command": "echo two >&2; exit 3", "description": "x"}),
        ]
        return wire.tool_calls(calls, text="Hm.", reasoning="Let me see.", chunk_size=99)
    if len(done) == 2:
        return bash("echo three", "c", reasoning="Once more.")
    return wire.success("Done.", chunk_size=99)


def reasons(agent: Agent) -> list[Any]:
    return [event.data.reason for event in agent.session.events if isinstance(event.data, TurnEnd)]


async def pids_in(path: Path, count: int = 2) -> list[int]:
    """Wait until a lasting command has noted its processes, and return the latest ones."""

    def noted() -> list[str]:
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    await eventually(lambda: len(noted()) >= count)
    return [int(pid) for pid in noted()[-2:]]


def act_at(app: App, agent: Agent, number: int, action: Callable[[], object]) -> Callable[[], int]:
    """Act when an event of the agent's log is the one of this number; return a counter."""
    count = 0

    def listen(event: SessionEventAppended) -> None:
        nonlocal count
        if event.session is agent.session:
            count += 1
            if count == number:
                action()

    app.ctx.on(SessionEventAppended, listen)
    return lambda: count


# -- at every event ------------------------------------------------------------------------------


async def length_of(stack: Any) -> int:
    """Return how many events the whole turn has."""
    handle = await stack.handle()
    await soon(handle.agent.ask("go"))
    assert reasons(handle.agent) == [Completed()]
    await handle.dispose()
    return len(handle.agent.session.events)


async def test_cancelled_at_every_event(open_stack: Any) -> None:
    async with open_stack(busy) as stack:
        total = await length_of(stack)
        assert total > 40
        for number in range(1, total + 1):
            sent = len(stack.tap.bodies)
            handle = await stack.handle()
            agent = handle.agent
            act_at(stack.app, agent, number, partial(agent.cancel, "swept"))
            receipt = agent.send("go")
            await soon(receipt.done())
            await soon(agent.when_idle())
            last = number == total  # the turn's end is in the log: there is nothing to stop
            assert reasons(agent) == [Completed() if last else Aborted("swept")], number
            stack.check_log(agent.session)
            await stack.commands_are_gone()
            assert (await soon(agent.ask("and now?"))).text == "fine"
            stack.check_log(agent.session)
            stack.check_prefixes(stack.tap.bodies[sent:])
            await handle.dispose()
            assert stack.refusals == [], number
        await eventually(lambda: not active(stack))


async def test_disposed_at_every_event(open_stack: Any) -> None:
    async with open_stack(busy) as stack:
        total = await length_of(stack)
        for number in range(1, total + 1):
            sent = len(stack.tap.bodies)
            handle = await stack.handle()
            agent = handle.agent
            act_at(stack.app, agent, number, handle.request_dispose)
            receipt = agent.send("go")
            await soon(receipt.settle())
            await soon(handle.dispose())
            assert agent.status == "disposed"
            (reason,) = reasons(agent)
            assert isinstance(reason, Completed if number == total else Disposed), number
            stack.check_log(agent.session)
            await stack.commands_are_gone()
            again = await stack.handle(seed=agent.session.events)
            assert (await soon(again.agent.ask("and now?"))).text == "fine"
            stack.check_log(again.agent.session)
            stack.check_prefixes(stack.tap.bodies[sent:])
            await again.dispose()
            assert stack.refusals == [], number
        await eventually(lambda: not active(stack))


def active(stack: Any) -> list[wire.Attempt]:
    return [attempt for attempt in stack.server.attempts if attempt.outcome == "active"]


async def test_the_whole_app_left_at_every_event(open_stack: Any) -> None:
    async with open_stack(busy) as stack:
        total = await length_of(stack)
    for number in range(1, total + 1):
        reached = anyio.Event()
        async with open_stack(busy) as stack:
            handle = await stack.handle()
            act_at(stack.app, handle.agent, number, reached.set)
            handle.agent.send("go")
            await soon(reached.wait())
        # the block has looked for processes, connections and broken rules
        stack.check_log(handle.agent.session)
        (reason,) = reasons(handle.agent)
        assert isinstance(reason, Completed | Disposed), number
        assert not active(stack)


# -- at every payload ----------------------------------------------------------------------------


def long_answer() -> wire.Behaviour:
    calls = [
        ("a", "bash", {"command": "touch one", "description": "x"}),
        ("b", "bash", {"command": "touch two", "description": "x"}),
    ]
    return wire.tool_calls(calls, text="Hm, well.", reasoning="Let me see.", interleaved=True)


@pytest.mark.parametrize("action", ["cancel", "dispose"])
async def test_stopped_after_every_payload(open_stack: Any, action: str) -> None:
    whole = long_answer()
    count = sum(step.chunks for step in whole.steps if isinstance(step, wire.Send))
    gates = [wire.Gate() for _ in range(count)]

    def script(request: wire.WireRequest) -> wire.Behaviour:
        prompt = request.messages[-1]["content"]
        if not prompt.startswith("hold "):
            return wire.success("fine")
        number = int(prompt.removeprefix("hold "))
        return whole.hold(gates[number - 1], after=number)

    async with open_stack(script) as stack:
        for number in range(1, count + 1):
            sent = len(stack.tap.bodies)
            handle = await stack.handle()
            agent = handle.agent
            receipt = agent.send(f"hold {number}")
            await soon(gates[number - 1].reached())
            await anyio.wait_all_tasks_blocked()
            if action == "cancel":
                agent.cancel("swept")
                assert (await soon(receipt.done())).reason == Aborted("swept")
            else:
                await soon(handle.dispose())
                handle = await stack.handle(seed=agent.session.events)
                assert isinstance(reasons(agent)[0], Disposed)
            await soon(stack.server.attempts[-1].finished())
            assert (await soon(handle.agent.ask("and now?"))).text == "fine"
            stack.check_log(handle.agent.session)
            stack.check_prefixes(stack.tap.bodies[sent:])
            assert stack.server.attempts[-2].outcome == "client-aborted"
            await handle.dispose()
            assert stack.refusals == [], number
        assert os.listdir(stack.folder) == []


# -- inside a command ----------------------------------------------------------------------------


def lasting(request: wire.WireRequest) -> wire.Behaviour:
    """Start a command that lasts, unless the prompt is another."""
    if request.messages[-1]["role"] == "user" and request.messages[-1]["content"] == "go":
        return bash(LASTING, f"call_{request.number}", text="Starting.")
    return wire.success("fine")


async def test_a_cancel_ends_a_running_command_and_tells_of_its_output(open_stack: Any) -> None:
    async with open_stack(lasting) as stack, stack.agent() as agent:
        receipt = agent.send("go")
        pids = await pids_in(stack.folder / "pids")
        agent.cancel("enough")
        assert (await soon(receipt.done())).reason == Aborted("enough")
        assert not any(is_alive(pid) for pid in pids)
        await stack.commands_are_gone()
        assert (await soon(agent.ask("and now?"))).text == "fine"
        (result,) = [m for m in stack.messages(2) if m["role"] == "tool"]
        assert "abort" in result["content"]
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


@pytest.mark.parametrize("how", ["handle", "agent block", "app block"])
async def test_the_end_of_an_agent_ends_its_command(open_stack: Any, how: str) -> None:
    async with open_stack(lasting) as stack:
        if how == "agent block":
            async with stack.agent() as agent:
                agent.send("go")
                pids = await pids_in(stack.folder / "pids")
        else:
            handle: AgentHandle = await stack.handle()
            agent = handle.agent
            agent.send("go")
            pids = await pids_in(stack.folder / "pids")
            if how == "handle":
                await soon(handle.dispose())
        if how != "app block":
            assert not any(is_alive(pid) for pid in pids)
            assert stack.app.explain().inactive == ()
    assert not any(is_alive(pid) for pid in pids)
    assert isinstance(reasons(agent)[0], Disposed)
    stack.check_log(agent.session)


async def test_a_background_command_outlives_its_turn_and_not_the_app(open_stack: Any) -> None:
    arguments = {"command": LASTING, "description": "x", "run_in_background": True}
    script = [wire.tool_call_success("bash", arguments), wire.success("ok"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go"))).text == "ok"
        pids = await pids_in(stack.folder / "pids")
        agent.cancel("nothing to stop")
        assert (await soon(agent.ask("again"))).text == "ok"
        assert all(is_alive(pid) for pid in pids)
        stack.check_log(agent.session)
    assert not any(is_alive(pid) for pid in pids)


# -- leaving a run early -------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


# case: F-13
async def test_leaving_a_run_inside_a_command_again_and_again(open_stack: Any) -> None:
    times = 25
    async with open_stack(lasting) as stack, stack.agent() as agent:
        await soon(agent.ask("warm up"))
        before = 0
        for number in range(times):
            async with agent.run("go") as run:
                async for event in run:
                    if event.type == "tool/call":
                        break
                # every other time the command has come as far as to start a child
                pids = await pids_in(stack.folder / "pids", 1) if number % 2 else []
            assert agent.status == "idle"
            assert not any(is_alive(pid) for pid in pids)
            (stack.folder / "pids").unlink(missing_ok=True)
            await stack.commands_are_gone()
            if number == 0:
                continue  # no child so far, so that what runs children is not up yet
            before = before or descriptors()
            assert descriptors() == before, number
        assert (await soon(agent.ask("and now?"))).text == "fine"
        outcomes = [attempt.outcome for attempt in stack.server.attempts]
        assert outcomes == ["completed"] * (times + 2)
        assert stack.tap.accepted == 1
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-13
async def test_leaving_a_run_inside_an_answer_again_and_again(open_stack: Any) -> None:
    times = 50
    gates: list[wire.Gate] = []

    def script(request: wire.WireRequest) -> wire.Behaviour:
        if request.messages[-1]["content"] == "and now?":
            return wire.success("fine")
        gates.append(wire.Gate())
        return wire.success("a long answer, of which only the beginning is seen").hold(
            gates[-1], after=3
        )

    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("and now?"))).text == "fine"
        before = descriptors()
        for number in range(times):
            async with agent.run("go") as run:
                async for event in run:
                    if event.type == "assistant/chunk":
                        break
            assert agent.status == "idle"
            assert await soon(stack.server.attempts[number + 1].finished()) == "client-aborted"
        await eventually(lambda: stack.tap.open == 0)
        assert (await soon(agent.ask("and now?"))).text == "fine"
        await eventually(lambda: descriptors() == before)
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-13
async def test_an_error_of_the_embedder_inside_a_run(open_stack: Any) -> None:
    async with open_stack(lasting) as stack, stack.agent() as agent:

        async def fails() -> None:
            async with agent.run("go") as run:
                async for event in run:
                    if event.type == "tool/call":
                        raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await soon(fails())
        assert agent.status == "idle"
        await stack.commands_are_gone()
        assert (await soon(agent.ask("and now?"))).text == "fine"
        stack.check_log(agent.session)


async def test_cancelling_the_embedders_task_stops_the_turn(open_stack: Any) -> None:
    pids: list[int] = []
    async with open_stack(lasting) as stack, stack.agent() as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.ask, "go")
            pids += await pids_in(stack.folder / "pids")
            tasks.cancel_scope.cancel()
        await soon(agent.when_idle())
        assert not any(is_alive(pid) for pid in pids)
        assert isinstance(reasons(agent)[0], Aborted)
        assert (await soon(agent.ask("and now?"))).text == "fine"
        stack.check_log(agent.session)
