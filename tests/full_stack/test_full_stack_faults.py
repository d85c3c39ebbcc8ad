"""What models and servers get wrong, over HTTP: nothing runs that should not, nothing sticks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest

from dsh.agent import Agent, TurnFailed
from dsh.llm_replay import server as wire
from dsh.session import AssistantMessage, ToolResult, TurnEnd
from dsh.testkit import soon
from dsh.tools import tool

CUT = '{"command": "touch ran", "descr'
MALFORMED = {
    "broken off": '{"a": "x',
    "a list": "[1]",
    "a text": '"str"',
    "nothing": "null",
    "a raw newline": '{"command": "touch ran\n", "description": "x"}',
    "a number": "1",
    "two objects": '{"command": "touch ran"}{"command": "touch ran"}',
    "a python literal": "{'command': 'touch ran', 'description': 'x'}",
    "cut behind a name": CUT,
    "a lone surrogate": '{"command": "touch ran", "description": "\\ud800"}',
}


def error_codes(agent: Agent) -> list[str | None]:
    """Return the error code of every tool result in the log."""
    return [
        None if event.data.error is None else event.data.error.code
        for event in agent.session.events
        if isinstance(event.data, ToolResult)
    ]


def wire_calls(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of every call that was sent back."""
    return [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for message in messages
        for call in message.get("tool_calls", [])
    ]


class Counting:
    """A tool without parameters that counts how often it ran."""

    def __init__(self) -> None:
        self.ran = 0

    @tool
    async def ping(self) -> str:
        """Answer."""
        self.ran += 1
        return "pong"


# -- arguments -----------------------------------------------------------------------------------


