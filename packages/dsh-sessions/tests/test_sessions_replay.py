"""`dsh request` and `dsh replay`: what was sent, and the same again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dsh.llm import TextBlock
from dsh.llm_replay import server as wire
from dsh.session import AssistantMessage, Session

Cli = Any
Store = Callable[..., Session]

both = pytest.mark.parametrize("cli", ["jsonl", "sqlite"], indirect=True)

PLAIN = """
from dsh.core import Plugin, inject
from dsh.llm import LlmService, ModelInfo
from dsh.llm_replay import ScriptedAdapter, text

class Adapter(ScriptedAdapter):
    def render(self, request):
        return None

class Plain(Plugin):
    llm = inject(LlmService)

    async def start(self):
        self.llm.register(self.ctx, Adapter([text("Done.")]), provider="plain",
                          models=[ModelInfo("m")])
"""


@pytest.fixture
def worked(cli: Cli) -> Any:
    """Return what the server got while a session of two turns and a tool was recorded."""
    arguments = {"command": "echo wörking", "description": "d"}
    script = [
        wire.tool_call_success("bash", arguments, text="I look."),
        wire.success("Done."),
        wire.success("Done again."),
    ]
    cli.kept.write_settings("")
    with wire.serve_in_thread(script) as server:
        cli.env["DEEPSEEK_BASE_URL"] = server.url
        cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
        assert cli.run("run", "do it nöw").code == 0
        assert cli.run("run", "--continue", "and again").code == 0
        attempts = list(server.attempts)
    del cli.env["DEEPSEEK_API_KEY"]
    return attempts


def only(cli: Cli) -> str:
    (row,) = cli.run("sessions").rows
    return str(row[0])


@both
def test_every_request_comes_out_as_it_was_sent(cli: Cli, worked: Any) -> None:
    session_id = only(cli)
    for number, attempt in enumerate(worked, 1):
        result = cli.run("request", session_id, "--step", str(number))
        assert result.code == 0, result.stderr
        assert json.loads(result.stdout) == attempt.request.body
        assert result.stdout.startswith("{\n  ")
        assert "wörking" in result.stdout or number == 1
    raw = cli.run("request", session_id, "--step", "1.2", "--raw")
    assert "\n" not in raw.stdout
    assert json.loads(raw.stdout) == worked[1].request.body
    assert len(raw.stdout.encode()) == int(worked[1].request.headers["content-length"])
    third = cli.run("request", session_id, "--step", "2.1")
    assert json.loads(third.stdout) == worked[2].request.body


def test_a_step_that_is_not_there_is_told(cli: Cli, worked: Any) -> None:
    session_id = only(cli)
    for step in ("4", "0", "x", "1.", "1.2.3"):
        result = cli.run("request", session_id, "--step", step)
        assert (result.code, result.stdout) == (2, ""), step
    assert "made 3 requests" in cli.run("request", session_id, "--step", "4").stderr
    gone = cli.run("request", session_id, "--step", "3.1")
    assert gone.code == 2
    assert f"session {session_id[:8]}: " in gone.stderr
    assert "1.1, 1.2, 2.1" in gone.stderr
    none = cli.run("request", session_id, "--step", "1.9")
    assert (none.code, none.stdout) == (2, "")
    assert cli.run("request", session_id).code == 2


def test_an_adapter_without_a_wire_form_is_told(cli: Cli) -> None:
    (cli.home / ".dsh" / "plain.py").write_text(PLAIN)
    cli.kept.write_settings("plugins: [./plain.py]\n")
    assert cli.run("run", "--model", "plain/m", "task").code == 0
    result = cli.run("request", only(cli), "--step", "1")
    assert (result.code, result.stdout) == (1, "")
    assert "plain/m is served by an adapter that sends no bytes" in result.stderr


@both
def test_a_session_plays_again_the_same(cli: Cli, worked: Any) -> None:
    session_id = only(cli)
    before = cli.kept.log(session_id)
    result = cli.run("replay", session_id[:8])
    assert result.code == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"{session_id[:8]}: the same again: 2 turns, 3 steps, ")
    assert cli.kept.log(session_id) == before
    assert cli.kept.ids() == [session_id]


def test_a_turn_that_was_never_closed_is_counted_as_open(cli: Cli, worked: Any) -> None:
    log = cli.kept.log(only(cli))
    first, _, second = (e.seq for e in log.events if isinstance(e.data, AssistantMessage))
    for seq, told in ((first, "1 turn (open), 1 step"), (second, "2 turns (the last one open)")):
        name = f"cut-at-{seq}"
        cli.kept.put(replace(log.header, id=name), log.events[:seq])
        result = cli.run("replay", name)
        assert result.code == 0, result.stdout + result.stderr
        assert result.stdout.startswith(f"{name}: the same again: {told}, ")


def test_the_first_difference_is_shown(cli: Cli, worked: Any) -> None:
    log = cli.kept.log(only(cli))
    place = next(e.seq for e in log.events if isinstance(e.data, AssistantMessage))
    altered: Any = log.events[place].data
    said = (TextBlock("I do not look."), *altered.content[1:])
    changed = replace(log.events[place], data=replace(altered, content=said))
    events = (*log.events[:place], changed, *log.events[place + 1 :])
    cli.kept.put(replace(log.header, id="altered"), events)
    result = cli.run("replay", "altered")
    assert result.code == 1
    head, recorded, replayed = result.stdout.splitlines()
    assert f"differs at event {place} (assistant/message)" in head
    assert "I do not look." in recorded
    assert "I look." in replayed


SLOW = """
from dsh.core import Plugin, inject
from dsh.tools import ToolRegistry, tool

@tool(concurrent=True)
async def look(number: int) -> str:
    "Look."
    return str(number)

class Looks(Plugin):
    tools = inject(ToolRegistry)

    async def start(self):
        self.tools.register(self.ctx, look)
"""


def test_another_limit_and_agents_of_the_settings_are_no_difference(cli: Cli) -> None:
    (cli.home / ".dsh" / "looks.py").write_text(SLOW)
    calls = [(f"call_{number}", "look", {"number": number}) for number in range(12)]
    script = [wire.tool_calls(calls), wire.success("All.")]
    cli.kept.write_settings("plugins: [./looks.py]\nagent: {max_parallel_tools: 12}\n")
    with wire.serve_in_thread(script) as server:
        cli.env["DEEPSEEK_BASE_URL"] = server.url
        cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
        assert cli.run("run", "look everywhere").code == 0
    session_id = only(cli)
    kinds = [event["type"] for event in cli.kept.events(session_id)]
    assert kinds[kinds.index("tool/call") :][:12] == ["tool/call"] * 12
    cli.kept.write_settings("agent: {agents: [{id: watcher, cwd: /nowhere/at/all}]}\n")
    result = cli.run("replay", session_id)
    assert (result.code, result.stderr) == (0, "")
    assert "the same again: 1 turn, 2 steps" in result.stdout


def test_nothing_can_be_played_without_a_bundle(cli: Cli, store: Store) -> None:
    store("s-1")
    result = cli.run("replay", "s-1", "--set", "bundle=null")
    assert result.code == 2
    assert "--set bundle=agent-core" in result.stderr
    assert cli.run("replay", "nothing").code == 2
