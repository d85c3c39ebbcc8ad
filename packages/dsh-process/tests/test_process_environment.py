"""What a child learns about its surroundings, and what fails for want of a person."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from dsh.core import secrets
from dsh.process import Supervisor, child_environment, is_secret_name
from dsh.process.testing import run


@pytest.mark.parametrize(
    "name",
    [
        "X_API_KEY", "OPENAI_API_KEY", "aws_secret_access_key", "GITHUB_TOKEN", "X_TOKEN",
        "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "PASSPHRASE", "AWS_CREDENTIALS", "CREDENTIAL_FILE",
        "SSH_AUTH_SOCK", "AUTHORIZATION", "XAUTHORITY", "COOKIE_JAR", "SESSION_TOKEN", "GH_PAT",
        "SMTP_PASSWD", "BASIC_AUTH",
    ],
)  # fmt: skip
def test_names_of_credentials(name: str) -> None:
    # case: BASH-09
    assert is_secret_name(name)
    assert name not in child_environment(base={name: "x"})


@pytest.mark.parametrize(
    "name",
    ["X_PLAIN", "PATH", "HOME", "PWD", "OLDPWD", "GIT_AUTHOR_NAME", "AUTHORS", "LANG",
     "PATTERN", "VIRTUAL_ENV", "COMPASS", "TOKENIZERS_PARALLELISM"],
)  # fmt: skip
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)
    assert child_environment(base={name: "x"})[name] == "x"


def test_ambient_settings_and_start_up_files_are_dropped() -> None:
    base = {
        "DSH_HOME": "/x", "DSH_ANYTHING": "1", "BASH_ENV": "/evil", "ENV": "/evil",
        "BASH_FUNC_ls%%": "() { echo hijacked; }", "SHELLOPTS": "xtrace", "GIT_ASKPASS": "/gui",
        "SSH_ASKPASS": "/gui", "KEEP": "1",
    }  # fmt: skip
    made = child_environment(base=base)
    assert set(made) & set(base) == {"KEEP"}


def test_a_registered_secret_is_dropped_under_any_name() -> None:
    # case: F-44
    secrets.add("hunter2-hunter2")
    made = child_environment(base={"URL": "https://u:hunter2-hunter2@host/", "OTHER": "hunter"})
    assert "URL" not in made
    assert made["OTHER"] == "hunter"


def test_terminals_pagers_and_prompts_are_switched_off() -> None:
    made = child_environment(base={"TERM": "xterm", "PAGER": "less", "EDITOR": "vim"})
    assert made["TERM"] == "dumb"
    assert made["PAGER"] == made["GIT_PAGER"] == "cat"
    assert made["NO_COLOR"] == "1"
    assert made["GIT_TERMINAL_PROMPT"] == "0"
    assert {made[n] for n in ("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR")} == {"false"}


def test_explicit_entries_beat_everything() -> None:
    # case: BASH-09
    made = child_environment({"DSH_OVERRIDE_KEY": "k", "TERM": "xterm"}, base={"TERM": "vt100"})
    assert (made["DSH_OVERRIDE_KEY"], made["TERM"]) == ("k", "xterm")


async def test_a_command_sees_the_scrubbed_environment(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # case: BASH-09
    monkeypatch.setenv("X_API_KEY", "a-secret-value")
    monkeypatch.setenv("X_TOKEN", "another-secret")
    monkeypatch.setenv("X_PLAIN", "plain")
    done = await run(supervisor, ["env"])
    names = {line.partition("=")[0] for line in done.stdout.snapshot().text.splitlines()}
    assert "X_PLAIN" in names
    assert not names & {"X_API_KEY", "X_TOKEN"}


async def test_an_editor_that_insists_ends_at_its_timeout(supervisor: Supervisor) -> None:
    # case: F-05
    # With no terminal anywhere vim reads its keys from standard error, which never has any.
    with anyio.fail_after(10):
        done = await run(supervisor, ["bash", "-c", "vim"], timeout_ms=1000, merge=True)
    assert done.ending.exit_code != 0


GIT = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (f"{GIT} init -q && {GIT} commit --allow-empty", "editor"),
        (
            f"{GIT} init -q && for n in 1 2 3; do {GIT} commit -q --allow-empty -m $n; done &&"
            f" {GIT} rebase -i HEAD~2",
            "editor",
        ),
        ("sudo true", "sudo"),
        ("git clone -q https://127.0.0.1:1/x", "unable to access"),
        ("read x </dev/tty", "/dev/tty"),
        ("python3 -c 'import getpass; getpass.getpass()'", "EOF"),
    ],
)
async def test_nothing_waits_for_a_person(
    supervisor: Supervisor, tmp_path: Path, script: str, complaint: str
) -> None:
    # case: F-05
    if shutil.which(script.split()[0]) is None and not script.startswith("read"):
        complaint = "not found"
    with anyio.fail_after(10):
        done = await run(
            supervisor,
            ["bash", "-c", script],
            cwd=tmp_path,
            env=child_environment({"HOME": str(tmp_path)}),
            timeout_ms=8000,
            merge=True,
        )
    assert done.ending.exit_code != 0
    assert not done.ending.timed_out
    assert complaint in done.stdout.snapshot().text
