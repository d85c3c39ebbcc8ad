"""`dsh sessions verify`: what no listing has is looked at too, and the sum tells all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from dsh.session import MessageTrigger, Session, SessionEvent, TurnStart, UserSource
from dsh.session_persistence import SessionSummary

Cli = Any
Store = Callable[..., Session]
A, B = "a1b2c3d4" + "0" * 24, "bbbbffff" + "0" * 24

both = pytest.mark.parametrize("cli", ["jsonl", "sqlite"], indirect=True)


@both
def test_a_damaged_header_is_found_and_made_anew(cli: Cli, store: Store) -> None:
    session = store(A, "one")
    store(B, "two")
    cli.kept.damage(A, -1)
    result = cli.run("sessions", "verify", "--all")
    assert result.code == 1
    assert f"{A}  damaged: {len(session.events)} events can be read\n" in result.stdout
    assert f"{B}  sound" in result.stdout
    assert "2 sessions, 1 damaged" in result.stderr
    assert cli.run("sessions", "verify", "a1").code == 1
    repaired = cli.run("sessions", "verify", "--all", "--repair")
    assert repaired.code == 0
    assert "2 sessions, 1 repaired" in repaired.stderr
    again = cli.run("sessions", "verify", "--all")
    assert again.code == 0
    assert "2 sessions, none damaged" in again.stderr
    assert cli.kept.log(A).events == session.events[:]


def test_a_session_of_another_version_is_told_with_the_way_out(cli: Cli, store: Store) -> None:
    store(A, "one")
    file = cli.kept.where(A)
    _, _, rest = file.read_bytes().partition(b"\n")
    file.write_bytes(b'{"type":"session","version":7,"id":"%b"}\n' % A.encode() + rest)
    result = cli.run("sessions", "verify", "--all")
    assert result.code == 1
    assert f"{A}  cannot be read: " in result.stdout
    assert "upgrade to read it" in result.stdout
    assert "damaged" not in result.stdout + result.stderr
    assert "1 session, 1 cannot be read" in result.stderr
    refused = cli.run("run", "--resume", A, "go on")
    assert refused.code == 2
    assert "is stored in format 7" in refused.stderr
    assert "upgrade to read it" in refused.stderr


def test_places_that_belong_to_no_session_are_verified_too(cli: Cli, store: Store) -> None:
    store(A, "one")
    store(B, "two")
    file = cli.kept.where(A)
    cli.kept.where(B).write_bytes(file.read_bytes())
    copy = file.parent.with_name("my copy")
    shutil.copytree(file.parent, copy)
    listed = cli.run("sessions")
    assert [row[0] for row in listed.rows] == [A]
    assert "2 places cannot be read: `dsh sessions verify --all` shows them" in listed.stderr
    result = cli.run("sessions", "verify", "--all")
    assert result.code == 1
    assert f"{B}  damaged: 0 events can be read\n" in result.stdout
    assert f"is that of '{A}'" in result.stdout
    assert f"{copy / file.name}  damaged: " in result.stdout
    assert "3 sessions, 2 damaged" in result.stderr


@both
def test_a_log_that_no_session_accepts_is_damage(cli: Cli, store: Store) -> None:
    session = store(A, "one")
    end = len(session.events)
    wrong = SessionEvent(end, 1, TurnStart(5, MessageTrigger(UserSource())))
    with cli.kept.open() as backend:
        backend.acquire(A)
        backend.write(session.header, (wrong,), SessionSummary())
    result = cli.run("sessions", "verify", A)
    assert result.code == 1
    assert f"  event {end}: turn/start names turn 5, but the next turn is 2\n" in result.stdout
    repaired = cli.run("sessions", "verify", A, "--repair")
    assert repaired.code == 1
    assert "cannot be repaired" in repaired.stdout


def test_naming_sessions_and_all_of_them_is_too_much(cli: Cli) -> None:
    result = cli.run("sessions", "verify", "--all", A)
    assert result.code == 2
    assert "name sessions, or say --all, not both" in result.stderr
