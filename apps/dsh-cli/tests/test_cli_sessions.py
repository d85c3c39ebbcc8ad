"""`dsh run` keeps its session, and goes on with one: in this folder, in another, in a copy."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.cli._resume import ResumeFrom, resume_notes
from dsh.core import App
from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer
from dsh.session import LiveSessions, Session, SessionHeader
from dsh.session.testing import write_turn
from dsh.session_persistence import SessionPersistence
from dsh.session_persistence.testing import MemoryPersistence

Cli = Any
Kept = Any
Pipe = Any
Serve = Callable[..., ThreadedServer]

SECRET = "sk-test-0123456789abcdef"
both = pytest.mark.parametrize("kept", ["jsonl", "sqlite"], indirect=True)


def bash(command: str, call_id: str = "call_1", text: str = "") -> wire.Behaviour:
    arguments = {"command": command, "description": "d"}
    return wire.tool_call_success("bash", arguments, call_id=call_id, text=text)


def contents(server: ThreadedServer, number: int) -> list[str]:
    """Return what the model read in a request."""
    return [str(m.get("content")) for m in server.attempts[number].request.messages]


@both
def test_a_run_is_kept_and_says_how_to_go_on(cli: Cli, serve: Serve, kept: Kept) -> None:
    server = serve([wire.success("One."), wire.success("Two."), wire.success("Three.")])
    first = cli.run("run", "first task")
    session_id = kept.only()
    assert (first.code, first.stdout) == (0, "One.\n")
    assert first.stderr == ""
    assert first.hint == f"resume with: dsh run --resume {session_id[:8]}\n"
    assert kept.turns(session_id) == 1
    second = cli.run("run", "--resume", session_id[:6], "second task")
    assert (second.code, second.stdout) == (0, "Two.\n")
    assert (second.stderr, second.hint) == ("", first.hint)
    assert contents(server, 1)[1:] == ["first task", "One.", "second task"]
    third = cli.run("run", "--continue", "-", stdin="third task\n")
    assert (third.code, third.stdout) == (0, "Three.\n")
    assert (kept.ids(), kept.turns(session_id)) == ([session_id], 3)


@both
def test_json_names_the_session_and_prints_what_is_new(cli: Cli, serve: Serve, kept: Kept) -> None:
    serve([wire.success("One."), wire.success("Two.")])
    first = cli.run("run", "--json", "first task").events
    session_id = kept.only()
    assert first[0]["sessionId"] == session_id
    stored = kept.events(session_id)
    assert first[1:-1] == stored
    second = cli.run("run", "--json", "--continue", "second task")
    assert (second.stderr, second.hint) == ("", "")
    assert second.events[0]["sessionId"] == session_id
    assert second.events[1:-1] == kept.events(session_id)[len(stored) :]


def test_quiet_says_nothing_about_it(cli: Cli, serve: Serve, kept: Kept) -> None:
    serve(wire.success("One."))
    result = cli.run("run", "--quiet", "task")
    assert (result.stderr, result.hint) == ("", "")
    assert len(kept.ids()) == 1


@both
def test_an_ephemeral_run_leaves_nothing(cli: Cli, serve: Serve, kept: Kept) -> None:
    serve(wire.success("One."))
    result = cli.run("run", "--ephemeral", "task")
    assert (result.code, result.stdout, result.stderr) == (0, "One.\n", "")
    assert result.hint == ""
    assert not kept.place.exists()


@both
def test_ephemeral_is_refused_where_something_keeps_sessions_all_the_same(
    cli: Cli, serve: Serve, kept: Kept
) -> None:
    serve(wire.success("One."))
    kept.settings(f"plugins: [{kept.name}]\n")
    result = cli.run("run", "--ephemeral", "task")
    assert result.code == 2
    assert f"{kept.name} is mounted and keeps every session" in result.stderr
    assert not kept.place.exists()


@both
def test_a_fork_goes_on_with_a_copy(cli: Cli, serve: Serve, kept: Kept) -> None:
    server = serve([wire.success(text) for text in ("One.", "Two.", "Other.", "Whole.")])
    cli.run("run", "first task")
    session_id = kept.only()
    cli.run("run", "--continue", "second task")
    before = kept.log(session_id)
    result = cli.run("run", "--fork", f"{session_id[:8]}:1", "another second task")
    assert (result.code, result.stdout) == (0, "Other.\n")
    assert contents(server, 2)[1:] == ["first task", "One.", "another second task"]
    (child,) = set(kept.ids()) - {session_id}
    assert result.hint == f"resume with: dsh run --resume {child[:8]}\n"
    assert kept.turns(child) == 2
    assert kept.log(session_id) == before
    wrong = cli.run("run", "--fork", f"{session_id}:7", "task")
    assert wrong.code == 2
    assert f"session {session_id[:8]} has no turn 7" in wrong.stderr
    assert f"`dsh sessions show {session_id[:8]}`" in wrong.stderr
    for end in ("x", "-1", "", "1:2"):
        wrong = cli.run("run", "--fork", f"{session_id[:6]}:{end}", "task")
        assert wrong.code == 2
        assert f"{end!r} is no turn\n     `--fork {session_id[:8]}:1` forks" in wrong.stderr
    unknown = cli.run("run", "--fork", "zz:x", "task")
    assert "no session has an id that begins with 'zz:x'" in unknown.stderr
    assert cli.run("run", "--fork", session_id, "task").code == 0
    assert contents(server, 3)[-2:] == ["Two.", "task"]


def test_a_session_keeps_its_folder(cli: Cli, serve: Serve, kept: Kept, tmp_path: Path) -> None:
    serve([wire.success("One."), bash("pwd"), wire.success("Two.")])
    cli.run("run", "first task")
    session_id = kept.only()
    result = cli.run("run", "--resume", session_id, "where are you?", cwd=tmp_path)
    assert result.code == 0
    assert f"dsh: going on in {cli.folder}, where the session works\n" in result.stderr
    assert result.stderr.count(str(cli.folder)) == 2
    other = cli.run("run", "--resume", session_id, "--cwd", str(tmp_path), "task")
    assert other.code == 2
    assert f"--cwd {tmp_path}, but the session works in {cli.folder}" in other.stderr
    newest = cli.run("run", "--continue", "task", cwd=tmp_path)
    assert newest.code == 2
    assert f"no session of {tmp_path} is stored" in newest.stderr
    assert f"--fork {session_id[:8]} --cwd DIR" in other.stderr


@both
def test_a_session_whose_folder_was_moved_goes_on_in_a_copy(
    cli: Cli, serve: Serve, kept: Kept, tmp_path: Path
) -> None:
    server = serve([wire.success("One."), bash("pwd"), wire.success("Two.")])
    cli.run("run", "first task")
    session_id = kept.only()
    moved = cli.folder.rename(tmp_path / "moved")
    for option, told in (("--resume", session_id[:8]), ("--fork", f"{session_id[:8]}:1")):
        gone = cli.run("run", option, told, "task", cwd=moved)
        assert gone.code == 2
        assert f"working folder {cli.folder} does not exist" in gone.stderr
        fork = f"--fork {told} --cwd DIR"
        assert f"if it was moved, go on with a copy: {fork}\n" in gone.stderr
    other = cli.run("run", "--resume", session_id, "--cwd", str(moved), "task", cwd=moved)
    assert other.code == 2
    assert f"works in {cli.folder}, which does not exist any more\n" in other.stderr
    went_on = cli.run("run", *fork.split()[:-1], str(moved), "where are you?", cwd=tmp_path)
    assert (went_on.code, went_on.stdout) == (0, "Two.\n")
    assert contents(server, 1)[1:3] == ["first task", "One."]
    assert str(moved) in contents(server, 2)[-1]
    (child,) = set(kept.ids()) - {session_id}
    assert kept.log(child).header.cwd == str(moved)
    assert kept.log(session_id).header.cwd == str(cli.folder)


@both
def test_a_session_that_was_put_away_is_taken_back_when_it_goes_on(
    cli: Cli, serve: Serve, kept: Kept
) -> None:
    serve([wire.success("One."), wire.success("Two."), wire.success("Three.")])
    cli.run("run", "first task")
    session_id = kept.only()
    cli.run("sessions", "archive", session_id)
    assert kept.ids() == []
    result = cli.run("run", "--resume", session_id, "second task")
    assert (result.code, result.stdout) == (0, "Two.\n")
    told = f"dsh: session {session_id[:8]} was archived; going on with it takes it back\n"
    assert result.stderr == told
    assert kept.ids() == [session_id]
    assert cli.run("run", "--continue", "third task").stderr == ""
    assert kept.turns(session_id) == 3


def test_what_is_cut_from_the_end_of_a_session_is_told(cli: Cli, serve: Serve, kept: Kept) -> None:
    serve([wire.success("One."), wire.success("Two."), wire.success("Three.")])
    cli.run("run", "first task")
    session_id = kept.only()
    (file,) = kept.place.glob(f"*/{session_id}/session.jsonl")
    lines = file.read_bytes().count(b"\n")
    with file.open("ab") as log:
        log.write(b"junk\n")
    result = cli.run("run", "--resume", session_id, "second task")
    assert (result.code, result.stdout) == (0, "Two.\n")
    (told,) = result.stderr.splitlines()
    assert told.startswith(f"dsh: the end of session {session_id[:8]} is damaged and is set aside")
    assert f"{file}:{lines + 1}: " in told
    assert cli.run("run", "--resume", session_id, "third task").stderr == ""


async def test_an_end_that_somebody_mended_meanwhile_has_no_place() -> None:
    past = ResumeFrom("s", None, None, None, turns=1, interrupted=False, damaged=True)
    async with App() as app:
        for plugin in (LiveSessions, MemoryPersistence):
            await app.mount(plugin).settled()
        store = app[SessionPersistence]
        session = Session("s")
        write_turn(session)
        await store.create(SessionHeader(id="s", created_at=0))
        await store.append("s", session.events[:])
        assert await resume_notes(store, past) == (
            "the end of session s is damaged and is set aside",
        )


def test_a_session_keeps_its_model_unless_another_is_given(
    cli: Cli, serve: Serve, kept: Kept
) -> None:
    server = serve([wire.success(text) for text in ("One.", "Two.", "Three.")])
    cli.run("run", "--model", "deepseek/deepseek-pro", "first task")
    cli.run("run", "--continue", "second task")
    cli.run("run", "--continue", "--model", "deepseek/deepseek-flash", "third task")
    models = [attempt.request.body["model"] for attempt in server.attempts]
    assert models[0] == models[1] != models[2]


def test_a_model_that_is_not_there_any_more_is_told(cli: Cli, kept: Kept) -> None:
    kept.settings("plugins: [{use: llm-replay, config: {script: [One.]}}]\n")
    assert cli.run("run", "--model", "replay/scripted", "first task").code == 0
    kept.settings()
    result = cli.run("run", "--continue", "second task")
    assert result.code == 2
    assert "replay/scripted" in result.stderr
    assert "go on with another: --model NAME" in result.stderr


def test_a_prompt_is_needed(cli: Cli, serve: Serve, kept: Kept) -> None:
    serve(wire.success("One."))
    cli.run("run", "first task")
    result = cli.run("run", "--continue", stdin="")
    assert result.code == 2
    assert "standard input holds no task" in result.stderr
    assert kept.turns(kept.only()) == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--resume", "x", "--continue"),
        ("--resume", "x", "--ephemeral"),
        ("--continue", "--fork", "x"),
        ("--resume", ""),
    ],
)
def test_options_that_do_not_go_together(cli: Cli, options: tuple[str, ...]) -> None:
    assert cli.run("run", *options, "task").code == 2


def test_nothing_to_go_on_with(cli: Cli, serve: Serve, kept: Kept) -> None:
    serve(wire.success("One."))
    for options in (("--resume", "3f2a"), ("--continue",), ("--fork", "3f2a:1")):
        result = cli.run("run", "--json", *options, "task")
        assert result.code == 2
        assert result.events[0]["code"] == "SESSION_NOT_FOUND"
    cli.settings("plugins: [{use: record, disabled: true}]\n")
    result = cli.run("run", "--continue", "task")
    assert result.code == 2
    assert "sessions are not recorded here" in result.stderr


@pytest.mark.parametrize("rows", ["", "session-persistence-jsonl, "])
def test_a_store_that_is_named_keeps_sessions_without_the_row(
    cli: Cli, serve: Serve, kept: Kept, rows: str
) -> None:
    serve([wire.success("One."), wire.success("Two.")])
    text = f"plugins: [{rows}{{use: record, disabled: true}}]\n"
    if rows:
        cli.settings(text)
    else:
        kept.settings(text)
    assert cli.run("run", "first task").hint
    assert cli.run("run", "--continue", "second task").stdout == "Two.\n"
    assert kept.turns(kept.only()) == 2


@both
def test_a_second_process_is_told_who_has_the_session(cli: Cli, serve: Serve, kept: Kept) -> None:
    gate = wire.Gate()
    slow = wire.held_success(gate, "Two, slowly")
    serve([wire.success("One."), slow, wire.success("3"), wire.success("4")])
    cli.run("run", "first task")
    session_id = kept.only()
    with cli.start("run", "--resume", session_id, "second task") as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"T"
        for option in ("--resume", "--continue"):
            extra = [session_id] if option == "--resume" else []
            result = cli.run("run", option, *extra, "me too")
            assert (result.code, result.stdout) == (2, "")
            assert f"by process {process.pid} on " in result.stderr
            way_out = f"go on with a copy: dsh run --fork {session_id[:8]}\n"
            assert result.stderr.endswith(way_out)
            assert str(kept.place) not in result.stderr
        copy = cli.run("run", "--fork", session_id, "me too")
        assert (copy.code, copy.stdout) == (0, "3\n")
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert cli.run("run", "--resume", session_id, "now").code == 0


@both
def test_a_damaged_session_is_not_gone_on_with(cli: Cli, serve: Serve, kept: Kept) -> None:
    serve(wire.success("One."))
    cli.run("run", "first task")
    session_id = kept.only()
    kept.damage(session_id, 2)
    result = cli.run("run", "--resume", session_id, "go on")
    assert (result.code, result.stdout) == (2, "")
    assert f"`dsh sessions verify --repair {session_id[:8]}` keeps a copy" in result.stderr
    assert cli.run("run", "--fork", session_id, "go on").code == 2
    assert kept.ids() in ([session_id], [])


@both
def test_a_run_that_cannot_be_recorded_does_not_start(cli: Cli, serve: Serve, kept: Kept) -> None:
    server = serve(wire.success("One."))
    if kept.store == "jsonl":
        kept.place.write_text("in the way", encoding="utf-8")
    else:
        kept.place.mkdir()
    for options in ((), ("--json",)):
        result = cli.run("run", *options, "task")
        assert result.code == 2
        assert "--ephemeral" in result.stderr
        assert str(kept.place) in result.stderr
        assert result.hint == ""
    assert len(server.attempts) == 0
    assert cli.run("run", "--ephemeral", "task").stdout == "One.\n"


def test_a_store_that_is_not_there_is_named(cli: Cli, serve: Serve) -> None:
    server = serve(wire.success("One."))
    cli.settings("seams: {session_persistence: gone}\n")
    wrong = cli.run("run", "task")
    assert wrong.code == 2
    assert "gone" in wrong.stderr
    assert len(server.attempts) == 0


def test_no_store_installed_names_the_way_out(cli: Cli, serve: Serve, storeless: str) -> None:
    server = serve(wire.success("One."))
    cli.python = storeless
    wrong = cli.run("run", "task")
    assert wrong.code == 2
    assert "this run cannot be recorded" in wrong.stderr
    assert "install dsh-session-persistence-jsonl, or run with --ephemeral" in wrong.stderr
    assert len(server.attempts) == 0
    assert cli.run("run", "--ephemeral", "task").stdout == "One.\n"
    for option in ("--crash", "--swap"):
        demo = cli.run("demo", option)
        assert (demo.code, demo.stdout) == (2, "")
        assert "none is installed" in demo.stderr
        assert "pip install dsh-session-persistence-jsonl" in demo.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_full_disk_ends_the_turn_before_anything_unrecorded_happens(
    cli: Cli, serve: Serve, kept: Kept
) -> None:
    big = "x" * 20_000
    server = serve([bash("touch one", text=big), bash("touch two", "call_2"), wire.success("ok")])
    result = cli.run("run", "task", prefix=("prlimit", "--fsize=12000"))
    assert result.code == 1
    assert "session" in result.stderr
    assert result.stderr.count("File too large") == 1
    assert not (cli.folder / "one").exists()
    assert len(server.attempts) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_session_that_cannot_be_written_is_one_message(
    cli: Cli, serve: Serve, kept: Kept
) -> None:
    server = serve(wire.success("One."))
    result = cli.run("run", "task", prefix=("prlimit", "--fsize=100"))
    assert (result.code, result.stdout) == (2, "")
    said, hint = result.stderr.splitlines()
    assert said.startswith("dsh: this run cannot be recorded, so nothing was done: ")
    assert "or run with --ephemeral" in hint
    assert len(server.attempts) == 0


@both
def test_secrets_do_not_reach_the_store(cli: Cli, serve: Serve, kept: Kept) -> None:
    # case: F-44
    serve([bash("echo $TOKEN; printenv"), wire.success("I see nothing.")])
    cli.env["DEEPSEEK_API_KEY"] = SECRET
    cli.env["TOKEN"] = SECRET
    assert cli.run("run", "print the environment").code == 0
    session_id = kept.only()
    assert kept.contains("I see nothing.")
    assert not kept.contains(SECRET)
    assert SECRET not in cli.run("sessions", "show", "--full", session_id).stdout
    assert SECRET not in cli.run("sessions", "export", session_id, "--format", "json").stdout


@both
def test_doctor_says_who_keeps_the_sessions_and_where(cli: Cli, kept: Kept) -> None:
    cli.env["DEEPSEEK_API_KEY"] = SECRET
    report = json.loads(cli.run("doctor", "--json").stdout)
    assert report["ok"]
    assert report["sessions"]["recorded"] == f"yes, by {kept.name}"
    assert report["sessions"]["place"].startswith(str(kept.place))
    chosen = report["seams"]["session_persistence"]
    assert chosen.startswith(f"{kept.name} from dsh-{kept.name} 0.1.0: named in ")
    place = report["sessions"]["place"]
    assert (Path(place).parent.name == "ID") is (kept.store == "jsonl")
    cli.settings("plugins: [{use: record, disabled: true}]\n")
    report = json.loads(cli.run("doctor", "--json").stdout)
    assert report["sessions"] == {"recorded": "no: the row `record` is disabled"}


def test_the_demo_of_a_crash(cli: Cli, tmp_path: Path) -> None:
    result = cli.run("demo", "--crash")
    assert result.code == 0, result.stderr
    assert "dsh is killed with SIGKILL now" in result.stdout
    assert "All three notes are in notes.txt already" in result.stdout
    assert "no result was recorded" in result.stdout
    assert "$ cat notes.txt" in result.stderr
    assert result.hint == ""
    assert not (cli.home / ".dsh").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dsh-demo-")]


def test_the_demo_of_a_crash_can_be_interrupted(cli: Cli, tmp_path: Path) -> None:
    with cli.start("demo", "--crash") as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith(b"$ dsh run"):
            pass
        process.send_signal(signal.SIGINT)
        result = cli.finish(process)
    assert result.code == 130
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dsh-demo-")]


def test_the_demo_of_a_swap(cli: Cli, tmp_path: Path) -> None:
    result = cli.run("demo", "--swap")
    assert result.code == 0, result.stderr
    names = ("session-persistence-jsonl", "session-persistence-sqlite")
    parts = result.stdout.split("--- seams: {session_persistence: ")
    assert [part.partition("}")[0] for part in parts[1:]] == list(names)
    answers = [part.partition("}")[2].partition("\n\n")[2] for part in parts[1:]]
    assert answers[0].strip()
    assert answers[1].startswith(answers[0].rstrip())
    assert "The same " in answers[1]
    kept = [line for line in answers[1].splitlines() if line.startswith(names)]
    assert [line.partition(":")[0] for line in kept] == list(names)
    assert all(": $DSH_HOME/sessions" in line for line in kept)
    counts = {line.partition("(")[2].partition(" events")[0] for line in kept}
    assert len(counts) == 1
    assert int(counts.pop()) > 20
    assert not (cli.home / ".dsh").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dsh-demo-")]
