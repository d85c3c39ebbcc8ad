"""A project of `dsh new plugin`, from its birth to its removal, beside installed wheels of dsh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

PUSH = {"command": "git push --force", "description": "Publish"}
BEHIND = {"command": 'echo "behind $BEHIND"', "description": "Look"}
TERMS = {"blue lane": "orders that ship today"}


@dataclass(frozen=True)
class Case:
    """One kind of plugin, and how a run shows that it is at work."""

    kind: str
    tests: int
    """How many tests of its own it has, on two event loops."""
    call: tuple[str, dict[str, str]]
    """The tool that the model calls, and its arguments."""
    configured: str
    """What the result of that call says."""
    removed: str
    """What it says, or what `dsh run` says, once the plugin is gone."""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sections: str = ""


CASES = [
    Case(
        "tool",
        8,
        ("acme_thing", {"term": "Blue Lane"}),
        "orders that ship today",
        "no installed plugin is called 'acme-thing'",
        {"terms": TERMS},
    ),
    Case(
        "gate",
        10,
        ("bash", PUSH),
        "'git push --force' is not allowed here",
        "no installed plugin is called 'acme-thing'",
    ),
    Case(
        "provider",
        70,
        ("bash", BEHIND),
        "behind the prefix\n",
        "behind \n",
        sections="bash: {acme-thing: {prefix: [env, BEHIND=the prefix]}}\n",
    ),
    Case(
        "ui",
        10,
        ("bash", {"command": "echo shown", "description": "Say it"}),
        "shown\n",
        "no installed plugin is called 'acme-thing'",
        {"path": "transcript.txt"},
    ),
]


def reaching_an_index(wheels: Any, python: Path) -> dict[str, str]:
    """Return what a person's shell has and the tests' does not: uv, and a way to an index."""
    # an environment made by uv has no pip, so it is uv that has to be within reach
    folders = [str(python.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    settings = ("UV_", "SSL_", "HTTP", "http", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")
    return {
        **{name: value for name, value in os.environ.items() if name.startswith(settings)},
        "PATH": os.pathsep.join(folders),
        "UV_CONSTRAINT": str(wheels.constraints),
    }


def steps_of(printed: str) -> list[str]:
    """Return the commands that `dsh new` says to run next."""
    return [line.strip() for line in printed.partition("next:\n")[2].splitlines()[:3]]


def check_types(folder: Path, python: Path) -> None:
    """Hold a project against both type checkers, in the environment it was installed into."""
    for command in (
        ("pyright", "--pythonpath", str(python)),
        ("mypy", "--cache-dir", os.devnull, "--python-executable", str(python), "src", "tests"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_a_new_plugin_from_its_birth_to_its_removal(
    case: Case, dsh: Any, wheels: Any, playing: Callable[..., str]
) -> None:
    dsh.install(*wheels.closure("dsh-testkit"))
    variables = reaching_an_index(wheels, dsh.python)
    made = dsh.run("dsh", "new", "plugin", "acme-thing", "--kind", case.kind, variables=variables)
    assert made.returncode == 0, made.stderr
    pasted = dsh.run("bash", "-ec", "\n".join(steps_of(made.stdout)), variables=variables)
    assert pasted.returncode == 0, pasted.stdout + pasted.stderr
    assert f"{case.tests} passed" in pasted.stdout
    check_types(dsh.folder / "work" / "acme-thing", dsh.python)

    tool, arguments = case.call
    settings = playing({"tool": tool, "arguments": arguments}) + case.sections
    if case.kind != "provider":
        row = {"use": "acme-thing", "config": dict(case.config)}
        settings += f"  - {json.dumps(row)}\n"
    dsh.write_config(settings)
    listed = dsh.run("dsh", "plugins", "--json").stdout.splitlines()
    (mine,) = [line for line in map(json.loads, listed) if line["name"] == "acme-thing"]
    assert mine["used"] == ("provider" if case.kind == "provider" else "row")

    def result() -> str:
        done = dsh.run("dsh", "run", "go", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        found = [e["data"]["content"][0]["text"] for e in lines if e["type"] == "tool/result"]
        return str(found[0]) if found else str(done.stderr)

    assert case.configured in result()
    if case.kind == "ui":
        transcript = (dsh.folder / "work" / "transcript.txt").read_text(encoding="utf-8")
        assert "> go\n" in transcript
        assert "| shown\nfinished\n" in transcript
    dsh.uninstall("acme-thing")
    if case.sections:  # a provider's section has to go with it
        dsh.write_config(settings.replace(case.sections, ""))
    assert case.removed in result()
