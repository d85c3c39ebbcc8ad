"""`dsh sessions show`, `path` and `export`, and which session is meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.llm import TextDelta
from dsh.llm_replay import load_recording
from dsh.session import Session, event_to_wire

Cli = Any
Store = Callable[..., Session]
A, B = "a1b2c3d4" + "0" * 24, "a1b2ffff" + "0" * 24

both = pytest.mark.parametrize("cli", ["jsonl", "sqlite"], indirect=True)


def test_a_transcript_says_what_happened(cli: Cli, store: Store) -> None:
    store(A, "make it so", "and again")
    result = cli.run("sessions", "show", "a1b2")
    assert result.code == 0
    text = result.stdout
    assert text.startswith(f"session {A}  make it so\n")
    assert text.index("--- turn 1") < text.index("> make it so") < text.index("--- turn 2")
    assert "[model: test/model]" in text
    assert "$ echo text=x\n  x\n" in text
    assert "[context] audited" in text
    assert "\ndone\n" in text
    assert "[turn 2 completed" in text
    assert text.count("[model:") == 1


@both
def test_one_turn_and_the_raw_events(cli: Cli, store: Store) -> None:
    session = store(A, "one", "two", "three")
    text = cli.run("sessions", "show", A, "--turn", "2").stdout
    assert "> two" in text
    assert "> one" not in text
    assert "> three" not in text
    raw = cli.run("sessions", "show", A, "--json")
    assert raw.objects == [event_to_wire(event) for event in session.events]
    part = cli.run("sessions", "show", A, "--json", "--turn", "3").objects
    assert (part[0]["type"], part[-1]["type"]) == ("turn/start", "turn/end")
    assert {event["data"]["turn"] for event in (part[0], part[-1])} == {3}
    wrong = cli.run("sessions", "show", A, "--turn", "4")
    assert wrong.code == 2
    assert "has no turn 4: it has 3 turns" in wrong.stderr


@both
def test_an_open_turn_is_shown_as_it_lies_there(cli: Cli, store: Store) -> None:
    session = store(A, "make it so")
    (call,) = [e.seq for e in session.events if e.type == "tool/call"]
    cli.kept.remove(A)
    store(A, "make it so", cut=call + 1)
    text = cli.run("sessions", "show", A).stdout
    assert "$ echo text=x\n  [no result is recorded]" in text
    assert "[turn 1: open: somebody works on it right now, or it was killed]" in text
    assert len(cli.run("sessions", "show", A, "--json").objects) == call + 1
    assert len(cli.kept.events(A)) == call + 1


@both
def test_an_interrupted_call_and_an_error_are_marked(cli: Cli, store: Store) -> None:
    session = store(A, "make it so")
    (call,) = [e.seq for e in session.events if e.type == "tool/call"]
    cli.kept.remove(A)
    store(A, "make it so", cut=call + 1)
    assert cli.run("run", "--resume", A, "go on").code == 0
    text = cli.run("sessions", "show", A).stdout
    assert "[interrupted while it ran; its outcome is unknown]" in text
    assert "[turn 1: interrupted: the process ended before the turn did]" in text
    failing = "plugins.llm-replay.config.script=[]"
    assert cli.run("run", "--resume", A, "--set", failing, "fail").code == 1
    assert "[turn 3: error: " in cli.run("sessions", "show", A).stdout


@both
def test_what_was_streamed_and_never_became_a_message_is_shown_as_not_finished(
    cli: Cli, store: Store
) -> None:
    session = store(A, "make it so")
    (said,) = [e.seq for e in session.events if isinstance(getattr(e.data, "chunk", 0), TextDelta)]
    cli.kept.remove(A)
    store(A, "make it so", cut=said + 1)
    for options in ((), ("--full",), ("--turn", "1")):
        text = cli.run("sessions", "show", A, *options).stdout
        assert "\ndone\n[not finished: " in text
    text = cli.run("sessions", "export", A, "--format", "md").stdout
    assert "\n\ndone\n\n*Not finished: " in text
    assert cli.run("run", "--resume", A, "go on").code == 0
    text = cli.run("sessions", "show", A).stdout
    assert text.index("\ndone\n[not finished: ") < text.index("[turn 1: interrupted: ")
    assert text.count("[not finished: ") == 1


def test_a_key_that_is_known_is_masked_in_a_file_as_on_standard_output(
    cli: Cli, store: Store, tmp_path: Path
) -> None:
    key = "sk-test-0123456789abcdef"
    store(A, f"use {key} for it")
    cli.env["DEEPSEEK_API_KEY"] = key
    for form in ("md", "json"):
        file = tmp_path / form
        assert cli.run("sessions", "export", A, "--format", form, "-o", str(file)).code == 0
        text = file.read_text()
        assert key not in text
        assert "use " in text
        assert text == cli.run("sessions", "export", A, "--format", form).stdout
    assert key not in cli.run("sessions", "show", A, "--json").stdout


def test_long_results_are_shortened_unless_all_of_them_is_wanted(cli: Cli) -> None:
    script = (
        'plugins.llm-replay.config.script=[{"text": "Look.", "tool": "bash", "arguments": '
        '{"command": "seq 50", "description": "count"}}, "Counted."]'
    )
    assert cli.run("run", "--set", script, "count").code == 0
    (row,) = cli.run("sessions").rows
    text = cli.run("sessions", "show", row[0]).stdout
    assert "  4\n  ... 46 more lines\n" in text
    assert "\n  50\n" in cli.run("sessions", "show", "--full", row[0]).stdout


def test_a_hostile_text_cannot_drive_the_terminal(cli: Cli, store: Store) -> None:
    store(A, "\x1b]0;owned\x07 \x1b[2J \x1b[8mhidden \u202egnp")
    for _, shown in (
        cli.on_terminal("sessions", "show", A),
        cli.on_terminal("sessions", "export", A, "--format", "md"),
        cli.on_terminal("sessions"),
    ):
        assert "owned" in shown
        for bad in ("\x1b]", "\x1b[2J", "\x1b[8m", "\x07", "\u202e"):
            assert bad not in shown
    assert "\x1b" not in cli.run("sessions", "show", A).stdout


@pytest.mark.parametrize("action", ["show", "path", "fork", "archive", "verify"])
def test_an_unknown_and_an_ambiguous_id_are_clear_errors(
    cli: Cli, store: Store, action: str
) -> None:
    none = cli.run("sessions", action, "x")
    assert none.code == 2
    assert "no session is stored yet" in none.stderr
    store(A, "first task")
    store(B, "second task")
    unknown = cli.run("sessions", action, "zz")
    assert (unknown.code, unknown.stdout) == (2, "")
    assert "no session has an id that begins with 'zz'" in unknown.stderr
    assert "a1b2c3d4" in unknown.stderr
    both = cli.run("sessions", action, "a1b2")
    assert (both.code, both.stdout) == (2, "")
    assert "2 sessions have an id that begins with 'a1b2'" in both.stderr
    for told in ("a1b2c3d4", "first task", "a1b2ffff", "second task", "write more of the id"):
        assert told in both.stderr


def test_a_whole_id_that_begins_another_one_is_meant_itself(cli: Cli, store: Store) -> None:
    store("task", "short")
    store("task-2", "long")
    assert cli.run("sessions", "path", "task").stdout == f"{cli.kept.where('task')}\n"
    assert cli.run("sessions", "path", "task-").stdout == f"{cli.kept.where('task-2')}\n"


@both
def test_an_export_is_a_recording_that_can_be_played(
    cli: Cli, store: Store, tmp_path: Path
) -> None:
    session = store(A, "make it so")
    file = tmp_path / "out.jsonl"
    result = cli.run("sessions", "export", A, "--format", "json", "-o", str(file))
    assert (result.code, result.stdout) == (0, "")
    assert str(file) in result.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["header"]["id"] == A
    assert lines[1:] == [event_to_wire(event) for event in session.events]
    assert len(load_recording(file).calls) == 2
    assert cli.run("sessions", "export", A, "--format", "json").stdout == file.read_text()
    dash = cli.run("sessions", "export", A, "--format", "json", "--output", "-")
    assert dash.stdout == file.read_text()


def test_markdown_keeps_what_was_said_inside_its_marks(cli: Cli, store: Store) -> None:
    store(A, "# not a title\n```\n*not bold*")
    text = cli.run("sessions", "export", A, "--format", "md").stdout
    assert text.startswith("# \\# not a title\n")
    assert "> # not a title\n> ```\n> *not bold*\n" in text
    assert '**echo**\n\n```json\n{"text":"x"}\n```\n\n```\nx\n```\n' in text
    assert text.endswith("*Completed.*\n")


def test_an_export_that_cannot_be_written_is_told(cli: Cli, store: Store, tmp_path: Path) -> None:
    store(A, "hi")
    gone = cli.run("sessions", "export", A, "--format", "md", "-o", "no/such/file")
    assert gone.code == 2
    assert "there is no folder" in gone.stderr
    folder = cli.run("sessions", "export", A, "--format", "md", "-o", str(tmp_path))
    assert folder.code == 2
    full = cli.run("sessions", "export", A, "--format", "md", "-o", "/dev/full")
    assert full.code == 1
    assert "/dev/full: cannot be written: No space left on device" in full.stderr


def test_a_reader_that_goes_away_and_a_full_disk_end_it_quietly(cli: Cli, store: Store) -> None:
    import subprocess

    store(A, *("a long session " * 20 for _ in range(60)))
    command = " ".join(cli.command("sessions", "show", A, "--json"))
    piped = subprocess.run(
        ["bash", "-c", f"{command} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"],
        env=cli.env,
        cwd=cli.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (piped.stdout, piped.stderr) == ("141\n", "")
    full = subprocess.run(
        ["bash", "-c", f"{command} >/dev/full"],
        env=cli.env,
        cwd=cli.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (full.returncode, full.stderr) == (
        1,
        "dsh: stdout cannot be written: No space left on device\n",
    )
