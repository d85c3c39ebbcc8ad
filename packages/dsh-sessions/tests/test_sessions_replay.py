"""`dsh request` and `dsh replay`: what was sent, and the same again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.session import Session

Cli = Any
Store = Callable[..., Session]

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
    (cli.home / ".dsh" / "dsh.yaml").write_text("plugins: [record]\n")
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
    assert gone.code != 0
    assert "1.1, 1.2, 2.1" in gone.stderr
    assert cli.run("request", session_id).code == 2


def test_an_adapter_without_a_wire_form_is_told(cli: Cli) -> None:
    (cli.home / ".dsh" / "plain.py").write_text(PLAIN)
    (cli.home / ".dsh" / "dsh.yaml").write_text("plugins: [record, ./plain.py]\n")
    assert cli.run("run", "--model", "plain/m", "task").code == 0
    result = cli.run("request", only(cli), "--step", "1")
    assert (result.code, result.stdout) == (1, "")
    assert "plain/m is served by an adapter that sends no bytes" in result.stderr


def test_a_session_plays_again_the_same(cli: Cli, worked: Any) -> None:
    session_id = only(cli)
    before = (cli.kept / f"{session_id}.jsonl").read_bytes()
    result = cli.run("replay", session_id[:8])
    assert result.code == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"{session_id[:8]}: the same again: 2 turns, 3 steps, ")
    assert (cli.kept / f"{session_id}.jsonl").read_bytes() == before
    assert len(list(cli.kept.glob("*.jsonl"))) == 1


def test_the_first_difference_is_shown(cli: Cli, worked: Any) -> None:
    session_id = only(cli)
    file = cli.kept / f"{session_id}.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if '"assistant/message"' in line)
    lines[place] = lines[place].replace("I look.", "I do not look.")
    file.write_text("".join(lines))
    result = cli.run("replay", session_id)
    assert result.code == 1
    head, recorded, replayed = result.stdout.splitlines()
    assert f"differs at event {place - 1} (assistant/message)" in head
    assert "I do not look." in recorded
    assert "I look." in replayed


def test_nothing_can_be_played_without_a_bundle(cli: Cli, store: Store) -> None:
    store("s-1")
    result = cli.run("replay", "s-1", "--set", "bundle=null")
    assert result.code == 2
    assert "--set bundle=agent-core" in result.stderr
    assert cli.run("replay", "nothing").code == 2
