"""How prompts get into a turn, changed or not, or stay out."""

from __future__ import annotations

from dsh.agent import (
    AllowPrompt,
    Blocked,
    BlockPrompt,
    ContinuationDecision,
    HookContext,
    PromptDecision,
    open_agent,
)
from dsh.agent.events import AgentError, PreStep, PromptSubmit, TurnContinuation
from dsh.agent_loop import AgentLoop
from dsh.core import Context, JsonObject, Next
from dsh.llm import Message, TextBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_call
from dsh.session import (
    Aborted,
    Completed,
    ContextMessage,
    Failed,
    PluginSource,
    PromptBlocked,
    Rejected,
    UserSource,
)
from dsh.session.testing import assert_balanced, types_of, user_texts
from dsh.testkit import soon, turn_reasons
from dsh.testkit.loop_contract import loop_app
from dsh.tools import (
    PostToolDecision,
    PreToolDecision,
    Tool,
    ToolExecution,
    ToolPostExecute,
    ToolPreExecute,
    ToolRegistry,
)

MODEL = "test/scripted"
NOTE = HookContext((TextBlock("the date is known"),), PluginSource("calendar"))


# case: A-01
async def test_prompts_are_allowed_rewritten_and_annotated() -> None:
    async def rewrite(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        if event.content == (TextBlock("plain"),):
            return await next()
        return AllowPrompt((TextBlock("rewritten"),), NOTE)

    adapter = ScriptedAdapter([text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, rewrite)
        await soon(agent.ask("plain"))
        await soon(agent.ask("secret original"))
        assert user_texts(agent.session.events) == ["plain", "rewritten"]
        assert "secret original" not in str(agent.session.events[:])
        context = [e.data for e in agent.session.events if isinstance(e.data, ContextMessage)]
        assert context == [ContextMessage(NOTE.content, NOTE.source)]
        sent = str(adapter.requests[1].messages)
        assert "plain" in sent
        assert "rewritten" in sent
        assert "the date is known" in sent


# case: A-02
async def test_pre_step_sees_the_rewrite_and_the_context() -> None:
    histories: list[tuple[Message, ...]] = []

    async def rewrite(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        return AllowPrompt((TextBlock("rewritten"),), NOTE)

    async def look(event: PreStep) -> None:
        histories.append(event.agent.session.derive_messages())

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("1")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(PromptSubmit, rewrite)
        app.ctx.on(PreStep, look)
        await soon(agent.ask("original"))
        seen = str(histories[0])
        assert "rewritten" in seen
        assert "the date is known" in seen
        assert "original" not in seen


# case: A-03
async def test_a_blocked_prompt_is_a_rejected_turn_without_a_step() -> None:
    async def block(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        return BlockPrompt("not on a sunday")

    adapter = ScriptedAdapter()
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, block)
        outcome = await soon(agent.ask("work", check=False))
        assert outcome.reason == Blocked("not on a sunday")
        events = agent.session.events
        assert types_of(events) == ["turn/start", "prompt/blocked", "turn/end"]
        assert events[1].data == PromptBlocked(
            (TextBlock("work"),), UserSource(), "not on a sunday"
        )
        assert turn_reasons(events) == [Rejected("not on a sunday")]
        assert_balanced(events)
        assert not adapter.calls


# case: A-04
async def test_a_mixed_batch_runs_and_keeps_the_trace_of_the_veto() -> None:
    async def block_first(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        if event.content == (TextBlock("bad"),):
            return BlockPrompt("no")
        return await next()

    adapter = ScriptedAdapter([text("ok")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, block_first)
        bad, good = agent.send("bad"), agent.send("good")
        assert (await soon(good.done())).ok
        assert (await soon(bad.done())).reason == Blocked("no")
        assert user_texts(agent.session.events) == ["good"]
        assert types_of(agent.session.events).count("prompt/blocked") == 1
        assert turn_reasons(agent.session.events) == [Completed()]


# case: A-05
async def test_a_raising_listener_fails_its_turn_only() -> None:
    errors: list[AgentError] = []
    failing = True

    async def sometimes(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        nonlocal failing
        if failing:
            failing = False
            raise ValueError("policy is down")
        return await next()

    async with (
        loop_app(AgentLoop, ScriptedAdapter([text("ok")])) as app,
        open_agent(app, model=MODEL) as agent,
    ):
        app.ctx.on(PromptSubmit, sometimes)
        app.ctx.on(AgentError, errors.append)
        outcome = await soon(agent.ask("a", check=False))
        assert outcome.reason == Failed(0, "policy is down")
        assert (await soon(agent.ask("b"))).ok
        assert [(e.turn, e.step, str(e.error)) for e in errors] == [(1, 0, "policy is down")]
        assert_balanced(agent.session.events)


# case: A-06
async def test_a_guard_plugin_on_four_seams_is_inert_after_its_disposal() -> None:
    heard: list[str] = []

    async def guard(ctx: Context, config: object) -> None:
        async def prompt(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
            heard.append("prompt")
            if "forbidden" in str(event.content):
                return BlockPrompt("forbidden word")
            return await next()

        async def pre(event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
            heard.append("pre")
            return await next()

        async def post(event: ToolPostExecute, next: Next[PostToolDecision]) -> PostToolDecision:
            heard.append("post")
            return await next()

        async def go(
            event: TurnContinuation, next: Next[ContinuationDecision]
        ) -> ContinuationDecision:
            heard.append("continuation")
            return await next()

        ctx.on(PromptSubmit, prompt)
        ctx.on(ToolPreExecute, pre)
        ctx.on(ToolPostExecute, post)
        ctx.on(TurnContinuation, go)

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        return "ran"

    adapter = ScriptedAdapter([tool_call("c1", "a"), text("1"), text("2")])
    async with loop_app(AgentLoop, adapter) as app, open_agent(app, model=MODEL) as agent:
        app[ToolRegistry].register(app.ctx, Tool("a", "A.", {"type": "object"}, run))
        mount = app.mount(guard)
        await mount.settled()
        assert (await soon(agent.ask("hi"))).ok
        assert heard == ["prompt", "pre", "post", "continuation", "continuation"]
        outcome = await soon(agent.ask("forbidden", check=False))
        assert outcome.reason == Blocked("forbidden word")
        await mount.dispose()
        heard.clear()
        assert (await soon(agent.ask("forbidden"))).ok
        assert heard == []


# case: A-07
async def test_an_all_blocked_batch_is_rejected_even_when_it_is_cancelled() -> None:
    async def block(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        event.agent.cancel("changed my mind")
        return BlockPrompt("no")

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, block)
        await soon(agent.ask("a", check=False))
        assert turn_reasons(agent.session.events) == [Rejected("no")]
        assert not isinstance(turn_reasons(agent.session.events)[0], Aborted)


async def test_something_that_is_no_decision_fails_the_turn() -> None:
    async def odd(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        return True  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async with loop_app(AgentLoop, ScriptedAdapter()) as app, open_agent(app, model=MODEL) as agent:
        app.ctx.on(PromptSubmit, odd)
        outcome = await soon(agent.ask("a", check=False))
        assert isinstance(outcome.reason, Failed)
        assert outcome.reason.code == "BAD_DECISION"
