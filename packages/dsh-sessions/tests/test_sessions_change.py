"""`dsh sessions fork`, `archive`, `unarchive`, `remove` and `verify`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.session import Session, ToolCall, ToolResult, TurnEnd

Cli = Any
Store = Callable[..., Session]
A, B = "a1b2c3d4" + "0" * 24, "bbbbffff" + "0" * 24

both = pytest.mark.parametrize("cli", ["jsonl", "sqlite"], indirect=True)


@both
def test_a_fork_is_a_session_of_its_own(cli: Cli, store: Store) -> None:
    session = store(A, "one", "two", "three")
    before = cli.kept.log(A)
    result = cli.run("sessions", "fork", "a1", "--turn", "2")
    assert result.code == 0
    (child,) = result.stdout.split()
    copy = cli.kept.log(child)
    assert (copy.header.parent_session, copy.header.cwd) == (A, str(cli.folder))
    assert copy.header.seed_length == len(copy.events)
    assert isinstance(copy.events[-1].data, TurnEnd)
    assert copy.events == session.events[: len(copy.events)]
    assert len(copy.events) < len(session.events)
    assert cli.kept.log(A) == before
    assert cli.run("run", "--resume", child, "go on").code == 0
    assert cli.run("sessions").rows[0][0] == child
    assert f"forked from {A}" in cli.run("sessions", "show", child).stdout
    wrong = cli.run("sessions", "fork", A, "--turn", "9")
    assert (wrong.code, wrong.stdout) == (2, "")
    assert "has no turn 9" in wrong.stderr


@both
def test_a_fork_of_an_open_turn_is_closed_and_the_session_is_not(cli: Cli, store: Store) -> None:
    store(A, "one", cut=6)
    (child,) = cli.run("sessions", "fork", A).stdout.split()
    assert cli.kept.events(child)[-1]["data"]["reason"]["kind"] == "interrupted"
    assert len(cli.kept.events(A)) == 6


@both
def test_put_away_and_taken_back(cli: Cli, store: Store) -> None:
    store(A, "one")
    store(B, "two")
    result = cli.run("sessions", "archive", "a1", "bb")
    assert (result.code, result.stdout) == (0, f"{A} archived\n{B} archived\n")
    assert cli.run("sessions").stdout == ""
    assert sorted(row[0] for row in cli.run("sessions", "--archived").rows) == [A, B]
    assert "archived" in cli.run("sessions", "show", A).stdout
    listed = cli.run("sessions", "--archived").stdout
    back = cli.run("sessions", "unarchive", "-", stdin=listed)
    assert back.code == 0
    assert len(cli.run("sessions").rows) == 2


def test_deleting_asks_on_a_terminal(cli: Cli, store: Store) -> None:
    store(A, "precious")
    code, shown = cli.on_terminal("sessions", "remove", A, answer="n\n")
    assert code == 1
    assert "a1b2c3d4  precious  (1 turn)" in shown
    assert "delete 1 session for good? [y/N]" in shown
    assert "nothing was deleted" in shown
    assert cli.kept.has(A)
    code, shown = cli.on_terminal("sessions", "remove", A, answer="y\n")
    assert code == 0
    assert not cli.kept.has(A)


def test_deleting_without_a_terminal_needs_the_word(cli: Cli, store: Store) -> None:
    store(A, "one")
    store(B, "two")
    for arguments in ((A,), ("-",)):
        refused = cli.run("sessions", "remove", *arguments, stdin=f"{A}\n")
        assert refused.code == 2
        assert "say --yes" in refused.stderr
    assert cli.run("sessions", "remove", "--yes", "zz", A).code == 2
    assert len(cli.run("sessions").rows) == 2
    assert cli.run("sessions", "remove", "--yes", "-", stdin="\n").code == 2
    listed = cli.run("sessions").stdout
    assert cli.run("sessions", "remove", "--yes", "-", stdin=listed).code == 0
    assert cli.run("sessions").stdout == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_copy_whose_id_could_not_be_printed_is_told(cli: Cli, store: Store) -> None:
    store(A, "one")
    command = [*cli.command("sessions", "fork", A)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command,
            cwd=cli.folder,
            env=cli.env,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    (child,) = set(cli.kept.ids()) - {A}
    assert done.returncode == 1
    assert f"dsh: the copy is stored: {child}\n" in done.stderr.decode()


@both
def test_one_that_is_in_use_does_not_keep_the_others(cli: Cli, store: Store) -> None:
    store(A, "one")
    store(B, "two")
    with cli.kept.held(A):
        result = cli.run("sessions", "remove", "--yes", A, B)
    assert (result.code, result.stdout) == (1, f"{B} deleted\n")
    assert f"by process {os.getpid()} on " in result.stderr
    assert (
        f"wait until it has ended, or go on with a copy: dsh run --fork {A[:8]}\n" in result.stderr
    )
    assert str(cli.kept.place) not in result.stderr
    assert cli.kept.has(A)


def test_sound_torn_and_open_sessions_are_no_damage(cli: Cli, store: Store) -> None:
    session = store(A, "one")
    store(B, "two", cut=6)
    with cli.kept.where(B).open("ab") as file:
        file.write(b'{"seq": 6, "ty')
    result = cli.run("sessions", "verify", "--all")
    assert result.code == 0
    assert f"{A}  sound, {len(session.events)} events\n" in result.stdout
    assert (
        f"{B}  sound, 6 events (the last record was not written completely, a turn is open; "
        "resuming it mends that)\n"
    ) in result.stdout
    assert "2 sessions, none damaged" in result.stderr
    assert cli.run("sessions", "verify").code == 2
    assert cli.run("sessions", "verify", "--all", A).code == 2


@both
def test_damage_is_named_and_repaired_with_a_copy(cli: Cli, store: Store) -> None:
    session = store(A, "one", "two")
    (place, _) = [e.seq for e in session.events if isinstance(e.data, ToolCall)]
    cli.kept.damage(A, place)
    shown = cli.run("sessions", "show", A)
    assert shown.code != 0
    result = cli.run("sessions", "verify", A)
    assert result.code == 1
    assert f"{A}  damaged: {place} events can be read\n  " in result.stdout
    assert str(cli.kept.place) in result.stdout or f"seq {place}" in result.stdout
    assert "1 session, 1 damaged" in result.stderr
    assert cli.run("sessions", "verify", A).stdout == result.stdout
    refused = cli.run("run", "--resume", A, "go on")
    assert refused.code == 2
    for told in (refused.stderr, shown.stderr):
        assert f"`dsh sessions verify --repair {A[:8]}` keeps a copy and what can be read" in told
    repaired = cli.run("sessions", "verify", A, "--repair")
    assert repaired.code == 0
    assert f"  repaired: {place} events are left; the copy from before is " in repaired.stdout
    copy = Path(repaired.stdout.rpartition(" is ")[2].rstrip("\n"))
    assert copy.read_bytes().count(b'"tool/call"') == 2
    left = cli.kept.log(A).events
    assert left[:place] == session.events[:place]
    # what was cut may have said that the call began
    (told,) = [e.data.error for e in left[place:] if isinstance(e.data, ToolResult)]
    assert told is not None
    assert told.code == "TOOL_OUTCOME_UNKNOWN"
    assert cli.run("run", "--resume", A, "go on").code == 0
    assert cli.run("sessions", "verify", "-", stdin=f"{A}\n").code == 0


@both
def test_a_damaged_header_is_told_and_repaired(cli: Cli, store: Store) -> None:
    session = store(A, "one")
    cli.kept.damage(A, -1)
    assert cli.run("sessions", "verify", A).code == 1
    result = cli.run("sessions", "verify", A, "--repair")
    assert (result.code, "  repaired: " in result.stdout) == (0, True)
    assert cli.run("sessions", "verify", A).code == 0
    assert cli.kept.log(A).events == session.events[:]


def test_ctrl_c_ends_a_command(cli: Cli, store: Store) -> None:
    store(A, "precious")
    code, _ = cli.on_terminal("sessions", "remove", A, answer="\x03")
    assert code == 130
    assert cli.kept.has(A)


@both
def test_one_that_cannot_be_read_is_deleted_all_the_same(cli: Cli, store: Store) -> None:
    store(A, "one")
    store(B, "two")
    cli.kept.damage(A, -1)
    code, told = cli.on_terminal("sessions", "remove", A[:6], B, answer="n\n")
    assert code == 1
    assert f"{A}  (cannot be read)" in told
    assert "two  (1 turn)" in told
    result = cli.run("sessions", "remove", "--yes", A[:6])
    assert (result.code, result.stdout) == (0, f"{A} deleted\n")
    assert (cli.kept.has(A), cli.kept.has(B)) == (False, True)
