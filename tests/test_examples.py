"""The examples: every command their READMEs show is run, and prints what they show."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import serve_in_thread

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_RESUME = re.compile(r"^resume with: dsh run --resume [0-9a-f]{8}\n", re.MULTILINE)


@dataclass
class Desk:
    """A folder with a copy of the examples, and a home and a key of its own."""

    folder: Path
    env: dict[str, str]

    def shell(self, script: str) -> str:
        """Run a script and return what it printed, on both streams, but for the ids of sessions."""
        done = subprocess.run(
            ["bash", "-e"],
            cwd=self.folder,
            env=self.env,
            input=script,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return _RESUME.sub("", done.stdout)

    def header(self, name: str) -> dict[str, Any]:
        """Return what an example sends to the model in front of the history."""
        command = f"dsh run --quiet --json --config examples/{name}/dsh.yaml hi"
        events = [json.loads(line) for line in self.shell(command).splitlines()]
        (found,) = [event for event in events if event["type"] == "request/header"]
        header: dict[str, Any] = found["data"]["header"]
        return header


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "home").mkdir()
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    programs = Path(sys.executable).parent
    env = {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return Desk(tmp_path, env)


def shown(name: str) -> list[tuple[str, str | None]]:
    """Return the scripts of an example's README, each with what it is said to print."""
    blocks = _BLOCK.findall((EXAMPLES / name / "README.md").read_text(encoding="utf-8"))
    found: list[tuple[str, str | None]] = []
    for info, body in blocks:
        if info.split()[:1] == ["sh"]:
            found.append((body, None))
        elif info.split()[:1] == ["text"] and found:
            found[-1] = (found[-1][0], body)
    return found


def follow(desk: Desk, name: str) -> None:
    """Do what the README says, and hold what is printed against it."""
    scripts = shown(name)
    assert any(f"examples/{name}/" in script for script, _ in scripts)
    for script, expected in scripts:
        assert expected is not None, f"{name}: the README does not say what this prints: {script}"
        assert desk.shell(script) == expected


def persona_and_order(desk: Desk) -> None:
    follow(desk, "persona-and-order")
    header = desk.header("persona-and-order")
    assert "you never guess" in header["system"]
    assert [tool["name"] for tool in header["tools"]] == ["bash_output", "bash_kill", "bash"]


def custom_tool(desk: Desk) -> None:
    follow(desk, "custom-tool")
    (tool,) = [t for t in desk.header("custom-tool")["tools"] if t["name"] == "reading_time"]
    assert tool["parameters"]["properties"]["words"]["type"] == "integer"
    slower = "--set plugins.reading-time.config.per_minute=100"
    printed = desk.shell(f"dsh run --config examples/custom-tool/dsh.yaml {slower} 'How long?'")
    assert "15.0 minutes" in printed


def choose_a_provider(desk: Desk) -> None:
    follow(desk, "choose-a-provider")
    told = desk.shell("dsh doctor --config examples/choose-a-provider/dsh.yaml || true")
    assert re.search(r"bash\b.*bash-local.*named in", told), told


def transcript_ui(desk: Desk) -> None:
    follow(desk, "transcript-ui")
    desk.shell("dsh run --quiet --config examples/transcript-ui/dsh.yaml Again")
    assert (desk.folder / "transcript.txt").read_text(encoding="utf-8").count("you: ") == 2


def coding(desk: Desk) -> None:
    (desk.folder / "check.sh").write_text('test "$(cat answer)" = 42\n', encoding="utf-8")
    (desk.folder / "answer").write_text("41\n", encoding="utf-8")
    repair = {"command": "echo 42 > answer && sh check.sh && echo fine", "description": "Repair"}
    script = [
        wire.tool_call_success("bash", {"command": "sh check.sh", "description": "Check"}),
        wire.tool_call_success("bash", repair, call_id="call_2"),
        wire.success("The answer was wrong; it is 42 now."),
    ]
    ((command, expected),) = shown("coding")
    assert expected is None
    with serve_in_thread(script) as server:
        desk.env |= {"DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "sk-test-0123456789"}
        printed = desk.shell(command)
        first, second, third = (attempt.request for attempt in server.attempts)
    assert printed.endswith("The answer was wrong; it is 42 now.\n")
    assert (desk.folder / "answer").read_text() == "42\n"
    task = (EXAMPLES / "coding" / "task.md").read_text(encoding="utf-8").strip()
    assert task in first.body["messages"][-1]["content"]
    assert "You repair small projects" in first.body["messages"][0]["content"]
    assert "[exit code: 1]" in second.tool_results[-1]
    assert third.tool_results[-1] == "fine\n"


CHECKS: dict[str, Callable[[Desk], None]] = {
    "choose-a-provider": choose_a_provider,
    "coding": coding,
    "custom-tool": custom_tool,
    "embedding": lambda desk: follow(desk, "embedding"),
    "gate-file": lambda desk: follow(desk, "gate-file"),
    "minimal": lambda desk: follow(desk, "minimal"),
    "persona-and-order": persona_and_order,
    "transcript-ui": transcript_ui,
    "two-models": lambda desk: follow(desk, "two-models"),
}
"""How each example is driven; one that is not in here fails."""


def folders() -> list[str]:
    return sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", folders())
def test_an_example_does_what_it_says(desk: Desk, name: str) -> None:
    assert name in CHECKS, f"examples/{name} has no check in {Path(__file__).name}"
    CHECKS[name](desk)


def test_every_example_is_there_and_indexed() -> None:
    assert folders() == sorted(CHECKS)
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for name in folders():
        assert f"({name}/README.md)" in index
        assert (EXAMPLES / name / "dsh.yaml").is_file()


def test_a_deployment_without_trust_does_not_load_its_file(desk: Desk) -> None:
    """The reason why the commands say --config: a project's own file may not name code."""
    place = desk.folder / "examples" / "gate-file"
    (place / "gate.py").write_text("raise SystemExit('loaded')\n", encoding="utf-8")
    printed = desk.shell(f"cd '{place}' && dsh doctor 2>&1 || true")
    assert "not trusted" in printed
    assert "loaded" not in printed
