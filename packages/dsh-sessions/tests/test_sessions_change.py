"""`dsh sessions fork`, `archive`, `unarchive`, `remove` and `verify`."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from dsh.session import Session

Cli = Any
Store = Callable[..., Session]
A, B = "a1b2c3d4" + "0" * 24, "bbbbffff" + "0" * 24


@contextmanager
def held(cli: Cli, session_id: str) -> Generator[None]:
    """Own a session as another process would."""
    with (cli.kept / f"{session_id}.lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_fork_is_a_session_of_its_own(cli: Cli, store: Store) -> None:
    session = store(A, "one", "two", "three")
    before = (cli.kept / f"{A}.jsonl").read_bytes()
    result = cli.run("sessions", "fork", "a1", "--turn", "2")
    assert result.code == 0
    (child,) = result.stdout.split()
    lines = [json.loads(line) for line in (cli.kept / f"{child}.jsonl").read_text().splitlines()]
    header, events = lines[0], lines[1:]
    assert (header["parentSession"], header["cwd"]) == (A, str(cli.folder))
    assert header["seedLength"] == len(events)
    assert events[-1]["type"] == "turn/end"
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert len(events) < len(session.events)
    assert (cli.kept / f"{A}.jsonl").read_bytes() == before
    assert cli.run("run", "--resume", child, "go on").code == 0
    assert cli.run("sessions").rows[0][0] == child
    assert f"forked from {A}" in cli.run("sessions", "show", child).stdout
    wrong = cli.run("sessions", "fork", A, "--turn", "9")
    assert (wrong.code, wrong.stdout) == (2, "")
    assert "has no turn 9" in wrong.stderr


def test_a_fork_of_an_open_turn_is_closed_and_the_session_is_not(cli: Cli, store: Store) -> None:
    store(A, "one", cut=6)
    (child,) = cli.run("sessions", "fork", A).stdout.split()
    last = json.loads((cli.kept / f"{child}.jsonl").read_text().splitlines()[-1])
    assert last["data"]["reason"]["kind"] == "interrupted"
    assert len((cli.kept / f"{A}.jsonl").read_text().splitlines()) == 7


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
    assert (cli.kept / f"{A}.jsonl").exists()
    code, shown = cli.on_terminal("sessions", "remove", A, answer="y\n")
    assert code == 0
    assert not (cli.kept / f"{A}.jsonl").exists()


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


def test_one_that_is_in_use_does_not_keep_the_others(cli: Cli, store: Store) -> None:
    store(A, "one")
    store(B, "two")
    with held(cli, A):
        result = cli.run("sessions", "remove", "--yes", A, B)
    assert (result.code, result.stdout) == (1, f"{B} deleted\n")
    assert "in use by process 4711" in result.stderr


def test_sound_torn_and_open_sessions_are_no_damage(cli: Cli, store: Store) -> None:
    session = store(A, "one")
    store(B, "two", cut=6)
    with (cli.kept / f"{B}.jsonl").open("ab") as file:
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


def test_damage_is_named_and_repaired_with_a_copy(cli: Cli, store: Store) -> None:
    store(A, "one", "two")
    file = cli.kept / f"{A}.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[9] = lines[9].replace(b'"seq"', b'"sec"')
    file.write_bytes(b"".join(lines))
    damaged = file.read_bytes()
    shown = cli.run("sessions", "show", A)
    assert shown.code != 0
    result = cli.run("sessions", "verify", A)
    assert result.code == 1
    assert f"{A}  damaged: 8 events can be read\n  line 10: " in result.stdout
    assert "1 session, 1 damaged" in result.stderr
    assert file.read_bytes() == damaged
    repaired = cli.run("sessions", "verify", A, "--repair")
    assert repaired.code == 0
    copy = cli.kept / f"{A}.damaged"
    assert f"  repaired: 8 events are left; the copy from before is {copy}\n" in repaired.stdout
    assert copy.read_bytes() == damaged
    assert cli.run("run", "--resume", A, "go on").code == 0
    assert cli.run("sessions", "verify", "-", stdin=f"{A}\n").code == 0


def test_a_damaged_header_cannot_be_repaired(cli: Cli, store: Store) -> None:
    store(A, "one")
    file = cli.kept / f"{A}.jsonl"
    file.write_bytes(b"not a header\n" + file.read_bytes())
    result = cli.run("sessions", "verify", A, "--repair")
    assert result.code == 1
    assert "cannot be repaired" in result.stdout
    assert not (cli.kept / f"{A}.damaged").exists()


def test_ctrl_c_ends_a_command(cli: Cli, store: Store) -> None:
    store(A, "precious")
    code, _ = cli.on_terminal("sessions", "remove", A, answer="\x03")
    assert code == 130
    assert (cli.kept / f"{A}.jsonl").exists()
