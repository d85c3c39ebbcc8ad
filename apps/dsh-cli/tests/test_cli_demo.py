"""`dsh demo`: a repaired project with no key, no network and an empty HOME."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

Cli = Any


def test_the_demo_repairs_a_project_and_cleans_up(cli: Cli, tmp_path: Path) -> None:
    result = cli.run("demo")
    assert result.code == 0, result.stderr
    assert "the model is scripted" in result.stdout
    assert "the project's tests pass now" in result.stdout
    assert "FAILED" in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("$ ")]
    assert sorted(os.listdir(tmp_path)) == ["home", "work"]
    assert os.listdir(cli.home) == []
    assert os.listdir(cli.folder) == []


def test_the_demo_can_keep_its_project(cli: Cli, tmp_path: Path) -> None:
    result = cli.run("demo", "--keep")
    assert result.code == 0
    (folder,) = [path for path in tmp_path.iterdir() if path.name.startswith("dsh-demo-")]
    assert f"the project is kept in {folder}" in result.stdout
    assert "title.lower()" in (folder / "slugs.py").read_text()
    tests = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"], cwd=folder, capture_output=True, check=False
    )
    assert tests.returncode == 0


def test_neither_a_proxy_nor_keys_nor_settings_get_in_the_way(cli: Cli) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        cli.env[name] = "http://127.0.0.1:9"
    cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
    cli.env["DEEPSEEK_BASE_URL"] = "http://127.0.0.1:9"
    cli.settings("model: [broken")
    assert cli.run("demo").code == 0


def test_the_demo_can_be_interrupted(cli: Cli, tmp_path: Path) -> None:
    with cli.start("demo") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"$ ")
        process.send_signal(signal.SIGINT)
        result = cli.finish(process)
    assert result.code == 130
    assert sorted(os.listdir(tmp_path)) == ["home", "work"]


def test_a_reader_that_goes_away_does_not_keep_the_folder(cli: Cli, tmp_path: Path) -> None:
    with cli.start("demo") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert b"Traceback" not in process.stderr.read()
    assert sorted(os.listdir(tmp_path)) == ["home", "work"]


SOCKETLESS = """
import importlib, pkgutil, sys

def refuse(event, arguments):
    if event in {"socket.__new__", "socket.connect", "socket.bind", "socket.getaddrinfo"}:
        raise AssertionError(event)

sys.addaudithook(refuse)
import dsh
for portion in pkgutil.iter_modules(dsh.__path__, "dsh."):
    if portion.name in SKIPPED:
        continue
    module = importlib.import_module(portion.name)
    for inner in pkgutil.walk_packages(module.__path__, portion.name + "."):
        if not inner.name.endswith(("__main__", "._root", "._monitor")):
            importlib.import_module(inner.name)
print("imported")
"""


def test_importing_every_wheel_opens_no_socket(cli: Cli) -> None:
    # case: F-47
    # the test kit needs pytest, whose own imports are not ours to judge
    code = SOCKETLESS.replace("SKIPPED", "{'dsh.testkit'}")
    done = subprocess.run(
        [sys.executable, "-c", code], env=cli.env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr


LAZY = """
import sys
from dsh.cli import main
assert main(["--version"]) == 0
heavy = {"httpx", "ruamel", "rich", "shtab", "platformdirs", "trio", "asyncio"} & set(sys.modules)
assert not heavy, heavy
assert "dsh.agent" not in sys.modules and "dsh.llm" not in sys.modules
"""


def test_the_command_loads_nothing_it_does_not_need(cli: Cli) -> None:
    # case: F-47
    done = subprocess.run(
        [sys.executable, "-c", LAZY], env=cli.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
