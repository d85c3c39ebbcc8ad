"""Tests that need a program, and programs without the powers of root."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.testkit import needs_program, run_unprivileged, unprivileged

ROOT = os.name == "posix" and os.geteuid() == 0
MISSING = "no-such-program-anywhere"


def test_a_program_that_is_there_is_found() -> None:
    assert Path(needs_program("python3", "sh")).is_absolute()


def test_a_missing_program_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSH_REQUIRE_PROGRAMS", raising=False)
    with pytest.raises(pytest.skip.Exception, match=MISSING) as caught:
        needs_program("python3", MISSING)
    assert caught.value.allow_module_level


def test_a_missing_program_fails_where_everything_must_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DSH_REQUIRE_PROGRAMS", "1")
    with pytest.raises(pytest.fail.Exception, match=MISSING):
        needs_program(MISSING)
    monkeypatch.setenv("DSH_REQUIRE_PROGRAMS", "0")
    with pytest.raises(pytest.skip.Exception):
        needs_program(MISSING)


@pytest.mark.needs_program("sh", "cat")
def test_the_marker_lets_a_test_run() -> None:
    assert all(shutil.which(program) for program in ("sh", "cat"))


async def test_file_modes_bind_an_unprivileged_program(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden", encoding="utf-8")
    secret.chmod(0)
    done = await run_unprivileged(["cat", str(secret)])
    assert done.returncode != 0
    assert "ermission denied" in done.stderr
    secret.chmod(0o400)
    done = await run_unprivileged(["cat", str(secret)])
    assert (done.returncode, done.stdout) == (0, "hidden")


async def test_an_unprivileged_program_can_use_the_interpreter_and_the_folder(
    tmp_path: Path,
) -> None:
    script = "import os, sys; open('made', 'w').close(); print(os.getcwd(), sys.stdin.read())"
    done = await run_unprivileged(
        [sys.executable, "-c", script], cwd=tmp_path, stdin="given", env={"LANG": "C"}
    )
    assert done.stderr == ""
    assert done.stdout.split() == [str(tmp_path), "given"]
    assert (tmp_path / "made").exists()


@pytest.fixture
def closed_folder(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o500)
    yield tmp_path
    tmp_path.chmod(0o700)


async def test_a_folder_that_is_closed_to_an_unprivileged_program(closed_folder: Path) -> None:
    done = await run_unprivileged(["touch", "other"], cwd=closed_folder)
    assert done.returncode != 0
    assert not (closed_folder / "other").exists()


@pytest.mark.skipif(not ROOT, reason="only root can become somebody else")
async def test_another_user() -> None:
    done = await run_unprivileged(["sh", "-c", "id -u; id -g; id -G"], uid=65534)
    assert done.stdout.split() == ["65534", "65534", "65534"]


def test_a_user_who_is_not_root_runs_things_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged(["cat", "x"]) == ["cat", "x"]


async def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(TimeoutError):
        await run_unprivileged(["sleep", "60"], timeout_s=0.05)
