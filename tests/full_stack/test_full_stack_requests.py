"""Every request over the wire, made again from the log alone, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio.lowlevel

from dsh.agent import (
    Agent,
    AgentOptions,
    AgentRegistry,
    AllowPrompt,
    BlockPrompt,
    CreateAgent,
    HookContext,
    PromptDecision,
    ResumeAgent,
    Retry,
)
from dsh.agent.events import AgentRequest, AgentRequestError, PromptSubmit, SessionPrefix
from dsh.core import JsonObject, Next
from dsh.llm import LlmCallConfig, LlmService, Message, TextBlock, TextDelta
from dsh.llm_replay import server as wire
from dsh.process.testing import eventually
from dsh.session import (
    AssistantChunk,
    AssistantMessage,
    PluginSource,
    RequestHeaderSnapshot,
    SessionEvent,
    TurnEnd,
    rebuild_request,
    request_steps,
)
from dsh.session.testing import types_of
from dsh.session_persistence import SessionPersistence
from dsh.session_persistence.testing import MemoryPersistence
from dsh.system_prompt import SystemPrompt
from dsh.testkit import soon
from dsh.tools import Tool, ToolExecution, ToolRegistry

NOTE = PluginSource("note")
MODEL = "deepseek/deepseek-flash"
OTHER = "deepseek/deepseek-other"


def look(name: str = "look") -> Tool:
    """Return a tool that may overlap, and says something to its agent when it is told to."""

    async def run(arguments: JsonObject, execution: ToolExecution) -> str:
        assert execution.agent is not None
        await anyio.lowlevel.checkpoint()
        if "say" in arguments:
            execution.agent.steer(str(arguments["say"]), NOTE)
            execution.agent.inject(f"seen by {execution.call_id}: é 你好 🚀", NOTE)
        return f"{name} of {execution.call_id}"

    schema: JsonObject = {"type": "object", "properties": {"say": {"type": "string"}}}
    return Tool(name, f"Have a {name}.", schema, run, concurrent=True)


def policies(stack: Any, chosen: dict[str, Any]) -> None:
    """Block, rewrite and annotate prompts, retry what is overloaded, choose as `chosen` says."""

    async def submit(event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        said = str(event.content)
        if "forbidden" in said:
            return BlockPrompt("not this one")
        if "annotated" in said:
            extra = HookContext((TextBlock("annotated by a policy"),), NOTE)
            return AllowPrompt((TextBlock("rewritten"),), extra)
        return await next()

    async def request(event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        return replace(await next(), **chosen)

    async def again(event: AgentRequestError, next: Next[Any]) -> Any:
        facts = event.failure.failure
        return Retry() if facts is not None and facts.status == 503 else await next()

    async def prefix(event: SessionPrefix, next: Next[tuple[Message, ...]]) -> Any:
        return (Message("user", (TextBlock("House rules."),)), *await next())

    stack.app.ctx.on(PromptSubmit, submit)
    stack.app.ctx.on(AgentRequest, request)
    stack.app.ctx.on(AgentRequestError, again)
    stack.app.ctx.on(SessionPrefix, prefix)


async def rendered(stack: Any, session_id: str) -> list[bytes]:
    """Return the bodies of all requests of a stored session, from what is stored of it."""
    events = await stack.app[SessionPersistence].read_from(session_id, 0)
    llm = stack.app[LlmService]
    return [llm.render(rebuild_request(events, *place)) for place in request_steps(events)]


async def test_every_request_of_a_mixed_session_is_made_again(open_stack: Any) -> None:
    gate, silent = wire.Gate(), wire.Gate()
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("a", "look", {"say": "hurry"}),
        ("b", "look", {}),
        ("c", "bash", {}),
    ]
    script = [
        wire.tool_calls(calls, text="Let me see.", reasoning="Two looks and a command."),
        wire.reasoning_success("There is é.", "Done with that."),
        wire.service_unavailable(),
        wire.success("The second attempt."),
        wire.auth_error(),
        wire.success("An answer that nobody waits for.").hold(gate, after=3),
        wire.success("Silence").hold_before(silent),
        wire.success("Another model, another prompt."),
        wire.max_tokens("It is cut"),
        wire.tool_call_success("zoom", {"say": "more"}, call_id="d"),
        wire.success("Zoomed."),
        wire.success("The fork goes its own way."),
        wire.tool_call_success("look", {}, call_id="e"),
        wire.success("And the first one goes on."),
    ]
    chosen: dict[str, Any] = {}
    async with open_stack(script, plugins=[MemoryPersistence]) as stack:
        policies(stack, chosen)
        options = AgentOptions(model=MODEL, temperature=0.3, stop=("\n\nHuman:",))
        registry = stack.app[AgentRegistry]
        create = CreateAgent(session_id="first", cwd=str(stack.folder), options=options)
        handle = await registry.create(stack.app.ctx, create)
        async with handle as agent:
            agent.ctx[ToolRegistry].register(agent.ctx, look())
            await _first_half(agent, gate, silent)
            chosen.update(model=OTHER, temperature=None, max_tokens=77)
            stack.app[SystemPrompt].section(agent.ctx, "extra", 50, "Be brief.\nAnd {{model}}.")
            agent.ctx[ToolRegistry].register(agent.ctx, look("zoom"))
            await soon(agent.ask("and now?"))
            await soon(agent.ask("too long", check=False))
            await soon(agent.ask("zoom"))
            ends = [event.seq for event in agent.session.events if isinstance(event.data, TurnEnd)]
            seed = agent.session.events[: ends[1] + 1]
        forked = CreateAgent(
            session_id="fork",
            cwd=str(stack.folder),
            parent_session="first",
            seed=seed,
            seed_length=len(seed),
            options=options,
        )
        async with await registry.create(stack.app.ctx, forked) as agent:
            await soon(agent.ask("from here"))
        chosen.clear()
        resume = ResumeAgent("first", options=AgentOptions(model=MODEL))
        async with await registry.resume(stack.app.ctx, resume) as agent:
            agent.ctx[ToolRegistry].register(agent.ctx, look())
            await soon(agent.ask("where were we?"))
            _check_log(agent.session.events)

        first, fork = await rendered(stack, "first"), await rendered(stack, "fork")
        bodies = list(stack.tap.bodies)
        assert len(bodies) == len(script)
        # the fork says again what it has inherited, and then its own
        assert first == [*bodies[:11], *bodies[12:]]
        assert fork[-1] == bodies[11]
        assert fork[:-1] == bodies[: len(fork) - 1]


async def _first_half(agent: Agent, gate: wire.Gate, silent: wire.Gate) -> None:
    agent.inject("known from the start", NOTE)
    prompts = [agent.send(said) for said in ("annotated", "forbidden", "look twice")]
    await soon(prompts[-1].done())
    await soon(agent.ask("forbidden", check=False))
    await soon(agent.ask("overloaded"))
    await soon(agent.ask("refused", check=False))
    for reached, visible in ((gate, True), (silent, False)):
        receipt = agent.send("wait")
        await soon(reached.reached())
        if visible:
            await eventually(lambda: _said(agent))
        agent.cancel("enough")
        await soon(receipt.done())


def _said(agent: Agent) -> bool:
    """Whether the model has begun to speak in the open step."""
    data = agent.session.events[-1].data
    return isinstance(data, AssistantChunk) and isinstance(data.chunk, TextDelta)


def _check_log(events: Sequence[SessionEvent]) -> None:
    """Fail unless all of it has happened."""
    types = types_of(events)
    for kind in ("prompt/blocked", "steering/message", "context/message", "request/header-delta"):
        assert kind in types, kind
    replies = [event.data for event in events if isinstance(event.data, AssistantMessage)]
    assert sum(reply.interrupted for reply in replies) == 1
    whole = [event.data.reason for event in events if isinstance(event.data, RequestHeaderSnapshot)]
    assert whole == ["initial", "resume"]
