"""Adapter contract: what is asked, and how the adapter stands in the service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from dsh.core import App, JsonObject
from dsh.llm import (
    Finish,
    LlmRequest,
    LlmService,
    Message,
    StreamGrammar,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    to_wire,
)
from dsh.llm_replay import server as wire
from dsh.testkit._llm_bench import Bench, cases_of

__all__ = ["REQUESTS"]

_BROKEN_ARGUMENTS: Final = '{"command": "pwd"'

_SKIPPED: Final = frozenset(
    {"stall", "stall_before_headers", "endless_comments", "slow_success", "oversized_event"}
)
"""Behaviours that take for ever or for long."""


def _conversation(bench: Bench, **fields: Any) -> LlmRequest:
    """Build a request that holds a bit of everything."""
    parameters: JsonObject = {"type": "object", "properties": {"command": {"type": "string"}}}
    return LlmRequest(
        bench.endpoint.model,
        (
            Message("user", (TextBlock("What is in the folder? 你好"),)),
            Message(
                "assistant",
                (
                    TextBlock("Let me look."),
                    ToolCallBlock("call_1", "bash", '{"command":"ls"}'),
                    ToolCallBlock("call_2", "bash", _BROKEN_ARGUMENTS),
                ),
            ),
            Message("user", (ToolResultBlock("call_1", (TextBlock("a.txt"),)),)),
            Message("user", (ToolResultBlock("call_2", (TextBlock("bad"),), is_error=True),)),
            Message("user", (TextBlock("And now?"),)),
        ),
        system="You are a test.",
        tools=(ToolSchema("bash", "Run a command.", parameters),),
        **fields,
    )


async def _body(bench: Bench, request: LlmRequest) -> Mapping[str, Any]:
    answer = await bench.ask("success", request)
    answer.expect("stop")
    return bench.server.attempts[-1].body


async def conversation_is_sent(bench: Bench) -> None:
    """System prompt, messages, calls, results and tools arrive, in order and verbatim."""
    body = await _body(bench, _conversation(bench))
    assert body["model"] == bench.endpoint.model
    assert body["stream"] is True
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    assert messages[0]["content"] == "You are a test."
    assert messages[1]["content"] == "What is in the folder? 你好"
    assert messages[2]["content"] == "Let me look."
    calls = [(call["id"], call["function"]) for call in messages[2]["tool_calls"]]
    assert calls == [
        ("call_1", {"name": "bash", "arguments": '{"command":"ls"}'}),
        ("call_2", {"name": "bash", "arguments": _BROKEN_ARGUMENTS}),
    ]
    results = [(message["tool_call_id"], message["content"]) for message in messages[3:5]]
    assert results == [("call_1", "a.txt"), ("call_2", "bad")]
    (tool,) = body["tools"]
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "bash"
    assert tool["function"]["description"] == "Run a command."


async def options_are_sent(bench: Bench) -> None:
    """The configuration of the call arrives; what it leaves open is left out."""
    body = await _body(bench, _conversation(bench, temperature=0.5, max_tokens=64, stop=("END",)))
    assert body["temperature"] == 0.5
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 64
    assert list(body["stop"]) == ["END"]
    body = await _body(bench, _conversation(bench))
    given = {"temperature", "max_tokens", "max_completion_tokens", "stop"} & set(body)
    assert not given, f"sent without being asked for: {sorted(given)}"


async def same_request_same_body(bench: Bench) -> None:
    """The same request has the same body each time, so that a provider's cache can tell."""
    bodies = [json.dumps(await _body(bench, _conversation(bench))) for _ in range(2)]
    assert bodies[0] == bodies[1]


async def longer_conversation_same_start(bench: Bench) -> None:
    """A conversation that went on has the same messages in front."""
    first = _conversation(bench)
    more = (*first.messages, Message("assistant", (TextBlock("Nothing."),)))
    second = LlmRequest(
        first.model, (*more, Message("user", (TextBlock("Sure?"),))), first.system, first.tools
    )
    before = (await _body(bench, first))["messages"]
    after = (await _body(bench, second))["messages"]
    assert json.dumps(after[: len(before)]) == json.dumps(before)


async def request_is_left_alone(bench: Bench) -> None:
    """The adapter reads the request and changes nothing in it."""
    request = _conversation(bench)
    before = json.dumps(to_wire(request))
    await _body(bench, request)
    assert json.dumps(to_wire(request)) == before


async def nothing_is_asked_beforehand(bench: Bench) -> None:
    """Looking for problems and listing models connects to nobody."""
    problem = bench.adapter.preflight(bench.endpoint.model)
    assert problem is None, f"the adapter finds a problem with its own endpoint: {problem}"
    ids = [model.id for model in bench.adapter.models()]
    assert len(set(ids)) == len(ids), f"a model is listed twice: {ids}"
    bench.adapter.call_defaults(bench.endpoint.model)
    bench.adapter.retry_policy(bench.endpoint.model)
    assert bench.server.connections == 0, "the adapter connected to somebody"


async def key_goes_into_the_header(bench: Bench) -> None:
    """The key is sent as a bearer token, and only there."""
    body = await _body(bench, bench.request())
    headers = bench.server.attempts[-1].headers
    assert headers["authorization"] == f"Bearer {bench.endpoint.key}"
    assert bench.endpoint.key not in json.dumps(dict(body))
    assert bench.endpoint.key not in bench.server.attempts[-1].request.path


async def one_finish_through_the_service(bench: Bench) -> None:
    """Behind the service every response, however broken, is a stream with one finish, its last."""
    async with App() as app:
        await app.mount(LlmService).settled()
        llm = app[LlmService]
        llm.register(app.ctx, bench.adapter, "contract", [bench.endpoint.model])
        request = LlmRequest(f"contract/{bench.endpoint.model}", bench.request().messages)
        for name, behaviour in _behaviours().items():
            bench.server.append(behaviour)
            async with aclosing(llm.stream(request)) as stream:
                chunks = [chunk async for chunk in stream]
            finishes = [chunk for chunk in chunks if isinstance(chunk, Finish)]
            assert len(finishes) == 1, f"{name}: {len(finishes)} finishes"
            assert chunks[-1] is finishes[0], f"{name}: the finish is not the last chunk"
            grammar = StreamGrammar()
            broken = [item for item in map(grammar.push, chunks) if item is not None]
            assert not broken, f"{name}: {broken}"


def _behaviours() -> dict[str, wire.Behaviour]:
    """Return every behaviour of the server that ends by itself and needs no argument."""
    found: dict[str, wire.Behaviour] = {}
    for name in sorted(set(wire.BEHAVIOURS) - _SKIPPED):
        with suppress(wire.ScriptError):
            found[name] = wire.behaviour(name)
    return found


REQUESTS = cases_of(
    conversation_is_sent,
    options_are_sent,
    same_request_same_body,
    longer_conversation_same_start,
    request_is_left_alone,
    nothing_is_asked_beforehand,
    key_goes_into_the_header,
    one_finish_through_the_service,
)
"""The cases of this subject."""
