"""`dsh sessions`: what is listed, in which order, and how it looks."""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.session import Session, SessionHeader
from dsh.session_persistence import SessionSnapshot, SessionSummary, UnreadableSession
from dsh.session_persistence.testing import MemoryPersistence
from dsh.sessions import _list as listing

Cli = Any
Store = Callable[..., Session]

both = pytest.mark.parametrize("cli", ["jsonl", "sqlite"], indirect=True)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in STYLE.sub("", text).replace("\r\n", "\n").splitlines()]


@both
def test_those_of_this_folder_come_newest_first_in_whole_columns(
    cli: Cli, store: Store, tmp_path: Path
) -> None:
    store("a" * 32, "first task", created_at=1_000)
    store("b" * 32, "second\ttask\nmore", "and more", created_at=2_000)
    store("c" * 32, "elsewhere", cwd=tmp_path)
    result = cli.run("sessions")
    assert result.code == 0
    assert [row[0] for row in result.rows] == ["b" * 32, "a" * 32]
    session_id, changed, turns, size, ended, cwd, title = result.rows[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", changed)
    assert (turns, ended, cwd, title) == ("2", "completed", str(cli.folder), "second task")
    with cli.kept.open() as backend:
        kept = {snapshot.header.id: snapshot.size for snapshot in backend.list(archived=False)}
    assert int(size) == kept[session_id] > 1_000
    assert result.stderr == ""
    everywhere = cli.run("sessions", "list", "--all", "--limit", "2")
    assert len(everywhere.rows) == 2
    assert cli.run("sessions", "--cwd", str(tmp_path)).rows[0][0] == "c" * 32


@both
def test_json_has_one_object_a_line(cli: Cli, store: Store) -> None:
    store("s-1", "a task", created_at=5)
    (found,) = cli.run("sessions", "--json").objects
    assert (found["id"], found["title"], found["turns"]) == ("s-1", "a task", 1)
    assert (found["ended"], found["archived"]) == ("completed", False)
    assert found["events"] > 5


@both
def test_nothing_there_is_said_and_no_failure(cli: Cli, store: Store, tmp_path: Path) -> None:
    empty = cli.run("sessions")
    assert (empty.code, empty.stdout) == (0, "")
    assert f"there are no sessions in {cli.kept.name} ({cli.kept.place})" in empty.stderr
    other = "sqlite" if cli.kept.store == "jsonl" else "jsonl"
    assert f"`--set seams.session_persistence=session-persistence-{other}` looks" in empty.stderr
    unknown = cli.run("sessions", "show", "abc")
    for told in (str(cli.kept.place), f"seams.session_persistence=session-persistence-{other}"):
        assert told in unknown.stderr
    store("s-1", cwd=tmp_path)
    result = cli.run("sessions")
    assert result.stdout == ""
    assert "1 session of other folders: --all" in result.stderr
    assert "there are no archived sessions" in cli.run("sessions", "--archived").stderr


@both
def test_what_was_put_away_is_told_where_nothing_else_is(cli: Cli, store: Store) -> None:
    store("s-1")
    assert cli.run("sessions", "archive", "s-1").code == 0
    result = cli.run("sessions")
    assert (result.code, result.stdout) == (0, "")
    assert "1 was put away: --archived" in result.stderr
    assert "--set" not in result.stderr
    refused = cli.run("run", "--continue", "go on")
    assert refused.code == 2
    assert "1 was put away" in refused.stderr


@both
def test_what_cannot_be_read_is_told_beside_the_listing(cli: Cli, store: Store) -> None:
    store("s-1", "a task")
    store("s-2", "another")
    cli.kept.damage("s-2", -1)
    for form in ((), ("--json",), ("--archived",)):
        result = cli.run("sessions", *form)
        assert result.code == 0
        assert "s-2" not in result.stdout
        told = "1 session cannot be read: `dsh sessions verify --all` shows it"
        assert told in result.stderr
    for action in (("sessions", "show", "s-2"), ("run", "--resume", "s-2", "go on")):
        refused = cli.run(*action)
        assert refused.code != 0
        assert "checksum of its" in refused.stderr
        assert "dsh sessions verify --repair s-2" in refused.stderr
    unknown = cli.run("sessions", "show", "zzz")
    assert "1 session cannot be read" in unknown.stderr
    both_of_them = cli.run("sessions", "show", "s-")
    assert both_of_them.code == 2
    assert "2 sessions have an id that begins with 's-'" in both_of_them.stderr
    assert "s-2  cannot be read" in both_of_them.stderr


def test_a_log_that_breaks_off_in_damage_is_not_open(cli: Cli, store: Store) -> None:
    store("s-1", "a task")
    cli.kept.damage("s-1", 3)
    assert cli.run("sessions").rows[0][4] == "damaged"
    assert cli.run("sessions", "--json").objects[0]["damaged"] is True


@both
def test_a_session_whose_turn_was_never_closed_is_open(cli: Cli, store: Store) -> None:
    store("s-1", "a task", cut=5)
    assert cli.run("sessions").rows[0][4] == "open"


def test_a_terminal_gets_a_table(cli: Cli, store: Store, tmp_path: Path) -> None:
    store("a1b2c3d4" + "0" * 24, "[bold]a task[/bold] \x1b[31mred", created_at=1)
    store("a1b2c3d4" + "1" * 24, "x" * 300, created_at=2)
    store("plain", "third", created_at=3, cwd=tmp_path)
    code, shown = cli.on_terminal("sessions")
    assert code == 0
    head, *rows = plain(shown)
    assert head.split() == ["ID", "TITLE", "AGE", "TURNS", "SIZE", "ENDED"]
    assert [row.split()[0] for row in rows] == ["a1b2c3d41", "a1b2c3d40"]
    assert "[bold]a task[/bold]" in rows[1]
    assert "\x1b[31m" not in shown
    assert "…" in rows[0]
    assert max(map(len, rows)) <= 80
    _, everywhere = cli.on_terminal("sessions", "--all", columns=120)
    assert "FOLDER" in everywhere
    assert len(plain(everywhere)) == 4


def test_a_terminal_is_told_what_it_does_not_see(cli: Cli, store: Store) -> None:
    for number in range(4):
        store(f"s-{number}", created_at=number)
    _, shown = cli.on_terminal("sessions", "--limit", "3")
    assert "3 of 4 sessions; --limit 4 shows them all" in shown


def test_no_store_at_all_is_a_matter_of_configuration(cli: Cli, storeless: str) -> None:
    cli.python = storeless
    (cli.home / ".dsh" / "dsh.yaml").unlink()
    for action in ((), ("show", "x"), ("verify", "--all")):
        result = cli.run("sessions", *action)
        assert (result.code, result.stdout) == (2, "")
        assert "session_persistence" in result.stderr
        assert "dsh-session-persistence-jsonl" in result.stderr


@both
def test_the_settings_choose_the_store_and_where_it_keeps(cli: Cli, tmp_path: Path) -> None:
    where = "jsonl.folder" if cli.kept.store == "jsonl" else "sqlite.file"
    other = f"session_persistence.{where}={tmp_path / 'other'}"
    assert cli.run("run", "--set", other, "task").code == 0
    assert (tmp_path / "other").exists()
    assert cli.run("sessions").stdout == ""
    assert len(cli.run("sessions", "--set", other).rows) == 1
    wrong = cli.run("sessions", "--set", "seams.session_persistence=nowhere")
    assert wrong.code == 2
    assert "nowhere" in wrong.stderr


LAZY = """
import sys
from dsh.cli import main
assert main(["sessions"]) == 0
heavy = {"rich", "httpx", "dsh.agent_loop", "dsh.tools", "dsh.agent"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_listing_loads_nothing_it_does_not_need(cli: Cli, store: Store) -> None:
    store("s-1")
    done = subprocess.run(
        [sys.executable, "-c", LAZY],
        env=cli.env,
        cwd=cli.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("s-1\t")


class Many(MemoryPersistence):
    """Lists ten thousand sessions, and fails at everything else."""

    calls = 0

    async def list_snapshots(self, *, archived: bool = False) -> tuple[SessionSnapshot, ...]:
        self.calls += 1
        return tuple(
            SessionSnapshot(
                SessionHeader(id=f"{number:032x}", created_at=number, cwd=f"/work/{number % 7}"),
                str(number),
                archived,
                SessionSummary(f"task {number}", 3, 90, number, "completed"),
                12_345,
            )
            for number in range(10_000)
        )

    async def unreadable(self) -> tuple[UnreadableSession, ...]:
        return ()

    async def inspect(self, session_id: str) -> Any:
        raise AssertionError("a log is read")

    async def read_from(self, session_id: str, from_seq: int) -> Any:
        raise AssertionError("a log is read")


@pytest.mark.parametrize("json", [False, True])
async def test_ten_thousand_sessions_take_one_listing_and_little_time(json: bool) -> None:
    store: Any = Many.__new__(Many)
    out = io.StringIO()
    args = argparse.Namespace(all=True, archived=False, json=json, limit=None, cwd=None)
    began = time.process_time()
    assert await listing._list(args, store, out) == 0  # pyright: ignore[reportPrivateUsage]
    spent = time.process_time() - began
    assert len(out.getvalue().splitlines()) == 10_000
    assert store.calls == 1
    assert spent < 3, f"{spent:.2f} s of processor time"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, ["ID", "TITLE", "AGE", "TURNS", "SIZE", "ENDED"]),
        (46, ["ID", "TITLE", "AGE", "TURNS", "ENDED"]),
        (40, ["ID", "TITLE", "AGE", "TURNS"]),
        (28, ["ID", "TITLE", "AGE"]),
    ],
)
def test_a_narrow_terminal_does_without_columns_and_never_cuts_an_id(
    cli: Cli, store: Store, columns: int, shown: list[str]
) -> None:
    store("a" * 32, "a task with a long title that is cut")
    store("a" * 9 + "b" * 23, "another")
    code, told = cli.on_terminal("sessions", columns=columns)
    lines = plain(told)
    assert code == 0
    assert lines[0].split() == shown
    assert [row.split()[0] for row in lines[1:3]] == ["a" * 9 + "b", "a" * 10]
    assert all(len(row) <= columns for row in lines)
