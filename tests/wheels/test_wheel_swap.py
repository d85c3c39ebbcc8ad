"""Installing a sibling wheel swaps a backend or the loop, removing it swaps back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).resolve().parents[2]

PROVIDER = '''
from dsh.bash import BashExecutor, BashResult, BashSpec, CollectedOutput


class Canned(BashExecutor):
    """Answers every command with its own name."""

    name = "{name}"

    async def run(self, spec: BashSpec) -> BashResult:
        output = CollectedOutput("{name} ran it\\n", False)
        empty = CollectedOutput("", False)
        return BashResult(
            exit_code=0, signal=None, timed_out=False, aborted=False,
            timeout_ms=spec.timeout_ms, stdout=output, stderr=empty,
        )

    def on_task_done(self, ctx, fn):
        return ctx.defer(lambda: None)

    start_task = get = list = owner_of = read_output = kill = None
'''

BUNDLE = '''
from dsh.agent_core import AgentCore


class Core(AgentCore):
    """The same spine under another name."""

    name = "{name}"
'''


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": name, "arguments": arguments}


def events(done: Any) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wheel_of(project: Callable[..., Path], name: str, source: str, *groups: str) -> Path:
    """Return a project with one plugin, listed in the groups given."""
    module = name.replace("-", "_")
    value = source.partition("class ")[2].partition("(")[0]
    points = "\n".join(
        f'[project.entry-points."{group}"]\n{name} = "{module}:{value}"\n'
        for group in ("dsh.plugins", *groups)
    )
    return project(name, module, source.format(name=name), points)


def test_installing_a_sibling_swaps_the_backend(
    dsh: Any, project: Callable[..., Path], playing: Callable[..., str]
) -> None:
    dsh.write_config(playing(call("bash", command="echo local ran it", description="Say it")))

    def output(*options: str) -> str:
        found = events(dsh.run("dsh", "run", "go", "--json", *options))
        (result,) = [event for event in found if event["type"] == "tool/result"]
        return str(result["data"]["content"][0]["text"])

    assert output() == "local ran it\n"
    dsh.install(wheel_of(project, "acme-bash", PROVIDER, "dsh.seam.bash"))
    assert "acme-bash ran it" in output()
    dsh.install(wheel_of(project, "zeta-bash", PROVIDER, "dsh.seam.bash"))
    both = dsh.run("dsh", "run", "go")
    assert both.returncode == 2
    for word in ("acme-bash", "zeta-bash", "seams:"):
        assert word in both.stderr
    assert "zeta-bash ran it" in output("--set", "seams.bash=zeta-bash")
    dsh.uninstall("zeta-bash")
    assert "acme-bash ran it" in output()
    dsh.uninstall("acme-bash")
    assert output() == "local ran it\n"


def test_installing_a_sibling_swaps_who_keeps_the_sessions(
    dsh: Any, wheels: Any, playing: Callable[..., str]
) -> None:
    dsh.write_config(playing())

    def ids() -> list[str]:
        listed = dsh.run("dsh", "sessions")
        assert listed.returncode == 0, listed.stderr
        return [line.partition("\t")[0] for line in listed.stdout.splitlines()]

    def place(session_id: str) -> str:
        return Path(dsh.run("dsh", "sessions", "path", session_id).stdout.strip()).name

    assert dsh.run("dsh", "run", "one").stdout == "finished\n"
    (first,) = ids()
    assert place(first) == "session.jsonl"
    alone = dsh.run("dsh", "demo", "--swap")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "needs two session stores, and only session-persistence-jsonl is" in alone.stderr
    assert "pip install dsh-session-persistence-sqlite" in alone.stderr

    dsh.install(wheels.by_name["dsh-session-persistence-sqlite"])
    assert ids() == []
    assert dsh.run("dsh", "run", "two").returncode == 0
    (second,) = ids()
    assert place(second) == "sessions.sqlite"
    both = dsh.run("dsh", "demo", "--swap")
    assert both.returncode == 0, both.stderr
    assert "events in each, and not a line of dsh differs" in both.stdout
    choice = ("--set", "seams.session_persistence=session-persistence-jsonl")
    assert first in dsh.run("dsh", "sessions", *choice).stdout
    dsh.uninstall("dsh-session-persistence-sqlite")
    assert ids() == [first]
    assert dsh.run("dsh", "run", "--resume", first, "three").returncode == 0
    assert dsh.run("dsh", "demo", "--crash").returncode == 0


BUNDLE_IN_USE = """
from dsh.loader import compose, open_app, run_sync


async def main():
    async with open_app(compose([], app="cli")) as app:
        print(app.bundle.provider.name, ",".join(app.rows))


run_sync(main)
"""


def test_installing_a_sibling_swaps_the_bundle(
    dsh: Any, project: Callable[..., Path], playing: Callable[..., str]
) -> None:
    dsh.write_config(playing())

    def mounted(*options: str) -> str:
        report = json.loads(dsh.run("dsh", "doctor", "--json", *options).stdout)
        (name,) = {"agent-core", "acme-core", "zeta-core"} & set(report["plugins"])
        told = str(report["settings"]["bundle"])
        assert told.startswith(f"{name} from "), told
        assert dsh.run("dsh", "run", "go", *options).stdout == "finished\n"
        return str(name)

    assert mounted() == "agent-core"
    dsh.install(wheel_of(project, "acme-core", BUNDLE, "dsh.bundles"))
    assert mounted() == "acme-core"
    assert dsh.script(BUNDLE_IN_USE) == "acme-core acme-core\n"
    dsh.install(wheel_of(project, "zeta-core", BUNDLE, "dsh.bundles"))
    both = dsh.run("dsh", "run", "go")
    assert both.returncode == 2
    assert (
        "several installed wheels provide a bundle: "
        "acme-core (from acme-core 1.0), zeta-core (from zeta-core 1.0)"
    ) in both.stderr
    assert "pick one in dsh.yaml: bundle: acme-core" in both.stderr
    doctor = dsh.run("dsh", "doctor")
    assert doctor.returncode == 1
    assert "several installed wheels provide a bundle" in doctor.stdout
    assert mounted("--set", "bundle=zeta-core") == "zeta-core"
    assert mounted("--set", "bundle=agent-core") == "agent-core"
    dsh.uninstall("zeta-core")
    assert mounted() == "acme-core"
    dsh.uninstall("acme-core")
    assert mounted() == "agent-core"


def readme_plugin() -> str:
    """Return the plugin that the README shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if "class Words" in block)


def test_the_readmes_plugin_works_in_a_project_of_its_own(
    dsh: Any, project: Callable[..., Path], playing: Callable[..., str]
) -> None:
    points = '[project.entry-points."dsh.plugins"]\nwords = "my_words:Words"\n'
    dsh.install(project("my-words", "my_words", readme_plugin(), points))
    steps = (
        call("word_count", text="one two three"),
        call("bash", command="git push origin", description="Push it"),
    )
    dsh.write_config(playing(*steps) + "  - words\n")
    found = events(dsh.run("dsh", "run", "count", "--json"))
    results = [event["data"] for event in found if event["type"] == "tool/result"]
    assert results[0]["content"][0]["text"] == "3"
    assert results[1]["isError"] is True
    assert "pushing is not allowed" in results[1]["content"][0]["text"]
