"""Loop contract: what a turn writes, and what the model is asked."""

from __future__ import annotations

from dsh.agent import AgentOptions, AgentRegistry, CreateAgent
from dsh.agent.events import AgentRequest, PreStep, SessionPrefix
from dsh.core import Next
from dsh.llm import LlmCallConfig, Message, TextBlock
from dsh.llm_replay import answer, max_tokens, text, tool_call
from dsh.session import (
    AssistantChunk,
    AssistantMessage,
    Completed,
    Failed,
    MaxTokens,
    MaxTurnRequests,
    MessageTrigger,
    Refusal,
    RequestHeaderDelta,
    RequestHeaderSnapshot,
    ToolCall,
    ToolResult,
    TurnStart,
    UserSource,
)
from dsh.session.testing import types_of, worked_turn
from dsh.system_prompt import PERSONA_SECTION, SystemPrompt
from dsh.testkit._loop_bench import (
    MODEL,
    NOTE,
    LoopBench,
    cases_of,
    of_type,
    refused,
    user_prompts,
)
from dsh.testkit._trace import soon, turn_reasons
from dsh.tools import ToolExecution

__all__ = ["TURNS"]


async def one_prompt_is_one_turn(bench: LoopBench) -> None:
    """A prompt and a reply are one turn of one step, in the order the grammar demands."""
    async with bench.open([text("Hello.")]) as opened, opened.agent() as agent:
        outcome = await soon(agent.ask("hi"))
        assert (outcome.turn, outcome.reason, outcome.text) == (1, Completed(), "Hello.")
        assert types_of(agent.session.events) == [
            "turn/start",
            "user/message",
            "step/start",
            "request/header",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        (start,) = of_type(agent.session, TurnStart)
        assert start == TurnStart(1, MessageTrigger(UserSource()))
        (request,) = opened.requests
        assert request.loop
        assert request.session_id == agent.session.id
        assert request.signal is not None


async def chunks_are_logged_before_the_reply(bench: LoopBench) -> None:
    """Every chunk is an event, as it came, and the reply cites them all."""
    chunks = text("a few words")
    async with bench.open([chunks]) as opened, opened.agent() as agent:
        await soon(agent.ask("hi"))
        logged = [e for e in agent.session.events if isinstance(e.data, AssistantChunk)]
        (reply,) = [e for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        streamed = [event.data.chunk for event in logged if isinstance(event.data, AssistantChunk)]
        assert streamed == list(chunks)
        assert reply.source_event_seqs == tuple(event.seq for event in logged)


async def a_tool_call_is_logged_before_it_runs(bench: LoopBench) -> None:
    """The log says `tool/call` when a tool begins, and its result cites that event."""
    seen: list[str] = []

    async def look(execution: ToolExecution) -> str:
        assert execution.agent is not None
        seen.append(execution.agent.session.events[-1].type)
        return "looked"

    async with bench.open([tool_call("c1", "look"), text("ok")]) as opened:
        opened.tool("look", look)
        async with opened.agent() as agent:
            await soon(agent.ask("hi"))
            assert seen == ["tool/call"]
            assert types_of(agent.session.events)[2:] == [
                "step/start",
                "request/header",
                "assistant/message",
                "tool/call",
                "tool/result",
                "step/end",
                "step/start",
                "assistant/message",
                "step/end",
                "turn/end",
            ]
            (call,) = [e for e in agent.session.events if isinstance(e.data, ToolCall)]
            (result,) = [e for e in agent.session.events if isinstance(e.data, ToolResult)]
            assert result.source_event_seqs == (call.seq,)


async def queued_prompts_are_all_said_in_order(bench: LoopBench) -> None:
    """Prompts sent in one go all reach the model, oldest first, in turns without a gap."""
    async with bench.open(lambda request: text("ok")) as opened, opened.agent() as agent:
        sent = ["one", "two", "three"]
        receipts = [agent.send(prompt) for prompt in sent]
        for receipt in receipts:
            assert (await soon(receipt.done())).ok
        assert user_prompts(agent.session) == sent
        turns = [start.turn for start in of_type(agent.session, TurnStart)]
        assert turns == list(range(1, len(turns) + 1))


async def each_request_extends_the_previous_one(bench: LoopBench) -> None:
    """The history only grows and the header stands once: the provider's cache keeps its worth."""
    script = [tool_call("c1", "look"), text("ok"), text("again")]
    async with bench.open(script) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            await soon(agent.ask("a"))
            await soon(agent.ask("b"))
            first, second, third = opened.requests
            for before, after in ((first, second), (second, third)):
                assert after.messages[: len(before.messages)] == before.messages
                assert (after.system, after.tools) == (before.system, before.tools)
            assert len(of_type(agent.session, RequestHeaderSnapshot)) == 1
            assert not of_type(agent.session, RequestHeaderDelta)


async def a_changed_prompt_is_logged(bench: LoopBench) -> None:
    """What changes in the system prompt is in the log before the request that has it."""
    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        await soon(agent.ask("a"))
        opened.app[SystemPrompt].section(agent.ctx, "more", 50, "Be brief.")
        await soon(agent.ask("b"))
        first, second = opened.requests
        assert "Be brief." not in (first.system or "")
        assert "Be brief." in (second.system or "")
        header = agent.session.request_header()
        assert header is not None
        assert header.system == second.system


async def pre_step_may_change_the_request(bench: LoopBench) -> None:
    """What a listener of agent/pre-step logs is part of that request."""

    async def prepare(event: PreStep) -> None:
        event.agent.inject("be careful", NOTE)

    async with bench.open([text("ok")]) as opened, opened.agent() as agent:
        opened.on(PreStep, prepare)
        await soon(agent.ask("a"))
        assert "be careful" in str(opened.requests[0].messages)


async def the_history_is_fixed_when_the_step_opens(bench: LoopBench) -> None:
    """What is injected while a request is shaped is part of the next one."""

    async def choose(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        if event.agent.session.last_turn == 1:
            event.agent.inject("too late", NOTE)
        return await next()

    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        opened.on(AgentRequest, choose)
        await soon(agent.ask("a"))
        await soon(agent.ask("b"))
        first, second = opened.requests
        assert "too late" not in str(first.messages)
        assert "too late" in str(second.messages)


async def the_prefix_is_composed_once_and_fronts_every_request(bench: LoopBench) -> None:
    """agent/session-prefix is asked once, and what it says stands before the history."""
    asked = 0
    rules = Message("user", (TextBlock("the rules"),))

    async def compose(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> tuple[Message, ...]:
        nonlocal asked
        asked += 1
        return (rules, *await next())

    async with bench.open([text("1"), text("2")]) as opened, opened.agent() as agent:
        opened.on(SessionPrefix, compose)
        await soon(agent.ask("a"))
        await soon(agent.ask("b"))
        assert asked == 1
        assert [request.messages[0] for request in opened.requests] == [rules, rules]
        assert rules not in agent.session.derive_messages()


async def a_chosen_configuration_is_sent_and_logged(bench: LoopBench) -> None:
    """agent/request decides; the log has the configuration that is sent, with the full name."""

    async def choose(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        return LlmCallConfig(MODEL, temperature=0.5)

    async with bench.open([text("ok")]) as opened, opened.agent(model=None) as agent:
        opened.on(AgentRequest, choose)
        await soon(agent.ask("a"))
        header = agent.session.request_header()
        assert header is not None
        assert (header.config.model, header.config.temperature) == (MODEL, 0.5)
        assert opened.requests[0].config == header.config


async def options_of_the_agent_reach_the_request(bench: LoopBench) -> None:
    """Temperature, stop strings and output limit of the options are what is asked for."""
    wanted = {"temperature": 0.25, "max_tokens": 77, "stop": ("END",)}
    async with bench.open([text("ok")]) as opened, opened.agent(**wanted) as agent:
        await soon(agent.ask("a"))
        (request,) = opened.requests
        sent = (request.temperature, request.max_tokens, request.stop)
        assert sent == (0.25, 77, ("END",))


async def a_missing_model_fails_the_turn(bench: LoopBench) -> None:
    """Without a model the turn fails with NO_MODEL; the agent lives on."""
    async with bench.open() as opened, opened.agent(model=None) as agent:
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "NO_MODEL"
        assert agent.status == "idle"


async def the_prompt_knows_model_and_directory(bench: LoopBench) -> None:
    """`{{model}}` and `{{cwd}}` stand for the agent's option and its session's directory."""
    async with bench.open([text("ok")]) as opened:
        prompt = opened.app[SystemPrompt]
        prompt.section(opened.ctx, PERSONA_SECTION + "-2", 1, "You are {{model}} in {{cwd}}.")
        async with opened.agent(cwd="/somewhere") as agent:
            await soon(agent.ask("a"))
            assert f"You are {MODEL} in /somewhere." in (opened.requests[0].system or "")


async def max_steps_ends_a_turn_that_wants_more(bench: LoopBench) -> None:
    """No more requests than `max_steps`; a turn that stops by itself in time completes."""
    script = [tool_call("c1", "look"), tool_call("c2", "look"), tool_call("c3", "look"), text("x")]
    async with bench.open(script) as opened:
        opened.tool("look")
        async with opened.agent(max_steps=2) as agent:
            outcome = await soon(agent.ask("a", check=False))
            assert outcome.reason == MaxTurnRequests("max_steps", 2)
            assert len(opened.requests) == 2
            assert (await soon(agent.ask("b"))).text == "x"
            assert len(opened.requests) == 4


async def max_turn_tokens_ends_a_turn_that_wants_more(bench: LoopBench) -> None:
    """A turn that has used its output tokens makes no further request."""
    script = [tool_call("c1", "look"), text("never")]
    async with bench.open(script) as opened:
        opened.tool("look")
        async with opened.agent(max_turn_tokens=1) as agent:
            outcome = await soon(agent.ask("a", check=False))
            assert outcome.reason == MaxTurnRequests("max_turn_tokens", 1)
            assert len(opened.requests) == 1


async def a_cut_off_reply_runs_nothing(bench: LoopBench) -> None:
    """After `max-tokens` and `refusal` no call of the reply is logged or run."""
    calls = [("c1", "look", "{}")]
    script = [
        answer(text="so", calls=calls, finish="max-tokens"),
        answer(text="no", calls=calls, finish="refusal"),
        max_tokens("half"),
    ]
    async with bench.open(script) as opened:
        opened.tool("look")
        async with opened.agent() as agent:
            reasons = [(await soon(agent.ask("a", check=False))).reason for _ in script]
            assert reasons == [MaxTokens(), Refusal(), MaxTokens()]
            assert not of_type(agent.session, ToolCall)
            assert not of_type(agent.session, ToolResult)


async def turns_go_on_from_a_seed(bench: LoopBench) -> None:
    """An agent on a session with a past continues its numbering and its history."""
    seed = worked_turn("before")
    async with bench.open([text("after")]) as opened:
        options = CreateAgent(seed=seed, options=AgentOptions(model=MODEL))
        handle = await opened.app[AgentRegistry].create(opened.ctx, options)
        opened.watch(handle.agent)
        async with handle as agent:
            outcome = await soon(agent.ask("and now?"))
            assert outcome.turn == 2
            assert "before" in str(opened.requests[0].messages)
            assert [reason.kind for reason in turn_reasons(agent.session.events)] == [
                "completed",
                "completed",
            ]
            headers = [header.reason for header in of_type(agent.session, RequestHeaderSnapshot)]
            assert headers[-1] == "resume", "a new driver anchors the header anew"


async def a_session_has_one_driver(bench: LoopBench) -> None:
    """The session of a live agent cannot be driven by a second one."""
    async with bench.open([text("ok")]) as opened, opened.agent(session_id="s"):
        await refused(opened.make(session_id="s"), "SESSION_ALREADY_EXISTS")


TURNS = cases_of(
    one_prompt_is_one_turn,
    chunks_are_logged_before_the_reply,
    a_tool_call_is_logged_before_it_runs,
    queued_prompts_are_all_said_in_order,
    each_request_extends_the_previous_one,
    a_changed_prompt_is_logged,
    pre_step_may_change_the_request,
    the_history_is_fixed_when_the_step_opens,
    the_prefix_is_composed_once_and_fronts_every_request,
    a_chosen_configuration_is_sent_and_logged,
    options_of_the_agent_reach_the_request,
    a_missing_model_fails_the_turn,
    the_prompt_knows_model_and_directory,
    max_steps_ends_a_turn_that_wants_more,
    max_turn_tokens_ends_a_turn_that_wants_more,
    a_cut_off_reply_runs_nothing,
    turns_go_on_from_a_seed,
    a_session_has_one_driver,
)
"""The cases of this subject."""
