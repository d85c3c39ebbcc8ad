"""`dsh run` keeps its session, and goes on with one: in this folder, in another, in a copy."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer

Cli = Any
Serve = Callable[..., ThreadedServer]

STORE = Path(__file__).resolve().parents[3] / "tests/wheels/projects/acme-store/src"
SECRET = "sk-test-0123456789abcdef"


def bash(command: str, call_id: str = "call_1", text: str = "") -> wire.Behaviour:
    arguments = {"command": command, "description": "d"}
    return wire.tool_call_success("bash", arguments, call_id=call_id, text=text)


@pytest.fixture
def kept(cli: Cli, tmp_path: Path) -> Path:
    """Install a store of plain files and return the folder it keeps sessions in."""
    info = tmp_path / "site" / "acme_store-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-store\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dsh.plugins]\nacme-store = acme_store:AcmeStore\n"
        "[dsh.seam.session_persistence]\nacme-store = acme_store:AcmeStore\n"
    )
    known = cli.env.get("PYTHONPATH", "")
    cli.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(info.parent), str(STORE), known]))
    cli.settings("plugins: [record]\n")
    return cli.home / ".dsh" / "acme-sessions"


def ids(kept: Path) -> list[str]:
    return sorted(file.stem for file in kept.glob("*.jsonl")) if kept.exists() else []


def events(kept: Path, session_id: str) -> list[dict[str, Any]]:
    lines = (kept / f"{session_id}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def turns(kept: Path, session_id: str) -> int:
    return [event["type"] for event in events(kept, session_id)].count("turn/start")


def contents(server: ThreadedServer, number: int) -> list[str]:
    """Return what the model read in a request."""
    return [str(m.get("content")) for m in server.attempts[number].request.messages]


def test_a_run_is_kept_and_says_how_to_go_on(cli: Cli, serve: Serve, kept: Path) -> None:
    server = serve([wire.success("One."), wire.success("Two."), wire.success("Three.")])
    first = cli.run("run", "first task")
    (session_id,) = ids(kept)
    assert (first.code, first.stdout) == (0, "One.\n")
    assert first.stderr == ""
    assert first.hint == f"resume with: dsh run --resume {session_id[:8]}\n"
    assert turns(kept, session_id) == 1
    second = cli.run("run", "--resume", session_id[:6], "second task")
    assert (second.code, second.stdout) == (0, "Two.\n")
    assert (second.stderr, second.hint) == ("", first.hint)
    assert contents(server, 1)[1:] == ["first task", "One.", "second task"]
    third = cli.run("run", "--continue", "-", stdin="third task\n")
    assert (third.code, third.stdout) == (0, "Three.\n")
    assert (ids(kept), turns(kept, session_id)) == ([session_id], 3)


def test_json_names_the_session_and_prints_what_is_new(cli: Cli, serve: Serve, kept: Path) -> None:
    serve([wire.success("One."), wire.success("Two.")])
    first = cli.run("run", "--json", "first task").events
    (session_id,) = ids(kept)
    assert first[0]["sessionId"] == session_id
    stored = events(kept, session_id)
    assert first[1:-1] == stored
    second = cli.run("run", "--json", "--continue", "second task")
    assert (second.stderr, second.hint) == ("", "")
    assert second.events[0]["sessionId"] == session_id
    assert second.events[1:-1] == events(kept, session_id)[len(stored) :]


def test_quiet_says_nothing_about_it(cli: Cli, serve: Serve, kept: Path) -> None:
    serve(wire.success("One."))
    result = cli.run("run", "--quiet", "task")
    assert (result.stderr, result.hint) == ("", "")
    assert len(ids(kept)) == 1


def test_an_ephemeral_run_leaves_nothing(cli: Cli, serve: Serve, kept: Path) -> None:
    serve(wire.success("One."))
    result = cli.run("run", "--ephemeral", "task")
    assert (result.code, result.stdout, result.stderr) == (0, "One.\n", "")
    assert result.hint == ""
    assert not kept.exists()


def test_ephemeral_is_refused_where_something_keeps_sessions_all_the_same(
    cli: Cli, serve: Serve, kept: Path
) -> None:
    serve(wire.success("One."))
    cli.settings("plugins: [record, acme-store]\n")
    result = cli.run("run", "--ephemeral", "task")
    assert result.code == 2
    assert "acme-store is mounted and keeps every session" in result.stderr
    assert not kept.exists()


def test_a_fork_goes_on_with_a_copy(cli: Cli, serve: Serve, kept: Path) -> None:
    server = serve([wire.success(text) for text in ("One.", "Two.", "Other.", "Whole.")])
    cli.run("run", "first task")
    (session_id,) = ids(kept)
    cli.run("run", "--continue", "second task")
    before = (kept / f"{session_id}.jsonl").read_bytes()
    result = cli.run("run", "--fork", f"{session_id[:8]}:1", "another second task")
    assert (result.code, result.stdout) == (0, "Other.\n")
    assert contents(server, 2)[1:] == ["first task", "One.", "another second task"]
    (child,) = set(ids(kept)) - {session_id}
    assert result.hint == f"resume with: dsh run --resume {child[:8]}\n"
    assert turns(kept, child) == 2
    assert (kept / f"{session_id}.jsonl").read_bytes() == before
    wrong = cli.run("run", "--fork", f"{session_id}:7", "task")
    assert wrong.code == 2
    assert "has no turn 7" in wrong.stderr
    assert cli.run("run", "--fork", session_id, "task").code == 0
    assert contents(server, 3)[-2:] == ["Two.", "task"]


def test_a_session_keeps_its_folder(cli: Cli, serve: Serve, kept: Path, tmp_path: Path) -> None:
    serve([wire.success("One."), bash("pwd"), wire.success("Two.")])
    cli.run("run", "first task")
    (session_id,) = ids(kept)
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
    cli.folder.rename(tmp_path / "moved")
    gone = cli.run("run", "--resume", session_id, "task", cwd=tmp_path)
    assert gone.code == 2
    assert f"working folder {cli.folder} does not exist" in gone.stderr


def test_a_session_keeps_its_model_unless_another_is_given(
    cli: Cli, serve: Serve, kept: Path
) -> None:
    server = serve([wire.success(text) for text in ("One.", "Two.", "Three.")])
    cli.run("run", "--model", "deepseek/deepseek-pro", "first task")
    cli.run("run", "--continue", "second task")
    cli.run("run", "--continue", "--model", "deepseek/deepseek-flash", "third task")
    models = [attempt.request.body["model"] for attempt in server.attempts]
    assert models[0] == models[1] != models[2]


def test_a_model_that_is_not_there_any_more_is_told(cli: Cli, kept: Path) -> None:
    cli.settings("plugins: [record, {use: llm-replay, config: {script: [One.]}}]\n")
    assert cli.run("run", "--model", "replay/scripted", "first task").code == 0
    cli.settings("plugins: [record]\n")
    result = cli.run("run", "--continue", "second task")
    assert result.code == 2
    assert "replay/scripted" in result.stderr
    assert "go on with another: --model NAME" in result.stderr


def test_a_prompt_is_needed(cli: Cli, serve: Serve, kept: Path) -> None:
    serve(wire.success("One."))
    cli.run("run", "first task")
    result = cli.run("run", "--continue", stdin="")
    assert result.code == 2
    assert "standard input holds no task" in result.stderr
    assert turns(kept, ids(kept)[0]) == 1


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


def test_nothing_to_go_on_with(cli: Cli, serve: Serve, kept: Path) -> None:
    serve(wire.success("One."))
    for options in (("--resume", "3f2a"), ("--continue",), ("--fork", "3f2a:1")):
        result = cli.run("run", "--json", *options, "task")
        assert result.code == 2
        assert result.events[0]["code"] == "SESSION_NOT_FOUND"
    cli.settings("plugins: [{use: record, disabled: true}]\n")
    result = cli.run("run", "--continue", "task")
    assert result.code == 2
    assert "sessions are not recorded here" in result.stderr


def test_a_second_process_is_told_who_has_the_session(cli: Cli, serve: Serve, kept: Path) -> None:
    gate = wire.Gate()
    serve([wire.success("One."), wire.held_success(gate, "Two, slowly"), wire.success("3")])
    cli.run("run", "first task")
    (session_id,) = ids(kept)
    with cli.start("run", "--resume", session_id, "second task") as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"T"
        for option in ("--resume", "--continue"):
            extra = [session_id] if option == "--resume" else []
            result = cli.run("run", option, *extra, "me too")
            assert (result.code, result.stdout) == (2, "")
            assert f"in use by process {process.pid}" in result.stderr
            assert "go on with a copy: --fork" in result.stderr
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert cli.run("run", "--resume", session_id, "now").code == 0


def test_an_interrupted_run_can_be_gone_on_with(cli: Cli, serve: Serve, kept: Path) -> None:
    # case: F-15
    # case: F-19
    server = serve([bash("echo half > half; exec sleep 600"), wire.success("I look first.")])
    os.mkfifo(cli.folder / "half")
    with cli.start("run", "task") as process:
        assert (cli.folder / "half").read_text() == "half\n"
        process.kill()
        process.wait(60)
    (session_id,) = ids(kept)
    assert events(kept, session_id)[-1]["type"] == "tool/call"
    result = cli.run("run", "--resume", session_id, "go on")
    assert (result.code, result.stdout) == (0, "I look first.\n")
    told = [m for m in server.attempts[1].request.messages if m["role"] == "tool"]
    assert "no result was recorded" in told[-1]["content"]


def test_a_damaged_session_is_not_gone_on_with(cli: Cli, serve: Serve, kept: Path) -> None:
    serve(wire.success("One."))
    cli.run("run", "first task")
    (session_id,) = ids(kept)
    file = kept / f"{session_id}.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:4], b"damaged\n", *lines[4:]]))
    result = cli.run("run", "--resume", session_id, "go on")
    assert (result.code, result.stdout) == (2, "")


def test_a_run_that_cannot_be_recorded_does_not_start(cli: Cli, serve: Serve, kept: Path) -> None:
    server = serve(wire.success("One."))
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("in the way", encoding="utf-8")
    for options in ((), ("--json",)):
        result = cli.run("run", *options, "task")
        assert result.code == 2
        assert "--ephemeral" in result.stderr
        assert result.hint == ""
    assert len(server.attempts) == 0
    assert cli.run("run", "--ephemeral", "task").stdout == "One.\n"


def test_no_store_installed_names_the_way_out(cli: Cli, serve: Serve, kept: Path) -> None:
    server = serve(wire.success("One."))
    cli.settings("plugins: [record]\nseams: {session_persistence: gone}\n")
    wrong = cli.run("run", "task")
    assert wrong.code == 2
    assert "gone" in wrong.stderr
    assert len(server.attempts) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_full_disk_ends_the_turn_before_anything_unrecorded_happens(
    cli: Cli, serve: Serve, kept: Path
) -> None:
    big = "x" * 20_000
    server = serve([bash("touch one", text=big), bash("touch two", "call_2"), wire.success("ok")])
    result = cli.run("run", "task", prefix=("prlimit", "--fsize=12000"))
    assert result.code == 1
    assert "session" in result.stderr
    assert not (cli.folder / "one").exists()
    assert len(server.attempts) == 1


def test_secrets_do_not_reach_the_store(cli: Cli, serve: Serve, kept: Path) -> None:
    # case: F-44
    serve([bash("echo $TOKEN; printenv"), wire.success("I see nothing.")])
    cli.env["DEEPSEEK_API_KEY"] = SECRET
    cli.env["TOKEN"] = SECRET
    assert cli.run("run", "print the environment").code == 0
    (session_id,) = ids(kept)
    assert SECRET not in (kept / f"{session_id}.jsonl").read_text()
    assert SECRET not in cli.run("sessions", "show", "--full", session_id).stdout
    assert SECRET not in cli.run("sessions", "export", session_id, "--format", "json").stdout


def test_doctor_says_who_keeps_the_sessions_and_where(cli: Cli, kept: Path) -> None:
    cli.env["DEEPSEEK_API_KEY"] = SECRET
    report = json.loads(cli.run("doctor", "--json").stdout)
    assert report["sessions"] == {
        "recorded": "yes, by acme-store",
        "place": str(kept / "ID.jsonl"),
    }
    assert report["seams"]["session_persistence"].startswith("acme-store from acme-store 1.0")
    cli.settings("plugins: [{use: record, disabled: true}]\n")
    report = json.loads(cli.run("doctor", "--json").stdout)
    assert report["sessions"] == {"recorded": "no: the row `record` is disabled"}


def test_the_demo_of_a_crash(cli: Cli, kept: Path, tmp_path: Path) -> None:
    result = cli.run("demo", "--crash")
    assert result.code == 0, result.stderr
    assert "dsh is killed with SIGKILL now" in result.stdout
    assert "All three notes are in notes.txt already" in result.stdout
    assert "no result was recorded" in result.stdout
    assert "$ cat notes.txt" in result.stderr
    assert result.hint == ""
    assert ids(kept) == []
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dsh-demo-")]


def test_the_demo_of_a_crash_can_be_interrupted(cli: Cli, kept: Path, tmp_path: Path) -> None:
    with cli.start("demo", "--crash") as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith(b"$ dsh run"):
            pass
        process.send_signal(signal.SIGINT)
        result = cli.finish(process)
    assert result.code == 130
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dsh-demo-")]


def test_the_demo_of_a_swap(cli: Cli, kept: Path, tmp_path: Path) -> None:
    alone = cli.run("demo", "--swap")
    if alone.code == 0:  # another store is installed with the workspace
        return
    assert alone.code == 2
    assert "only acme-store is installed" in alone.stderr
    assert "pip install dsh-session-persistence-" in alone.stderr
    site = tmp_path / "site"
    (site / "acme_second.py").write_text(
        "from acme_store import AcmeStore\n\n\nclass Second(AcmeStore):\n    name = 'second'\n"
    )
    info = site / "acme_second-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-second\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dsh.plugins]\nsecond = acme_second:Second\n"
        "[dsh.seam.session_persistence]\nsecond = acme_second:Second\n"
    )
    result = cli.run("demo", "--swap")
    assert result.code == 0, result.stderr
    assert "--- seams: {session_persistence: acme-store}" in result.stdout
    assert "--- seams: {session_persistence: second}" in result.stdout
    assert "The same " in result.stdout
    assert ids(kept) == []


def test_a_demo_without_a_store_says_what_to_install(cli: Cli) -> None:
    result = cli.run("demo", "--crash")
    if result.code:  # no store is installed with the workspace
        assert result.code == 2
        assert "pip install dsh-session-persistence-jsonl" in result.stderr


def test_a_lock_that_nobody_holds_any_more_is_no_obstacle(
    cli: Cli, serve: Serve, kept: Path
) -> None:
    serve([wire.success("One."), wire.success("Two.")])
    cli.run("run", "first task")
    (session_id,) = ids(kept)
    with (kept / f"{session_id}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert cli.run("run", "--continue", "second task").stdout == "Two.\n"
