"""Keys, standard input and broken plugins, seen from outside."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer

Cli = Any
Serve = Callable[..., ThreadedServer]
STORED = "sk-stored-9876543210fedcba"
PLUGIN = """
from dsh.core import Plugin
class P(Plugin):
    async def start(self):
        {body}
"""


def bash(command: str, **more: Any) -> wire.Behaviour:
    return wire.tool_call_success("bash", {"command": command, "description": "d", **more})


def test_a_last_dash_adds_standard_input(cli: Cli, serve: Serve) -> None:
    server = serve(wire.success("ok"))
    assert cli.run("run", "review", "this:", "-", stdin="+ a\n- b\n").code == 0
    assert server.attempts[0].request.last_text == "review this:\n\n+ a\n- b\n"


def test_a_first_dash_takes_no_words(cli: Cli) -> None:
    result = cli.run("run", "-", "extra", stdin="x")
    assert (result.code, "`-` comes after the task" in result.stderr) == (2, True)


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_a_stored_key_is_masked_though_the_environment_wins(
    cli: Cli, serve: Serve, json_: list[str]
) -> None:
    assert cli.run("login", stdin=STORED).code == 0
    server = serve([bash("cat ~/.dsh/keys/deepseek"), wire.success(f"It is {STORED}.")])
    result = cli.run("run", "show", *json_)
    assert result.code == 0
    assert STORED not in result.stdout + result.stderr
    assert "[secret]" in result.stdout
    sent = json.dumps(server.attempts[1].request.messages)
    assert STORED not in sent
    assert "[secret]" in sent


@pytest.mark.parametrize("command", [["run", "x"], ["run", "x", "--json"], ["doctor"]])
def test_a_key_in_the_error_of_a_plugin_is_masked(cli: Cli, command: list[str]) -> None:
    cli.env["OTHER_KEY"] = "other-key-0123456789"
    cli.env["DEEPSEEK_API_KEY"] = STORED
    file = cli.folder / "p.py"
    body = "import os; raise RuntimeError(os.environ['OTHER_KEY'] + os.environ['DEEPSEEK_API_KEY'])"
    file.write_text(PLUGIN.format(body=body))
    cli.settings(
        "plugins:\n  - {id: llm-deepseek, config: {api_key_env: OTHER_KEY}}\n"
        f"  - {{id: mine, use: {file}}}\n"
    )
    result = cli.run(*command)
    text = result.stdout + result.stderr
    assert result.code == 1
    assert "[secret]" in text
    assert STORED not in text
    assert "other-key" not in text


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise SystemExit", "raise BaseException('x')"])
def test_a_plugin_that_ends_the_process_is_a_broken_row(cli: Cli, ending: str) -> None:
    file = cli.folder / "p.py"
    file.write_text(f"import sys\n{ending}\n")
    cli.settings(f"plugins: [{{id: mine, use: {file}}}]\n")
    result = cli.run("run", "x")
    assert result.code == 1
    assert "did not load" in result.stderr
    assert "mine" in result.stderr


@pytest.mark.parametrize("command", [["run", "x", "--json"], ["doctor", "--json"]])
def test_what_a_plugin_prints_is_not_on_stdout(cli: Cli, serve: Serve, command: list[str]) -> None:
    serve([wire.success("ok")])
    file = cli.folder / "p.py"
    file.write_text("print('imported')\n" + PLUGIN.format(body="print('started')"))
    cli.settings(f"plugins: [{{id: mine, use: {file}}}]\n")
    result = cli.run(*command)
    assert result.code == 0
    assert result.events
    assert "imported\nstarted" in result.stderr


def test_a_timeout_is_told_as_one(cli: Cli, serve: Serve) -> None:
    serve([bash("sleep 30"), wire.success("ok")])
    result = cli.run("run", "x", "--set", "bash.timeout_ms=300")
    assert "timed out after 300 ms" in result.stderr


def test_a_folder_in_place_of_a_file_is_named(cli: Cli) -> None:
    (cli.folder / "dsh.yaml").mkdir()
    result = cli.run("run", "x")
    assert result.code == 2
    assert f"{cli.folder / 'dsh.yaml'}: not a regular file" in result.stderr


def test_an_empty_model_is_a_usage_error(cli: Cli) -> None:
    assert cli.run("run", "x", "--model", "").code == 2


def test_an_unknown_effort_in_a_file_is_refused(cli: Cli) -> None:
    cli.env["DEEPSEEK_API_KEY"] = STORED
    file = cli.settings("effort: bogus\n")
    result = cli.run("run", "x")
    assert result.code == 2
    assert "does not offer the reasoning effort 'bogus'" in result.stderr
    assert str(file) in result.stderr


def test_a_key_of_an_unknown_provider_is_not_kept(cli: Cli) -> None:
    result = cli.run("login", "nope", stdin=STORED)
    assert (result.code, "known: deepseek" in result.stderr) == (2, True)
    assert not (cli.home / ".dsh" / "keys" / "nope").exists()
    cli.settings("plugins: [{id: other, use: llm-deepseek, config: {provider: nope}}]\n")
    assert cli.run("login", "nope", stdin=STORED).code == 0


def test_no_key_at_the_prompt_changes_nothing(cli: Cli) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        cli.command("login"),
        cwd=cli.folder,
        env=cli.env,
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(slave)
    assert process.stderr is not None
    seen = b""
    while b"shown" not in seen:
        seen += os.read(process.stderr.fileno(), 1024)
    os.write(master, b"\x04")
    _, err = process.communicate(timeout=30)
    os.close(master)
    assert process.returncode == 2
    assert b"no key given; nothing was changed" in err


def test_plugins_of_the_bundle_are_told_as_used(cli: Cli) -> None:
    lines = [json.loads(line) for line in cli.run("plugins", "--json").stdout.splitlines()]
    found = {line["name"]: (line["provides"], line["used"]) for line in lines}
    assert found["tools"] == ("tools", "in agent-core")
    assert found["llm"] == ("llm", "in agent-core")
