"""A process that is killed loses nothing that had an effect, and the next one knows about it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer

Cli = Any
Kept = Any
Pipe = Any
Serve = Callable[..., ThreadedServer]

WAIT_S = 60
pytestmark = pytest.mark.parametrize("kept", ["jsonl", "sqlite"], indirect=True)

RESUMES = """
import sys
from dsh.loader import open_app, read_deployment, run_sync

async def main():
    deployment = read_deployment(user=True, sets=["plugins.record.use=record"])
    async with open_app(deployment) as app, app.agent(resume=sys.argv[1]) as agent:
        print(len(agent.session.events), flush=True)
        sys.stdin.readline()

run_sync(main)
"""
"""Resumes a session, says how many events it has, and does nothing until a line is typed."""


@pytest.fixture(autouse=True)
def only_checkpoints(kept: Kept) -> None:
    """Have nothing written but where a checkpoint asks for it."""
    kept.settings("session_persistence: {write_after_ms: 600000}\n")


def bash(command: str, call_id: str = "call_1") -> wire.Behaviour:
    arguments = {"command": command, "description": "d"}
    return wire.tool_call_success("bash", arguments, call_id=call_id)


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(WAIT_S)


def unpaired(messages: list[dict[str, Any]]) -> set[str]:
    """Return the calls that are not answered where a strict provider wants it: right behind."""
    waiting: list[str] = []
    missed: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
        else:
            missed.update(waiting)
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
    return missed | set(waiting)


def test_a_kill_inside_a_command_is_told_to_the_model_that_goes_on(
    cli: Cli, serve: Serve, kept: Kept, pipe: Pipe
) -> None:
    # case: F-15
    # case: F-19
    # case: PS-33
    server = serve([bash("echo x >> effects; echo done > pipe; exec sleep 600")])
    with cli.start("run", "task") as process:
        assert pipe.line(process) == "done"
        killed(process)
    session_id = kept.only()
    stored = kept.events(session_id)
    assert stored[-1]["type"] == "tool/call"
    assert stored[-1]["data"]["callId"] == "call_1"

    server.append(wire.success("I look first."))
    result = cli.run("run", "--resume", session_id, "go on")
    assert (result.code, result.stdout) == (0, "I look first.\n")
    assert (cli.folder / "effects").read_text() == "x\n"
    messages = server.attempts[1].request.messages
    assert unpaired(messages) == set()
    (told,) = [message for message in messages if message["role"] == "tool"]
    assert told["tool_call_id"] == "call_1"
    assert "no result was recorded" in told["content"]
    assert messages[-1] == {"role": "user", "content": "go on"}

    events = kept.events(session_id)
    assert events[: len(stored)] == stored
    repair = events[len(stored) : len(stored) + 3]
    assert [event["type"] for event in repair] == ["tool/result", "step/end", "turn/end"]
    assert repair[0]["data"]["isError"] is True
    assert repair[2]["data"]["reason"]["kind"] == "interrupted"


def test_calls_of_one_batch_are_told_one_by_one(
    cli: Cli, serve: Serve, kept: Kept, pipe: Pipe
) -> None:
    # case: PS-33
    calls = [
        ("call_1", "bash", {"command": "echo first", "description": "d"}),
        ("call_2", "bash", {"command": "echo up > pipe; exec sleep 600", "description": "d"}),
        ("call_3", "bash", {"command": "echo x >> never", "description": "d"}),
    ]
    server = serve([wire.tool_calls(calls)])
    with cli.start("run", "task") as process:
        assert pipe.line(process) == "up"
        killed(process)
    server.append(wire.success("I look first."))
    assert cli.run("run", "--continue", "go on").code == 0
    messages = server.attempts[1].request.messages
    assert unpaired(messages) == set()
    told = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    assert told["call_1"].startswith("first")
    assert "no result was recorded" in told["call_2"]
    assert told["call_3"] != told["call_2"]
    assert not (cli.folder / "never").exists()


def test_a_kill_inside_a_request_finds_prompt_and_header_stored(
    cli: Cli, serve: Serve, kept: Kept
) -> None:
    # case: PS-34
    server = serve([wire.stall_before_headers()])
    with cli.start("run", "the task") as process:
        server.wait_attempt(1, WAIT_S)
        killed(process)
    session_id = kept.only()
    stored = kept.events(session_id)
    types = [event["type"] for event in stored]
    assert types[0] == "turn/start"
    assert "turn/end" not in types
    assert types.index("user/message") < types.index("step/start") < types.index("request/header")
    (said,) = [event["data"] for event in stored if event["type"] == "user/message"]
    assert said["content"] == [{"type": "text", "text": "the task"}]
    (header,) = [event["data"]["header"] for event in stored if event["type"] == "request/header"]
    sent = server.attempts[0].request
    assert header["config"]["model"].endswith(sent.body["model"])
    asked = cli.run("request", session_id, "--step", "1", "--raw")
    assert json.loads(asked.stdout) == sent.body
    assert len(asked.stdout.encode()) == int(sent.headers["content-length"])

    server.append(wire.success("Here."))
    result = cli.run("run", "--continue", "go on")
    assert (result.code, result.stdout) == (0, "Here.\n")
    assert [m["content"] for m in server.attempts[1].request.messages[1:]] == ["the task", "go on"]
    assert kept.events(session_id)[: len(stored)] == stored


@contextmanager
def resumed(cli: Cli, session_id: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """Resume a session in a process of its own that sends nothing; yield it and the log's size."""
    process = subprocess.Popen(
        [cli.python, "-c", RESUMES, session_id],
        cwd=cli.folder,
        env=cli.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield process, int(line)
        finally:
            process.kill()


def test_a_repair_is_made_once_and_stays(cli: Cli, serve: Serve, kept: Kept, pipe: Pipe) -> None:
    # case: F-18
    serve([bash("echo up > pipe; exec sleep 600")])
    with cli.start("run", "task") as process:
        assert pipe.line(process) == "up"
        killed(process)
    session_id = kept.only()
    torn = kept.log(session_id).events

    with resumed(cli, session_id) as (process, count):
        killed(process)  # before it could put anything in order
    first = kept.log(session_id)
    assert first.events[: len(torn)] == torn
    assert len(first.events) == count == len(torn) + 3

    with resumed(cli, session_id) as (process, count):
        assert count == len(first.events)
        process.communicate(b"\n", timeout=WAIT_S)
        assert process.returncode == 0
    assert kept.log(session_id) == first
    assert "resuming it mends that" not in cli.run("sessions", "verify", session_id).stdout


def test_a_kill_before_the_first_request_leaves_nothing_in_the_way(
    cli: Cli, serve: Serve, kept: Kept
) -> None:
    server = serve([wire.success("One."), wire.stall_before_headers(), wire.success("Three.")])
    assert cli.run("run", "first task").code == 0
    session_id = kept.only()
    with cli.start("run", "--resume", session_id, "second task") as process:
        server.wait_attempt(2, WAIT_S)
        killed(process)
    assert kept.turns(session_id) == 2
    result = cli.run("run", "--resume", session_id, "third task")
    assert (result.code, result.stdout) == (0, "Three.\n")
    assert "One." in [m["content"] for m in server.attempts[2].request.messages]
