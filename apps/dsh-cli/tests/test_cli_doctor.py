"""`dsh doctor`: facts, choices and what is missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

Cli = Any
KEY = "sk-test-0123456789abcdef"


def test_with_a_key_everything_is_there(cli: Cli) -> None:
    cli.env["DEEPSEEK_API_KEY"] = KEY
    result = cli.run("doctor")
    assert result.code == 0, result.stdout
    assert "everything needed is there" in result.stdout
    assert "bash-local from dsh-bash-local 0.1.0: the default of dsh-cli" in result.stdout
    assert "agent-core from dsh-agent-core 0.1.0: the default of dsh-cli" in result.stdout
    assert "the environment variable DEEPSEEK_API_KEY" in result.stdout
    assert "deepseek/deepseek-flash (dsh-cli defaults)" in result.stdout


def test_without_a_key_that_is_the_problem(cli: Cli) -> None:
    result = cli.run("doctor", "--json")
    assert result.code == 1
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert report["keys"] == {"deepseek": "none"}
    (problem,) = report["problems"]
    assert "DEEPSEEK_API_KEY" in problem["text"]
    assert "dsh login" in problem["hint"]
    assert report["plugins"]["agent-core"] == "active"
    assert report["wheels"]["dsh-core"] == "0.1.0"


def test_where_a_key_comes_from_is_said_and_never_the_key(cli: Cli) -> None:
    def source() -> str:
        result = cli.run("doctor", "--json")
        assert "sk-" not in result.stdout + result.stderr
        return str(json.loads(result.stdout)["keys"]["deepseek"])

    assert cli.run("login", stdin="sk-login-123456").code == 0
    assert source().endswith("/.dsh/keys/deepseek (dsh login)")
    (cli.home / "key").write_text("\n", encoding="utf-8")
    settings = "plugins: [{{id: llm-deepseek, config: {{key_file: {}}}}}]\n"
    file = cli.settings(settings.format(cli.home / "key"))
    assert source() == "none"  # a file without a key is not one with a key
    (cli.home / "key").write_text("sk-own-123456\n", encoding="utf-8")
    assert source() == f"the file {cli.home / 'key'}"
    file.unlink()
    cli.env["DEEPSEEK_API_KEY"] = KEY
    assert source() == "the environment variable DEEPSEEK_API_KEY"
    file = cli.settings("plugins: [{id: llm-deepseek, config: {api_key: sk-file-123456}}]\n")
    assert source() == f"the setting api_key ({file}, line 1)"


def test_a_foreign_package_of_our_name_is_named(cli: Cli, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "dsh").mkdir(parents=True)
    (site / "dsh" / "__init__.py").write_text("", encoding="utf-8")
    info = site / "dsh_shell-3.1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("dsh/__init__.py,sha256=x,0\n", encoding="utf-8")
    late = "import sys; sys.path.append(sys.argv.pop(1)); from dsh.cli import main"
    import subprocess
    import sys

    cli.env["DEEPSEEK_API_KEY"] = KEY
    code = f"import dsh.cli._main, dsh.core; {late}; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(site), "doctor"],
        env=cli.env,
        cwd=cli.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{site}/dsh/__init__.py (from dsh_shell)" in done.stdout
    assert "uninstall dsh_shell" in done.stdout


def test_a_missing_program_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    cli.env["PATH"] = str(tmp_path / "bin")
    cli.env["DEEPSEEK_API_KEY"] = KEY
    result = cli.run("doctor")
    assert result.code == 1
    assert "the program bash is not installed" in result.stdout


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("modle: x", "unknown key"),
        ("plugins: [nope]", "no installed plugin is called 'nope'"),
        ("seams: {bash: nope}", "no installed provider of 'bash' is called 'nope'"),
        ("bash: {nope: 1}", "bash.nope: unknown field"),
        ("model: nobody/x", "no registered adapter serves"),
    ],
)
def test_what_is_wrong_with_the_settings_is_a_finding(
    cli: Cli, settings: str, message: str
) -> None:
    cli.env["DEEPSEEK_API_KEY"] = KEY
    cli.settings(settings)
    result = cli.run("doctor")
    assert result.code == 1
    assert message in result.stdout
    assert result.stderr == ""


def test_an_untrusted_project_is_a_note_not_a_problem(cli: Cli) -> None:
    cli.env["DEEPSEEK_API_KEY"] = KEY
    (cli.folder / "dsh.yaml").write_text("bash: {timeout_ms: 1}\nmodel: x\n", encoding="utf-8")
    result = cli.run("doctor", "--model", "deepseek/y")
    assert result.code == 0
    assert "note: " in result.stdout
    assert "(not trusted: only model and limits)" in result.stdout


def test_the_doctor_writes_nothing(cli: Cli) -> None:
    cli.run("doctor", "--set", "seams.session_persistence=session-persistence-jsonl")
    assert os.listdir(cli.home) == []
    assert os.listdir(cli.folder) == []


def test_a_store_that_needs_a_database_gets_an_empty_one(cli: Cli) -> None:
    """The doctor starts what a run would start, and such a store cannot start without one."""
    cli.run("doctor", "--set", "seams.session_persistence=session-persistence-sqlite")
    (made,) = (cli.home / ".dsh").glob("*.sqlite")
    assert made.stat().st_mode & 0o777 == 0o600
    assert cli.run("sessions", "--all").stdout == ""


def test_a_store_that_cannot_be_opened_is_a_finding(cli: Cli) -> None:
    cli.env["DEEPSEEK_API_KEY"] = KEY
    cli.settings("seams: {session_persistence: session-persistence-jsonl}\n")
    (cli.home / ".dsh" / "sessions").write_text("in the way")
    result = cli.run("doctor")
    assert result.code == 1
    assert f"Not a directory ({cli.home}/.dsh/sessions)" in result.stdout
