"""Tool batches: pairing whatever happens, context after results, calls that overlap."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dsh.agent import open_agent
from dsh.agent.events import StepResult
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next
from dsh.llm import (
    BlockStart,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    ToolResultBlock,
)
from dsh.llm_replay import Hang, ScriptedAdapter, hang, text, tool_call, tool_calls
from dsh.llm_replay.server import Gate
from dsh.session import (
    TOOL_NOT_STARTED,
    Aborted,
    AssistantMessage,
    Completed,
    ContextMessage,
    PluginSource,
    ToolCall,
    ToolResult,
)
from dsh.session.events import SessionEventAppended
from dsh.session.testing import assert_balanced, reloaded, types_of
from dsh.testkit import assert_paired, assert_paired_request, soon, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import (
    Accept,
    Deny,
    HookContext,
    PostToolDecision,
    PreToolDecision,
    Tool,
    ToolExecution,
    ToolFinished,
    ToolPostExecute,
    ToolPreExecute,
    ToolRegistry,
)

MODEL = "test/scripted"
GUARD = PluginSource("guard")


def results_of(agent: Any) -> list[tuple[str, str | None]]:
    return [
        (e.data.call_id, None if e.data.error is None else e.data.error.code)
        for e in agent.session.events
        if isinstance(e.data, ToolResult)
    ]


# case: U-01
async def test_context_injected_by_a_tool_is_logged_after_the_results() -> None:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        assert execution.agent is not None
        execution.agent.inject(f"note of {execution.call_id}", GUARD)
        return "ran"

    adapter = ScriptedAdapter([tool_calls([("c1", "a", "{}"), ("c2", "a", "{}")]), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("a", "A.", {"type": "object"}, run))
        await soon(agent.ask("x"))
        kinds = types_of(agent.session.events)
        assert kinds[kinds.index("tool/call") : kinds.index("step/end")] == [
            "tool/call",
            "tool/result",
            "tool/call",
            "tool/result",
            "context/message",
            "context/message",
        ]
        assert_paired_request(adapter.requests[1])
        assert "note of c2" in str(adapter.requests[1].messages[-1])


# case: U-02
async def test_the_visible_part_of_a_cancelled_reply_is_kept() -> None:
    chunks = (
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "thinking"),
        BlockStart(1, "text"),
        TextDelta(1, "Hello, wor"),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, "c1", '{"pa', "a"),
    )
    adapter = ScriptedAdapter([Hang(chunks), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        receipt = agent.send("x")
        await soon(adapter.waiting())
        agent.cancel("enough")
        outcome = await soon(receipt.done())
        assert outcome.reason == Aborted("enough")
        assert outcome.text == "Hello, wor"
        (event,) = [e for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        assert isinstance(event.data, AssistantMessage)
        assert event.data.interrupted
        assert event.data.content == (ReasoningBlock("thinking"), TextBlock("Hello, wor"))
        cited = [e.seq for e in agent.session.events if e.type == "assistant/chunk"]
        assert event.source_event_seqs == tuple(cited)
        await soon(agent.ask("y"))
        assert "Hello, wor" in str(adapter.requests[1].messages)
        assert_paired_request(adapter.requests[1])


# case: U-02
@pytest.mark.parametrize(
    "chunks", [(), (BlockStart(0, "tool-call"), ToolCallDelta(0, "c1", "{", "a"))]
)
async def test_nothing_is_kept_of_a_cancelled_reply_that_showed_nothing(chunks: Any) -> None:
    adapter = ScriptedAdapter([Hang(chunks)])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        receipt = agent.send("x")
        await soon(adapter.waiting())
        agent.cancel()
        await soon(receipt.done())
        assert "assistant/message" not in types_of(agent.session.events)


# case: U-03
async def test_cancelling_while_the_reply_is_announced_answers_every_call() -> None:
    ran: list[str] = []

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        return "ran"

    def cancel(event: SessionEventAppended) -> None:
        if isinstance(event.event.data, AssistantMessage):
            agent.cancel("no tools today")

    adapter = ScriptedAdapter([tool_calls([("c1", "a", "{}"), ("c2", "a", "{}")]), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("a", "A.", {"type": "object"}, run))
        listener = app.ctx.on(SessionEventAppended, cancel)
        await soon(agent.ask("x", check=False))
        assert ran == []
        assert results_of(agent) == [("c1", TOOL_NOT_STARTED), ("c2", TOOL_NOT_STARTED)]
        assert "tool/call" not in types_of(agent.session.events)
        assert_paired(agent.session.derive_messages())
        listener.dispose_nowait()
        await soon(agent.ask("y"))
        assert_paired_request(adapter.requests[1])


# case: U-04
async def test_context_of_a_completed_call_survives_an_abort() -> None:
    async def annotate(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
        note = HookContext((TextBlock(f"about {event.execution.call_id}"),), GUARD)
        return Accept(additional_context=note)

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        if execution.call_id == "c2":
            assert execution.agent is not None
            execution.agent.cancel("stop")
        return "ran"

    calls = [("c1", "a", "{}"), ("c2", "a", "{}"), ("c3", "a", "{}")]
    async with (
        loop_app(AgentLoop, ScriptedAdapter([tool_calls(calls)])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app[ToolRegistry].register(app.ctx, Tool("a", "A.", {"type": "object"}, run))
        app.ctx.on(ToolPostExecute, annotate)
        await soon(agent.ask("x", check=False))
        assert results_of(agent) == [("c1", None), ("c2", None), ("c3", TOOL_NOT_STARTED)]
        notes = [e.data.content for e in agent.session.events if isinstance(e.data, ContextMessage)]
        assert notes == [(TextBlock("about c1"),), (TextBlock("about c2"),)]
        assert_paired(agent.session.derive_messages())
        assert_balanced(agent.session.events)


# case: U-05
async def test_the_first_cause_wins() -> None:
    adapter = ScriptedAdapter([hang()])
    async with loop_app(AgentLoop, adapter) as app:
        async with open_agent(app, model=MODEL) as agent:
            agent.send("x")
            await soon(adapter.waiting())
            agent.cancel("first")
            agent.cancel("second")
        assert turn_reasons(agent.session.events) == [Aborted("first")]


# case: U-10
async def test_only_calls_that_say_so_overlap_and_results_keep_call_order() -> None:
    running: list[str] = []
    peaks: list[frozenset[str]] = []
    gates = {name: Gate() for name in ("p1", "p2", "p3")}
    finished: list[str] = []

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        running.append(execution.call_id)
        peaks.append(frozenset(running))
        if execution.call_id in gates:
            await gates[execution.call_id].pass_through()
        running.remove(execution.call_id)
        return f"result of {execution.call_id}"

    def raising(arguments: JsonObject) -> bool:
        raise ValueError("no idea")

    def truthy(arguments: JsonObject) -> bool:
        return 1  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    schema: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [
        Tool("safe", "S.", schema, run, concurrent=lambda arguments: True),
        Tool("flag", "F.", schema, run, concurrent=True),
        Tool("truthy", "T.", schema, run, concurrent=truthy),
        Tool("raising", "R.", schema, run, concurrent=raising),
        Tool("plain", "P.", schema, run),
    ]
    calls = [
        ("p1", "safe", "{}"),
        ("p2", "flag", "{}"),
        ("p3", "safe", "{}"),
        ("x1", "truthy", "{}"),
        ("x2", "raising", "{}"),
        ("x3", "plain", "{}"),
        ("x4", "safe", '{"n": "wrong"}'),
        ("x5", "unknown", "{}"),
    ]
    adapter = ScriptedAdapter([tool_calls(calls), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        for tool in tools:
            app[ToolRegistry].register(app.ctx, tool)
        app.ctx.on(ToolFinished, lambda event: finished.append(event.execution.call_id))
        receipt = agent.send("x")
        for gate in gates.values():
            await soon(gate.reached())
        for name in ("p3", "p2", "p1"):
            gates[name].open()
            await anyio.wait_all_tasks_blocked()
        assert (await soon(receipt.done())).ok
        assert frozenset({"p1", "p2", "p3"}) in peaks
        assert all(len(peak) == 1 for peak in peaks if not peak & set(gates))
        order = [call_id for call_id, _, _ in calls]
        assert [call_id for call_id, _ in results_of(agent)] == order
        assert finished == order
        assert_paired_request(adapter.requests[1])


# case: U-10
async def test_a_batch_is_bounded_and_policies_look_in_call_order() -> None:
    looked: list[str] = []
    running = 0
    peak = 0

    async def look(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        looked.append(event.execution.call_id)
        return Deny("not this one") if event.execution.call_id == "c2" else await next()

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await anyio.wait_all_tasks_blocked()
        running -= 1
        return "ran"

    calls = [(f"c{n}", "safe", "{}") for n in range(1, 8)]
    adapter = ScriptedAdapter([tool_calls(calls), text("ok")])
    configs = {AgentLoop: {"max_parallel_tools": 3}}
    async with (
        loop_app(AgentLoop, adapter, configs=configs) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        tool = Tool("safe", "S.", {"type": "object"}, run, concurrent=True)
        app[ToolRegistry].register(app.ctx, tool)
        app.ctx.on(ToolPreExecute, look)
        await soon(agent.ask("x"))
        assert looked == [f"c{n}" for n in range(1, 8)]
        assert peak == 3
        assert [call_id for call_id, _ in results_of(agent)] == looked
        kinds = [kind for kind in types_of(agent.session.events) if kind.startswith("tool/")]
        assert kinds[:7] == ["tool/call"] * 3 + ["tool/result"] * 3 + ["tool/call"]


async def test_cancelling_a_batch_keeps_what_arrived_and_answers_the_rest() -> None:
    gate = Gate()

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        if execution.call_id == "c2":
            await gate.pass_through()
            assert execution.signal is not None
            await execution.signal.wait()
            return "stopped early"
        return "ran"

    calls = [("c1", "safe", "{}"), ("c2", "safe", "{}"), ("c3", "plain", "{}")]
    adapter = ScriptedAdapter([tool_calls(calls)])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        for tool in (
            Tool("safe", "S.", {"type": "object"}, run, concurrent=True),
            Tool("plain", "P.", {"type": "object"}, run),
        ):
            app[ToolRegistry].register(app.ctx, tool)
        receipt = agent.send("x")
        await soon(gate.reached())
        gate.open()
        agent.cancel("stop")
        assert (await soon(receipt.done())).reason == Aborted("stop")
        assert results_of(agent) == [("c1", None), ("c2", None), ("c3", TOOL_NOT_STARTED)]
        assert "stopped early" in str(agent.session.derive_messages())
        assert_paired(agent.session.derive_messages())


# case: F-30
@pytest.mark.parametrize(
    ("written", "logged"),
    [
        ("functions.bash", "functions_bash"),
        ("bash\n", "bash"),
        ("bad name!", "bad_name_"),
        ("x" * 65, "x" * 64),
        ("w\u00f6rd", "w_rd"),
        (" ", "unknown_tool"),
    ],
)
async def test_a_name_no_provider_takes_back_is_cleaned(written: str, logged: str) -> None:
    adapter = ScriptedAdapter([tool_call("a", written), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        await soon(agent.ask("x"))
        calls = [event.data for event in agent.session.events if isinstance(event.data, ToolCall)]
        assert [call.name for call in calls] == [logged]
        assert_paired_request(adapter.requests[-1])


# case: F-30
async def test_ids_and_names_are_made_unique_and_present() -> None:
    script = [
        tool_call("same", "a"),
        tool_calls([("same", "a", "{}"), ("", "a", "{}"), ("", "", "{}")]),
        tool_calls([("call_1_2_1", "a", "{}"), ("call_1_2_1", "a", "{}")]),
        text("ok"),
        text("again"),
    ]

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        return "ran"

    adapter = ScriptedAdapter(script)
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("a", "A.", {"type": "object"}, run))
        await soon(agent.ask("x"))
        await soon(agent.ask("y"))
        for request in adapter.requests:
            assert_paired_request(request)
        blocks = [
            (block.id, block.name)
            for message in agent.session.derive_messages()
            for block in message.content
            if isinstance(block, ToolCallBlock)
        ]
        assert blocks == [
            ("same", "a"),
            ("call_1_2_0", "a"),
            ("call_1_2_1", "a"),
            ("call_1_2_2", "unknown_tool"),
            ("call_1_3_0", "a"),
            ("call_1_3_1", "a"),
        ]
        raw = [getattr(e.data, "chunk", None) for e in agent.session.events]
        ids = [chunk.id for chunk in raw if isinstance(chunk, ToolCallDelta)]
        assert ids.count("same") == 4


# case: F-25
# case: F-26
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize(
    ("arguments", "fine"),
    [
        ('{"a": "x', False),
        ("", None),
        ("[1]", False),
        ('"str"', False),
        ("null", False),
        ('{"a": "line\\nbreak"}', True),
        ('{"a": "raw\nbreak"}', False),
    ],
)
async def test_malformed_arguments_are_answered_and_never_run(
    arguments: str, fine: bool | None, required: bool
) -> None:
    ran: list[JsonObject] = []

    async def run(given: JsonObject, execution: ToolExecution) -> str:
        ran.append(given)
        return "ran"

    schema: JsonObject = {"type": "object", "properties": {"a": {"type": "string"}}}
    if required:
        schema["required"] = ["a"]
    adapter = ScriptedAdapter([tool_call("c1", "t", arguments), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", schema, run))
        outcome = await soon(agent.ask("x"))
        assert isinstance(outcome.reason, Completed)
        block = adapter.requests[1].messages[2].content[0]
        assert isinstance(block, ToolResultBlock)
        if fine is None:
            fine = not required
        assert block.is_error is not fine
        assert bool(ran) is fine
        if not fine:
            assert results_of(agent) == [("c1", "INVALID_ARGS")]


# case: F-27
@pytest.mark.parametrize("finish", ["max-tokens", "stop"])
async def test_a_truncated_call_is_never_executed(finish: str) -> None:
    ran: list[str] = []

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        ran.append(execution.call_id)
        return "ran"

    adapter = ScriptedAdapter(
        [tool_calls([("c1", "t", '{"path": "/etc/pas')], finish=finish), text("ok"), text("ok")]
    )
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        await soon(agent.ask("x", check=False))
        await soon(agent.ask("y"))
        assert ran == []
        for request in adapter.requests:
            assert_paired_request(request)


# case: F-28
async def test_control_characters_are_carried_and_poison_nothing() -> None:
    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        return f"\x00\x1b[31m{arguments['a']}\x07"

    adapter = ScriptedAdapter(
        [tool_call("c1", "t", {"a": "nul\x00 bell\x07 esc\x1b"}), text("ok"), text("again")]
    )
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("t", "T.", {"type": "object"}, run))
        assert (await soon(agent.ask("x"))).text == "ok"
        assert (await soon(agent.ask("y"))).text == "again"
        again = reloaded(agent.session)
        assert again.derive_messages() == agent.session.derive_messages()
        assert_paired(again.derive_messages())


# case: F-28
async def test_a_lone_surrogate_in_a_reply_fails_its_turn_only() -> None:
    adapter = ScriptedAdapter(
        [tool_call("c1", "t", '{"a": "\ud800"}'), text("ok")], placeholders=False
    )
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        outcome = await soon(agent.ask("x", check=False))
        assert not outcome.ok
        assert (await soon(agent.ask("y"))).text == "ok"
        assert_balanced(agent.session.events)
        assert_paired_request(adapter.requests[-1])


async def test_step_result_sees_calls_before_their_ids_are_made_unique() -> None:
    seen: list[str] = []

    async def look(event: StepResult, next: Next[Message]) -> Message:
        message = await next()
        seen.extend(b.id for b in message.content if isinstance(b, ToolCallBlock))
        return message

    adapter = ScriptedAdapter([tool_call("", "a"), text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(StepResult, look)
        await soon(agent.ask("x"))
        assert seen == [""]
        assert results_of(agent) == [("call_1_1_0", "UNKNOWN_TOOL")]
