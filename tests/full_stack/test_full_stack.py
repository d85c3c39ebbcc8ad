"""A conversation over HTTP with real commands: what is sent, what is logged, what is left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from dsh.agent import Agent, OutputInvalid
from dsh.llm import TextBlock
from dsh.llm_replay import server as wire
from dsh.session import AssistantMessage, ToolResult
from dsh.session.testing import types_of, user_texts
from dsh.testkit import soon
from dsh.tools import tool

ROUNDS = 10
CALLING = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "a", "function": {"name": "bash", "arguments": "{}"}}],
}
ANSWER = {"role": "tool", "content": "x", "tool_call_id": "a"}


def bash(command: str, call_id: str = "call_1", **more: Any) -> wire.Behaviour:
    arguments = {"command": command, "description": "Run it"}
    return wire.tool_call_success("bash", arguments, call_id=call_id, **more)


def results(agent: Agent) -> list[str]:
    """Return the text of every tool result in the log."""
    return [
        "".join(block.text for block in event.data.content if isinstance(block, TextBlock))
        for event in agent.session.events
        if isinstance(event.data, ToolResult)
    ]


# -- what is sent --------------------------------------------------------------------------------


async def test_ten_rounds_with_commands(open_stack: Any) -> None:
    def script(request: wire.WireRequest) -> wire.Behaviour:
        done = sum(message["role"] == "tool" for message in request.messages)
        if done >= ROUNDS:
            return wire.success("All done.")
        command = f"echo round {done} >> log; wc -l < log; echo é {done} >&2"
        return bash(command, f"call_{done}", reasoning=f"Round {done}.", text="Going on.")

    async with open_stack(script) as stack, stack.agent() as agent:
        outcome = await soon(agent.ask("Do it ten times."))
        assert outcome.text == "All done."
        assert outcome.usage is not None
        assert results(agent) == [f"{n + 1}\n[stderr]\né {n}\n" for n in range(ROUNDS)]
        log = (stack.folder / "log").read_text(encoding="utf-8")
        assert log == "".join(f"round {n}\n" for n in range(ROUNDS))
        assert (await soon(agent.ask("Thank you."))).text == "All done."
        stack.check_log(agent.session)
        assert [a.outcome for a in stack.server.attempts] == ["completed"] * (ROUNDS + 2)
        assert stack.tap.accepted == 1
        stack.check_prefixes(stack.tap.bodies)
        await stack.check_requests(agent.session)
        await stack.commands_are_gone()


async def test_what_a_request_holds(open_stack: Any) -> None:
    async with open_stack([wire.success("Hello.")]) as stack, stack.agent() as agent:
        await soon(agent.ask("Hi"))
        body = json.loads(stack.tap.bodies[0])
        assert body["model"] == "deepseek-flash"
        assert body["stream"] is True
        system, user = body["messages"]
        assert system["role"] == "system"
        assert "You are tested." in system["content"]
        assert user == {"role": "user", "content": "Hi"}
        names = [item["function"]["name"] for item in body["tools"]]
        assert names == ["bash", "bash_kill", "bash_output"]
        headers = stack.server.attempts[0].headers
        assert headers["user-agent"].startswith("dsh/")
        assert not any("session" in name or name == "id" for name in headers)
        assert headers["authorization"] == "Bearer sk-full-stack-0123456789"
        assert "sk-full-stack" not in repr([e.data for e in agent.session.events])


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"role": "user", "content": None}], "something is null"),
        ([{"role": "user"}], "message 0 (user) has no text"),
        ([{"role": "tool", "content": "", "tool_call_id": "a"}], "answers 'a', which waits for"),
        ([CALLING], "calls have no results: ['a']"),
        ([CALLING, {"role": "user", "content": "x"}], "stands between calls and results"),
        ([CALLING, ANSWER, CALLING, ANSWER], "has a call id that is empty or used: 'a'"),
    ],
)
def test_the_server_is_strict(problems_of: Any, messages: Any, told: str) -> None:
    assert any(told in problem for problem in problems_of({"messages": messages}))
    assert list(problems_of({"messages": [CALLING, ANSWER]})) == []


async def test_a_tool_that_comes_and_goes_changes_the_header_and_the_log_says_so(
    open_stack: Any,
) -> None:
    @tool
    async def ping() -> str:
        """Answer."""
        return "pong"

    script = [
        wire.tool_call_success("ping", {}, call_id="a"),
        wire.success("one"),
        wire.success("two"),
    ]
    async with open_stack(script) as stack, stack.agent() as agent:
        effect = agent.ctx["tools"].register(agent.ctx, ping)
        await soon(agent.ask("first"))
        await effect.dispose()
        await soon(agent.ask("second"))
        offered = [len(json.loads(body)["tools"]) for body in stack.tap.bodies]
        assert offered == [4, 4, 3]
        assert types_of(agent.session.events).count("request/header") >= 1
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


# -- talking while it works ----------------------------------------------------------------------


async def test_steering_reaches_the_next_request(open_stack: Any) -> None:
    gate = wire.Gate()
    script = [
        bash("echo one").hold(gate),
        wire.success("Done."),
    ]
    async with open_stack(script) as stack, stack.agent() as agent:
        receipt = agent.send("go")
        await soon(gate.reached())
        steered = agent.steer("and hurry")
        gate.open()
        assert (await soon(receipt.done())).text == "Done."
        assert (await soon(steered.done())).ok
        assistant, result, steering = stack.messages(2)[-3:]
        assert assistant["tool_calls"][0]["id"] == result["tool_call_id"]
        assert steering["role"] == "user"
        assert "and hurry" in steering["content"]
        assert user_texts(agent.session.events) == ["go"]
        assert "steering/message" in types_of(agent.session.events)
        stack.check_log(agent.session)
        stack.check_prefixes(stack.tap.bodies)
        await stack.check_requests(agent.session)


async def test_steering_keeps_a_turn_going_that_would_have_ended(open_stack: Any) -> None:
    gate = wire.Gate()
    script = [wire.success("First answer.").hold(gate, after=2), wire.success("Second answer.")]
    async with open_stack(script) as stack, stack.agent() as agent:
        receipt = agent.send("go")
        await soon(gate.reached())
        agent.steer("one more thing")
        gate.open()
        assert (await soon(receipt.done())).text == "Second answer."
        roles = [message["role"] for message in stack.messages(2)]
        assert roles == ["system", "user", "assistant", "user"]
        assert types_of(agent.session.events).count("turn/end") == 1
        await stack.check_requests(agent.session)


async def test_context_that_comes_up_in_a_command_is_told_after_the_results(
    open_stack: Any,
) -> None:
    calls = [
        ("a", "bash", {"command": "echo one", "description": "x"}),
        ("b", "bash", {"command": "echo two", "description": "x"}),
    ]
    script = [wire.tool_calls(calls, interleaved=True), wire.success("ok"), wire.success("ok")]
    async with open_stack(script) as stack, stack.agent() as agent:
        async with agent.run("go") as run:
            async for event in run:
                if event.type == "tool/call" and event.data.call_id == "a":
                    agent.inject("the weather has changed")
        roles = [message["role"] for message in stack.messages(2)]
        assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
        assert "the weather has changed" in stack.messages(2)[-1]["content"]
        agent.inject("between the turns")
        await soon(agent.when_idle())
        assert len(stack.server.attempts) == 2
        await soon(agent.ask("again"))
        assert "between the turns" in stack.messages(3)[-2]["content"]
        stack.check_log(agent.session)
        stack.check_prefixes(stack.tap.bodies)
        await stack.check_requests(agent.session)


async def test_prompts_that_queue_are_one_turn(open_stack: Any) -> None:
    gate = wire.Gate()
    script = [wire.success("one").hold(gate), wire.success("two")]
    async with open_stack(script) as stack, stack.agent() as agent:
        first = agent.send("first")
        await soon(gate.reached())
        rest = [agent.send("second"), agent.send("third")]
        gate.open()
        assert (await soon(first.done())).text == "one"
        outcomes = [await soon(receipt.done()) for receipt in rest]
        assert [(o.turn, o.text) for o in outcomes] == [(2, "two"), (2, "two")]
        assert [m["content"] for m in stack.messages(2)[-2:]] == ["second", "third"]


# -- two at once ---------------------------------------------------------------------------------


async def test_two_agents_at_once_know_nothing_of_each_other(open_stack: Any) -> None:
    gates = {"red": wire.Gate(), "blue": wire.Gate()}

    def script(request: wire.WireRequest) -> wire.Behaviour:
        colour = request.messages[1]["content"]
        if request.messages[-1]["role"] == "tool":
            return wire.success(f"{colour} is done").hold(gates[colour])
        arguments = {"command": f"pwd; echo {colour} > colour", "description": "x"}
        calls = [("call_1", "bash", arguments), ("call_2", f"say_{colour}", "{}")]
        return wire.tool_calls(calls)

    def speaker(colour: str) -> Any:
        @tool(name=f"say_{colour}")
        async def say() -> str:
            """Say it."""
            return f"{colour}!"

        return say

    async with open_stack(script) as stack:
        folders = {colour: stack.folder / colour for colour in gates}
        for folder in folders.values():
            folder.mkdir()
        async with (
            stack.agent(cwd=folders["red"], tools=[speaker("red")]) as red,
            stack.agent(cwd=folders["blue"], tools=[speaker("blue")]) as blue,
        ):
            agents = {"red": red, "blue": blue}
            receipts = {colour: agent.send(colour) for colour, agent in agents.items()}
            for gate in gates.values():
                await soon(gate.reached())
            assert stack.tap.open == 2
            red.cancel("enough")
            assert (await soon(receipts["red"].done())).reason.kind == "aborted"
            assert blue.status == "running"
            gates["blue"].open()
            assert (await soon(receipts["blue"].done())).text == "blue is done"
            for colour, agent in agents.items():
                assert results(agent) == [f"{folders[colour]}\n", f"{colour}!"]
                assert (folders[colour] / "colour").read_text() == f"{colour}\n"
                stack.check_log(agent.session)
            for body in stack.tap.bodies:
                assert (b'"red"' in body) != (b'"blue"' in body)
                assert (b"say_red" in body) != (b"say_blue" in body)
            await stack.check_requests(red.session, blue.session)


# -- answers of a shape --------------------------------------------------------------------------


class City(BaseModel):
    name: str
    people: int = Field(ge=0)


async def test_an_answer_of_a_shape_after_one_that_does_not_fit(open_stack: Any) -> None:
    script = [
        wire.success('{"name": "Paris"}'),
        bash("echo 2100000"),
        wire.success('```json\n{"name": "Paris", "people": 2100000}\n```'),
    ]
    async with open_stack(script) as stack, stack.agent() as agent:
        city = await soon(agent.ask("Which city?", output=City))
        assert city == City(name="Paris", people=2100000)
        assert types_of(agent.session.events).count("turn/start") == 1
        assert '"people"' in stack.messages(1)[-1]["content"]
        correction = stack.messages(2)[-1]
        assert correction["role"] == "user"
        assert "people: Field required" in correction["content"]
        stack.check_prefixes(stack.tap.bodies)
        stack.check_log(agent.session)
        await stack.check_requests(agent.session)


async def test_answers_that_never_fit(open_stack: Any) -> None:
    async with open_stack([wire.success("Paris")] * 3) as stack, stack.agent() as agent:
        with pytest.raises(OutputInvalid):
            await soon(agent.ask("Which city?", output=City, retries=2))
        assert len(stack.server.attempts) == 3
        stack.check_prefixes(stack.tap.bodies)
        stack.check_log(agent.session)


async def test_a_thousand_small_deltas_arrive_as_they_were_sent(open_stack: Any) -> None:
    text = "wörd \U0001f680 " * 250
    script = [wire.success(text, chunk_size=1).split(7)]
    async with open_stack(script) as stack, stack.agent() as agent:
        assert (await soon(agent.ask("go"))).text == text
        (reply,) = [e for e in agent.session.events if isinstance(e.data, AssistantMessage)]
        chunks = [e.seq for e in agent.session.events if e.type == "assistant/chunk"]
        assert reply.source_event_seqs == tuple(chunks)
        assert len(chunks) > len(text)
        stack.check_log(agent.session)
