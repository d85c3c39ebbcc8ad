"""The ordinary ways of the loop: prompts, tools, history, numbering."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from dsh.agent import (
    AgentOptions,
    AgentRegistry,
    AllowPrompt,
    ContinuationDecision,
    Continue,
    CreateAgent,
    HookContext,
    PromptDecision,
    Stop,
    open_agent,
)
from dsh.agent.events import AgentRequest, PromptSubmit, StepResult, TurnContinuation
from dsh.agent_loop import AgentLoop
from dsh.core import JsonObject, Next, NextStream
from dsh.llm import LlmCallConfig, Message, StreamChunk, TextBlock, ToolCallBlock, ToolResultBlock
from dsh.llm.events import LlmStream
from dsh.llm_replay import ScriptedAdapter, hold, text, tool_call
from dsh.llm_replay.server import Gate
from dsh.session import (
    AssistantChunk,
    AssistantMessage,
    Completed,
    Failed,
    PluginSource,
    SessionEvent,
    SteeringMessage,
    ToolResult,
)
from dsh.session.testing import assert_balanced, types_of, user_texts, worked_turn
from dsh.system_prompt import PromptAssembly, SystemPrompt, SystemPromptAssemble
from dsh.testkit import (
    assert_paired,
    boundary_counts,
    soon,
    status_trace,
    turn_numbers,
    turn_reasons,
)
from dsh.testkit.loop_contract import loop_app
from dsh.tools import (
    Accept,
    PostToolDecision,
    Tool,
    ToolExecution,
    ToolOutput,
    ToolPostExecute,
    ToolRegistry,
    tool,
)

MODEL = "test/scripted"


@tool
async def echo(text: str) -> str:
    """Say it again.

    Args:
        text: What to say.
    """
    return text


def first(events: Sequence[SessionEvent], kind: type) -> SessionEvent:
    return next(event for event in events if isinstance(event.data, kind))


# case: L-01
async def test_one_prompt_one_reply() -> None:
    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("hello")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        outcome = await soon(agent.ask("hi"))
        events = agent.session.events
        assert types_of(events) == [
            "turn/start",
            "user/message",
            "step/start",
            "request/header",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert_balanced(events)
        assert outcome.text == "hello"
        message = first(events, AssistantMessage).data
        assert isinstance(message, AssistantMessage)
        assert message.usage is not None
        assert message.usage.output_tokens == 5
        assert [m.role for m in agent.session.derive_messages()] == ["user", "assistant"]
        assert isinstance(outcome.reason, Completed)


# case: L-02
async def test_a_tool_runs_and_its_result_reaches_the_model() -> None:
    adapter = ScriptedAdapter([tool_call("c1", "echo", {"text": "x"}), text("done")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, echo)
        await soon(agent.ask("hi"))
        call, result = adapter.requests[1].messages[1:]
        assert call.content == (ToolCallBlock("c1", "echo", '{"text":"x"}'),)
        assert result.content == (ToolResultBlock("c1", (TextBlock("x"),)),)
        events = agent.session.events
        logged = next(e for e in events if e.type == "tool/result")
        called = next(e for e in events if e.type == "tool/call")
        assert logged.source_event_seqs == (called.seq,)


# case: L-03
async def test_empty_arguments_are_an_empty_object_and_others_are_answered() -> None:
    seen: list[JsonObject] = []

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        seen.append(arguments)
        return "ok"

    probe = Tool("probe", "Take anything.", {"type": "object"}, run)
    adapter = ScriptedAdapter(
        [tool_call("c1", "probe", ""), tool_call("c2", "probe", "not json"), text("done")]
    )
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, probe)
        outcome = await soon(agent.ask("hi"))
        assert outcome.ok
        assert seen == [{}]
        results = [e.data for e in agent.session.events if isinstance(e.data, ToolResult)]
        assert [r.is_error for r in results] == [False, True]
        assert results[1].error is not None
        assert results[1].error.code == "INVALID_ARGS"
        calls = [e for e in agent.session.events if e.type == "tool/call"]
        assert getattr(calls[1].data, "arguments", None) == "not json"


# case: L-04
async def test_a_rewritten_result_keeps_the_models_call_id() -> None:
    async def rewrite(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
        return Accept((TextBlock("rewritten"),))

    adapter = ScriptedAdapter([tool_call("model-id", "echo", {"text": "x"}), text("done")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, echo)
        app.ctx.on(ToolPostExecute, rewrite)
        await soon(agent.ask("hi"))
        data = first(agent.session.events, ToolResult).data
        assert isinstance(data, ToolResult)
        assert data.call_id == "model-id"
        block = adapter.requests[1].messages[2].content[0]
        assert block == ToolResultBlock("model-id", (TextBlock("rewritten"),))


# case: L-05
async def test_a_result_with_lossy_meta_becomes_an_error_result() -> None:
    async def run(arguments: JsonObject, execution: ToolExecution) -> ToolOutput:
        return ToolOutput((TextBlock("fine"),), {"n": float("nan")})

    adapter = ScriptedAdapter([tool_call("c1", "odd"), text("done")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("odd", "Odd.", {"type": "object"}, run))
        outcome = await soon(agent.ask("hi"))
        assert outcome.ok
        data = first(agent.session.events, ToolResult).data
        assert isinstance(data, ToolResult)
        assert data.is_error
        assert data.meta is None
        block = adapter.requests[1].messages[2].content[0]
        assert isinstance(block, ToolResultBlock)
        assert block.is_error


# case: L-06
async def test_step_result_rewrites_the_text_and_adds_a_call() -> None:
    async def rewrite(event: StepResult, next: Next[Message]) -> Message:
        message = await next()
        if event.step > 1:
            return message
        return Message(
            "assistant",
            (TextBlock("polite"), ToolCallBlock("added", "echo", '{"text":"y"}')),
        )

    adapter = ScriptedAdapter([text("rude"), text("done")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, echo)
        app.ctx.on(StepResult, rewrite)
        await soon(agent.ask("hi"))
        history = agent.session.derive_messages()
        assert history[1].content[0] == TextBlock("polite")
        assert history[2].content == (ToolResultBlock("added", (TextBlock("y"),)),)
        assert adapter.requests[1].messages == history[:3]
        assert "rude" not in str(history)


# case: L-07
@pytest.mark.parametrize("oracle", ["basic"], indirect=True)  # no adapter may stream nothing
async def test_content_added_to_an_empty_stream_has_no_provenance() -> None:
    async def fill(event: StepResult, next: Next[Message]) -> Message:
        await next()
        return Message("assistant", (TextBlock("made up"),))

    async def nothing(
        event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        for chunk in ():
            yield chunk

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(StepResult, fill)
        app.ctx.on(LlmStream, nothing)
        assert (await soon(agent.ask("hi"))).text == "made up"
        logged = first(agent.session.events, AssistantMessage)
        assert logged.surface_op is not None
        assert logged.source_event_seqs is None


# case: L-08
async def test_every_delta_is_logged_raw_before_the_message() -> None:
    reply = text("abcdefghij")
    async with (
        loop_app(AgentLoop, ScriptedAdapter([reply])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        await soon(agent.ask("hi"))
        chunks = [e for e in agent.session.events if isinstance(e.data, AssistantChunk)]
        assert [getattr(e.data, "chunk", None) for e in chunks] == list(reply)
        logged = first(agent.session.events, AssistantMessage)
        assert logged.source_event_seqs == tuple(e.seq for e in chunks)
        assert logged.seq > chunks[-1].seq


# case: L-09
async def test_persona_variables_come_from_the_agent() -> None:
    adapter = ScriptedAdapter([text("a"), text("b")])
    configs = {SystemPrompt: {"persona": "You are {{model}} in {{cwd}}."}}
    async with loop_app(AgentLoop, adapter, configs=configs) as app:
        app[SystemPrompt].section(app.ctx, "guide", 105, "Use tools.")
        async with open_agent(app, model=MODEL, cwd="/work-dir") as agent:
            await soon(agent.ask("hi"))
            system = adapter.requests[0].system
            assert system is not None
            persona = system.index(f"You are {MODEL} in /work-dir.")
            assert 0 < persona < system.index("Use tools.")
        async with open_agent(app, model=MODEL) as agent:
            outcome = await soon(agent.ask("hi", check=False))
            assert isinstance(outcome.reason, Failed)
            assert outcome.reason.code == "PROMPT_NO_VALUE"
            assert "step/start" not in types_of(agent.session.events)
            assert isinstance((await soon(agent.ask("again", check=False))).reason, Failed)
        assert len(adapter.requests) == 1


# case: L-10
async def test_a_missing_model_names_both_remedies() -> None:
    async def supply(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        return LlmCallConfig(MODEL)

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("hello")])) as app,
        open_agent(app) as agent,
    ):
        outcome = await soon(agent.ask("hi", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "NO_MODEL"
        assert "has no model" in outcome.reason.message
        assert "AgentOptions.model" in outcome.reason.message
        assert "agent/request" in outcome.reason.message
        app.ctx.on(AgentRequest, supply)
        assert (await soon(agent.ask("hi"))).text == "hello"


# case: L-11
async def test_a_late_model_in_the_persona_needs_an_assembly_listener() -> None:
    async def supply(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        return LlmCallConfig(MODEL)

    async def name_it(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
        event.assembly.variables["model"] = MODEL
        return await next()

    adapter = ScriptedAdapter([text("hello")])
    configs = {SystemPrompt: {"persona": "You are {{model}}."}}
    async with loop_app(AgentLoop, adapter, configs=configs) as app, open_agent(app) as agent:
        app.ctx.on(AgentRequest, supply)
        outcome = await soon(agent.ask("hi", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "PROMPT_NO_VALUE"
        app.ctx.on(SystemPromptAssemble, name_it)
        assert (await soon(agent.ask("hi"))).ok
        assert f"You are {MODEL}." in (adapter.requests[0].system or "")


# case: L-12
async def test_an_empty_assembly_sends_no_system_prompt() -> None:
    async def clear(event: SystemPromptAssemble, next: Next[PromptAssembly]) -> PromptAssembly:
        return PromptAssembly()

    adapter = ScriptedAdapter([text("hello")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(SystemPromptAssemble, clear)
        await soon(agent.ask("hi"))
        assert adapter.requests[0].system is None
        assert adapter.requests[0].tools is None
        header = agent.session.request_header()
        assert header is not None
        assert header.system is None


# case: L-13
async def test_continuation_listeners_force_or_forbid_steps() -> None:
    async def three(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        return Continue() if event.agent.session.last_step < 3 else Stop()

    async def never(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        return Stop()

    adapter = ScriptedAdapter(
        [text("1"), text("2"), text("3"), tool_call("c1", "echo", {"text": "x"})]
    )
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, echo)
        forced = app.ctx.on(TurnContinuation, three)
        await soon(agent.ask("hi"))
        assert len(adapter.requests) == 3
        forced.dispose_nowait()
        app.ctx.on(TurnContinuation, never)
        await soon(agent.ask("hi"))
        assert len(adapter.requests) == 4
        assert "tool/result" in types_of(agent.session.events)
        assert_paired(agent.session.derive_messages())


# case: L-14
async def test_a_reason_to_continue_is_steering_before_the_next_request() -> None:
    reason = HookContext((TextBlock("check again"),), PluginSource("critic"))

    async def once(
        event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        return Continue(reason) if event.agent.session.last_step == 1 else await next()

    adapter = ScriptedAdapter([text("first"), text("second")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(TurnContinuation, once)
        await soon(agent.ask("hi"))
        steering = first(agent.session.events, SteeringMessage)
        assert steering.data == SteeringMessage(1, reason.content, reason.source)
        starts = [e.seq for e in agent.session.events if e.type == "step/start"]
        assert starts[0] < steering.seq < starts[1]
        assert "check again" in str(adapter.requests[1].messages[-1])
        assert turn_numbers(agent.session.events) == [1]


# case: L-15
async def test_a_prompt_sent_while_streaming_starts_the_next_turn_without_idle() -> None:
    gate = Gate()
    adapter = ScriptedAdapter([hold(gate, text("one")), text("two")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        trace = status_trace(app.ctx, agent)
        agent.send("first")
        await soon(adapter.waiting())
        receipt = agent.send("second")
        gate.open()
        assert (await soon(receipt.done())).text == "two"
        await soon(agent.when_idle())
        assert trace.statuses == ["running", "idle"]
        assert turn_numbers(agent.session.events) == [1, 2]
        assert user_texts(agent.session.events) == ["first", "second"]


# case: L-17
async def test_turns_go_on_from_a_seed() -> None:
    async with loop_app(AgentLoop, ScriptedAdapter([text("hello")])) as app:
        options = CreateAgent(seed=worked_turn(), options=AgentOptions(model=MODEL))
        async with await app[AgentRegistry].create(app.ctx, options) as agent:
            assert (await soon(agent.ask("hi"))).turn == 2
            assert turn_numbers(agent.session.events) == [1, 2]
            assert_paired(agent.session.derive_messages())


async def test_boundaries_are_counted_and_reasons_read() -> None:
    async def allow(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        return AllowPrompt()

    adapter = ScriptedAdapter([text("one"), text("two")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, allow)
        await soon(agent.ask("a"))
        await soon(agent.ask("b"))
        assert boundary_counts(agent.session.events) == {
            "turn/start": 2,
            "step/start": 2,
            "step/end": 2,
            "turn/end": 2,
        }
        assert turn_reasons(agent.session.events) == [Completed(), Completed()]