# case: F-25
@pytest.mark.parametrize("arguments", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_arguments_are_answered_and_the_turn_goes_on(
    open_stack: Any, arguments: str
) -> None:
    script = [
        wire.tool_call_success("bash", arguments, call_id="a"),
        wire.tool_call_success("bash", {"command": "echo mended", "description": "x"}, call_id="b"),
        wire.success("ok"),
    ]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go"))).text == "ok"
        assert error_codes(agent) == ["INVALID_ARGS", None]
        assert stack.messages(2)[-1]["content"].startswith("Error: ")
        # the model sees what it wrote, not what we would have liked it to write
        assert wire_calls(stack.messages(2)) == [("a", "bash", arguments)]
        assert stack.messages(3)[-1]["content"] == "mended\n"
        assert os.listdir(stack.folder) == []
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-26
@pytest.mark.parametrize("arguments", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_arguments_are_never_taken_for_none(
    open_stack: Any, arguments: str
) -> None:
    counting = Counting()
    script = [wire.tool_call_success("ping", arguments, call_id="a"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent(tools=[counting.ping]) as agent:
        assert (await soon(agent.ask("go"))).text == "ok"
        assert counting.ran == 0
        assert error_codes(agent) == ["INVALID_ARGS"]
        await stack.check_requests(agent.session)


# case: F-26
@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
async def test_empty_arguments_are_no_arguments(open_stack: Any, arguments: str) -> None:
    counting = Counting()
    script = [wire.tool_call_success("ping", arguments, call_id="a"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent(tools=[counting.ping]) as agent:
        await soon(agent.ask("go"))
        assert counting.ran == 1
        assert error_codes(agent) == [None]
        await stack.check_requests(agent.session)


# case: F-25
async def test_empty_arguments_where_some_are_needed(open_stack: Any) -> None:
    script = [wire.tool_call_success("bash", "", call_id="a"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        await soon(agent.ask("go"))
        assert error_codes(agent) == ["INVALID_ARGS"]
        assert "command" in stack.messages(2)[-1]["content"]


# case: F-27
async def test_a_call_that_the_token_limit_cut_is_never_run(open_stack: Any) -> None:
    deltas = [{"content": "Let me"}, *wire.tool_call_deltas(0, "a", "bash", CUT)]
    script = [wire.stream(deltas, finish_reason="length"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        outcome = await soon(agent.ask("go", check=False))
        assert outcome.reason.kind == "max-tokens"
        assert outcome.text == "Let me"
        assert "tool/call" not in [event.type for event in agent.session.events]
        assert (await soon(agent.ask("and now?"))).text == "ok"
        assert wire_calls(stack.messages(2)) == []
        assert os.listdir(stack.folder) == []
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-27
async def test_a_complete_call_behind_which_the_limit_struck_is_not_run_either(
    open_stack: Any,
) -> None:
    whole = json.dumps({"command": "touch ran", "description": "x"})
    deltas = [
        *wire.tool_call_deltas(0, "a", "bash", whole),
        *wire.tool_call_deltas(1, "b", "bash", CUT),
    ]
    script = [wire.stream(deltas, finish_reason="length"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go", check=False))).reason.kind == "max-tokens"
        assert (await soon(agent.ask("and now?"))).text == "ok"
        assert os.listdir(stack.folder) == []
        await stack.check_requests(agent.session)


# case: F-27
@pytest.mark.parametrize("lie", ["stop", "tool_calls", None])
async def test_a_cut_call_behind_a_lying_finish_is_never_run(
    open_stack: Any, lie: str | None
) -> None:
    deltas = list(wire.tool_call_deltas(0, "a", "bash", CUT))
    script = [wire.stream(deltas, finish_reason=lie), wire.success("ok"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go", check=False))).text == "ok"
        assert (await soon(agent.ask("and now?"))).text == "ok"
        assert os.listdir(stack.folder) == []
        assert error_codes(agent) in ([], ["INVALID_ARGS"])
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-27
@pytest.mark.parametrize("end", ["complete", "truncate", "reset"])
async def test_a_connection_lost_inside_a_call(open_stack: Any, end: Any) -> None:
    whole = {"command": "touch ran", "description": "x"}
    cut = wire.tool_call_success("bash", whole, text="Let me").cut(after=5, end=end)
    script = [cut, wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        with pytest.raises(TurnFailed) as caught:
            await soon(agent.ask("go"))
        assert caught.value.outcome.error is not None
        assert caught.value.outcome.error.code in {"STREAM_CLOSED", "TRANSPORT"}
        assert (await soon(agent.ask("and now?"))).text == "ok"
        assert wire_calls(stack.messages(2)) == []
        assert os.listdir(stack.folder) == []
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# -- ids and names -------------------------------------------------------------------------------


# case: F-30
async def test_repeated_and_empty_ids_stay_paired(open_stack: Any) -> None:
    def say(text: str) -> Mapping[str, Any]:
        return {"command": f"echo {text}", "description": "x"}

    script = [
        wire.tool_calls([("x", "bash", say("a")), ("x", "bash", say("b")), ("", "bash", say("c"))]),
        wire.tool_calls([("x", "bash", say("d")), ("", "bash", say("e"))]),
        wire.success("first"),
        wire.tool_calls([("x", "bash", say("f")), ("call_1_1_1", "bash", say("g"))]),
        wire.success("second"),
    ]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go"))).text == "first"
        assert (await soon(agent.ask("again"))).text == "second"
        messages = stack.messages(5)
        calls = wire_calls(messages)
        assert len(calls) == len({call_id for call_id, _, _ in calls}) == 7
        said = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
        for call_id, _, arguments in calls:
            assert said[call_id] == json.loads(arguments)["command"].removeprefix("echo ") + "\n"
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-30
async def test_an_empty_name_and_an_unknown_one_are_answered(open_stack: Any) -> None:
    script = [
        wire.tool_calls([("a", "", {}), ("b", "no_such_tool", {}), ("c", "", {})]),
        wire.success("ok"),
        wire.success("ok"),
    ]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go"))).text == "ok"
        assert error_codes(agent) == ["UNKNOWN_TOOL"] * 3
        assert (await soon(agent.ask("again"))).text == "ok"
        assert len(wire_calls(stack.messages(3))) == 3
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-30
@pytest.mark.parametrize("name", ["bad name!", "functions.bash", "bash\n", "x" * 65, "w\u00f6rd"])
async def test_a_name_that_no_provider_takes_back(open_stack: Any, name: str) -> None:
    script = [wire.tool_calls([("a", name, {})]), wire.success("ok"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go"))).text == "ok"
        assert (await soon(agent.ask("again"))).text == "ok"
        assert len(wire_calls(stack.messages(3))) == 1
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# -- reasoning -----------------------------------------------------------------------------------


def insists_on_reasoning(request: wire.WireRequest) -> wire.Behaviour:
    """Answer 400 unless the reasoning comes back with every tool call, word for word."""
    spoken = [m for m in request.messages if m["role"] == "assistant"]
    for number, message in enumerate(spoken):
        if message.get("tool_calls") and message.get("reasoning_content") != f"Thought {number}.":
            return wire.http_error(400, f"reasoning_content of reply {number} is missing")
    number = len(spoken)
    if request.messages[-1]["role"] == "tool" and number % 3 == 0:
        return wire.reasoning_success(f"Thought {number}.", "Done.")
    arguments = {"command": f"echo {number}", "description": "x"}
    thought = f"Thought {number}."
    return wire.tool_call_success("bash", arguments, call_id=f"c{number}", reasoning=thought)


# case: F-39
async def test_a_server_that_insists_on_the_reasoning(open_stack: Any) -> None:
    async with open_stack(insists_on_reasoning) as stack, stack.agent() as agent:
        for prompt in ("first", "second"):
            outcome = await soon(agent.ask(prompt))
            assert outcome.text == "Done."
        assert [attempt.status for attempt in stack.server.attempts] == [200] * 7
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# case: F-39
async def test_reasoning_that_was_cut_off_by_a_cancel_does_no_harm(open_stack: Any) -> None:
    gate = wire.Gate()
    first = True

    def script(request: wire.WireRequest) -> wire.Behaviour:
        nonlocal first
        if first:
            first = False
            return wire.reasoning_success("Half a thought", "and no word").hold(gate, after=3)
        for message in request.messages:
            if message["role"] == "assistant" and not message["content"]:
                return wire.http_error(400, "an assistant message without content")
        return wire.success("ok")

    async with open_stack(script) as stack, stack.agent() as agent:
        receipt = agent.send("go")
        await soon(gate.reached())
        agent.cancel("enough")
        assert (await soon(receipt.done())).reason.kind == "aborted"
        assert (await soon(agent.ask("again"))).text == "ok"
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# -- servers that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ("rate_limit", "RATE_LIMIT"),
        ("server_error", "SERVER"),
        ("auth_error", "AUTH"),
        ("http_402", "QUOTA"),
        ("context_overflow", "CONTEXT_WINDOW_EXCEEDED"),
        ("malformed_json", "MALFORMED_RESPONSE"),
        ("empty", "EMPTY_RESPONSE"),
        ("connection_reset", "TRANSPORT"),
        ("stream_eof", "STREAM_CLOSED"),
        ("error_object_midstream", None),
    ],
)
async def test_a_turn_that_fails_leaves_a_conversation_that_goes_on(
    open_stack: Any, behaviour: str, code: str | None
) -> None:
    script = [
        wire.tool_call_success("bash", {"command": "echo a", "description": "x"}),
        wire.behaviour(behaviour),
        wire.success("ok"),
    ]
    async with open_stack(script) as stack, stack.agent() as agent:
        with pytest.raises(TurnFailed) as caught:
            await soon(agent.ask("go"))
        (end,) = [e.data for e in agent.session.events if isinstance(e.data, TurnEnd)]
        assert end.reason.kind == "error"
        error = caught.value.outcome.error
        assert error is not None
        assert code is None or error.code == code
        assert (await soon(agent.ask("again"))).text == "ok"
        replies = [e for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        assert len(replies) == 2
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)
