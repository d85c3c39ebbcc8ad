"""`dsh config show`, `plugins`, `login`, `trust`, `completion` and the command line itself."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsh.loader import parse_yaml

Cli = Any


def test_alone_it_says_what_it_can_do(cli: Cli) -> None:
    result = cli.run()
    assert result.code == 0
    assert "dsh demo" in result.stdout
    assert "run " in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["config", "show", "--help"], ["trust", "-h"]]
)
def test_help_is_output_and_success(cli: Cli, arguments: list[str]) -> None:
    result = cli.run(*arguments)
    assert result.code == 0
    assert result.stdout.startswith("usage: dsh")


def test_the_version(cli: Cli) -> None:
    result = cli.run("--version")
    assert (result.code, result.stdout) == (0, "dsh 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "invalid choice: 'nope'"),
        (["rn", "x"], "did you mean `dsh run`?"),
        (["sessions", "rm"], "did you mean `dsh sessions remove`?"),
        (["sessions", "a8ad18c9"], "to read a session: dsh sessions show a8ad18c9"),
        (["sessions", "show", "a", "b"], "see dsh sessions show --help"),
        (["config", "show", "x"], "see dsh config show --help"),
        (["--nope"], "unrecognized arguments"),
        (["run", "--nope", "x"], "unrecognized arguments: --nope"),
        (["run", "--max-steps", "0", "x"], "'0' is not a positive whole number"),
        (["run", "--max-steps", "1e3", "x"], "'1e3' is not a positive whole number"),
        (["run", "--timeout", "soon", "x"], "'soon' is not a time"),
        (["run", "--timeout", "nan", "x"], "'nan' is not a time"),
        (["run", "--timeout", "-1", "x"], "'-1' is not a time"),
        (["run", "--js", "x"], "unrecognized arguments: --js"),
        (["run", "  "], "the task is empty"),
        (["config"], "no action given"),
        (["config", "show", "--defaults", "--set", "model=x"], "takes neither"),
        (["trust", "--list", "x"], "--list takes no PATH"),
        (["trust", "--list", "--revoke"], "not allowed with"),
        (["login", "a/b"], "is no name of a provider"),
        (["completion", "powershell"], "invalid choice"),
    ],
)
def test_a_wrong_command_line_is_exit_2(cli: Cli, arguments: list[str], message: str) -> None:
    result = cli.run(*arguments)
    assert result.code == 2
    assert message in result.stderr
    assert result.stdout == ""


# -- config show ---------------------------------------------------------------------------


def test_config_show_is_yaml_with_origins(cli: Cli) -> None:
    file = cli.settings("model: deepseek/x\nplugins: [{id: llm-deepseek, config: {api_key: k}}]\n")
    result = cli.run("config", "show", "--set", "limits.max_steps=3")
    assert result.code == 0
    value = parse_yaml(result.stdout, where="shown").value
    assert isinstance(value, dict)
    assert value["model"] == "deepseek/x"
    assert f"model: deepseek/x  # {file}, line 1" in result.stdout
    assert "max_steps: 3  # --set limits.max_steps" in result.stdout
    assert 'api_key: "********"' in result.stdout


def test_config_show_of_the_defaults_works_with_a_broken_file(cli: Cli) -> None:
    cli.settings("model: [broken")
    assert cli.run("config", "show").code == 2
    result = cli.run("config", "show", "--defaults")
    assert result.code == 0
    assert "model: deepseek/deepseek-flash  # dsh-cli defaults" in result.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle: x", "line 1: modle: unknown key"),
        ("model: x\nmodel: y", "line 2: key 'model' occurs twice"),
        ("a: !!python/object:x y", "tags are not supported"),
        ("version: 9", "format version 1, not 9"),
        ("model: ${env:NOPE}/x", "the variable of ${env:NOPE} is not set"),
    ],
)
def test_a_wrong_user_file_is_told_with_place(cli: Cli, text: str, message: str) -> None:
    file = cli.settings(text)
    result = cli.run("config", "show")
    assert result.code == 2
    assert str(file) in result.stderr
    assert message in result.stderr


def test_missing_config_file(cli: Cli) -> None:
    result = cli.run("config", "show", "--config", "nope.yaml")
    assert result.code == 2
    assert "nope.yaml: there is no such file" in result.stderr


# -- plugins -------------------------------------------------------------------------------


def test_plugins_are_listed_without_loading_them(cli: Cli) -> None:
    lines = [json.loads(line) for line in cli.run("plugins", "--json").stdout.splitlines()]
    by_name = {line["name"]: line for line in lines}
    assert by_name["agent-core"]["used"] == "bundle"
    assert by_name["llm-deepseek"]["used"] == "row"
    assert by_name["bash-local"] == {
        "name": "bash-local",
        "wheel": "dsh-bash-local",
        "version": "0.1.0",
        "provides": "bash",
        "used": "provider",
    }
    text = cli.run("plugins", "--set", "plugins.tool-bash.disabled=true").stdout
    assert text.splitlines()[0].split() == ["PLUGIN", "FROM", "PROVIDES", "USED"]
    assert any(line.split()[0] == "tool-bash" and "disabled" in line for line in text.splitlines())


# -- login ---------------------------------------------------------------------------------


def test_login_keeps_a_key_private(cli: Cli) -> None:
    result = cli.run("login", stdin="sk-login-123456\n")
    file = cli.home / ".dsh" / "keys" / "deepseek"
    assert result.code == 0
    assert str(file) in result.stdout
    assert "sk-login" not in result.stdout + result.stderr
    assert file.read_text() == "sk-login-123456\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o700
    assert cli.run("login", "--remove").stdout == "the key of deepseek is removed\n"
    assert not file.exists()
    assert cli.run("login", "--remove").code == 0


@pytest.mark.parametrize("text", ["", "\n", "two words", "sk-\x1b[31m", "é", "x" * 5000])
def test_login_refuses_what_is_no_key(cli: Cli, text: str) -> None:
    result = cli.run("login", stdin=text)
    assert result.code == 2
    assert "nothing was changed" in result.stderr
    assert not (cli.home / ".dsh").exists()


def test_login_uses_dsh_home(cli: Cli, tmp_path: Path) -> None:
    cli.env["DSH_HOME"] = str(tmp_path / "elsewhere")
    assert cli.run("login", stdin="sk-login-123456").code == 0
    assert (tmp_path / "elsewhere" / "keys" / "deepseek").exists()


def test_login_asks_at_a_terminal_and_does_not_echo(cli: Cli) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        cli.command("login"),
        cwd=cli.folder,
        env=cli.env,
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    shown = b""
    while b"not shown" not in shown:
        shown += os.read(parent, 1024)
    os.write(parent, b"sk-typed-123456\n")
    while b"is kept in" not in shown:
        shown += os.read(parent, 1024)
    assert process.wait(30) == 0
    os.close(parent)
    assert b"sk-typed" not in shown
    assert (cli.home / ".dsh" / "keys" / "deepseek").read_text() == "sk-typed-123456\n"


# -- trust ---------------------------------------------------------------------------------


def test_trust_revoke_and_list(cli: Cli) -> None:
    (cli.folder / ".git").mkdir()
    file = cli.folder / "dsh.yaml"
    file.write_text("bash: {timeout_ms: 5000}\n", encoding="utf-8")
    shown = cli.run("config", "show")
    assert "timeout_ms" not in shown.stdout
    assert shown.stderr.count("\n") == 1
    assert f"{file} is not trusted; ignored: bash" in shown.stderr

    result = cli.run("trust")
    assert result.code == 0
    assert f"{file} is trusted as it is now" in result.stdout
    assert "takes effect in full: bash" in result.stdout
    assert "timeout_ms: 5000" in cli.run("config", "show").stdout
    assert "trusted" in cli.run("trust", "--list").stdout

    file.write_text("bash: {timeout_ms: 6000}\n", encoding="utf-8")
    shown = cli.run("config", "show")
    assert "timeout_ms" not in shown.stdout
    assert "has changed since you trusted it" in shown.stderr
    assert "changed" in cli.run("trust", "--list").stdout

    assert cli.run("trust", str(file)).code == 0
    assert cli.run("trust", "--revoke", str(cli.folder)).code == 0
    assert cli.run("trust", "--revoke").code == 1
    assert cli.run("trust", "--list").stdout == "nothing is trusted\n"


def test_trust_without_a_file_and_with_a_broken_one(cli: Cli) -> None:
    assert "there is no dsh.yaml" in cli.run("trust").stderr
    (cli.folder / "dsh.yaml").write_text("modle: x\n", encoding="utf-8")
    result = cli.run("trust")
    assert result.code == 2
    assert "unknown key" in result.stderr
    assert cli.run("trust", "--list").stdout == "nothing is trusted\n"


# -- completion ----------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_scripts_name_commands_and_options(cli: Cli, shell: str) -> None:
    result = cli.run("completion", shell)
    assert result.code == 0
    assert "doctor" in result.stdout
    assert "output-schema" in result.stdout


def test_the_bash_completion_is_a_valid_script(cli: Cli) -> None:
    script = cli.run("completion", "bash").stdout
    done = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


# -- folders -------------------------------------------------------------------------------


def test_a_missing_or_wrong_working_folder(cli: Cli) -> None:
    (cli.folder / "file").write_text("", encoding="utf-8")
    for name, message in (("nope", "does not exist"), ("file", "is no folder")):
        result = cli.run("run", "--cwd", name, "task")
        assert result.code == 2
        assert message in result.stderr


def test_a_working_folder_that_has_been_removed(cli: Cli) -> None:
    command = 'd=$(mktemp -d) && cd "$d" && rmdir "$d" && exec "$@"'
    done = subprocess.run(
        ["bash", "-c", command, "-", *cli.command("run", "task")],
        env=cli.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "does not exist any more" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_files_are_checked_first(cli: Cli) -> None:
    for arguments, message in (
        (["--output-last-message", "no/such/file"], "there is no folder"),
        (["--output-last-message", "."], "is a folder"),
        (["--output-schema", "nope.json"], "No such file"),
    ):
        result = cli.run("run", *arguments, "task")
        assert result.code == 2
        assert message in result.stderr
    (cli.folder / "schema.json").write_text("[1]", encoding="utf-8")
    assert "is an object" in cli.run("run", "--output-schema", "schema.json", "t").stderr
    (cli.folder / "schema.json").write_text("{", encoding="utf-8")
    assert cli.run("run", "--output-schema", "schema.json", "t").code == 2
