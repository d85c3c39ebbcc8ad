"""The wheels as wheels: what they hold, what they need, how they swap."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).resolve().parents[2]
MOST_MEGABYTES = 30
MOST_FOREIGN = 25

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


def scripted(*steps: dict[str, Any]) -> str:
    """Return a deployment whose model plays `steps`."""
    script = json.dumps([*steps, {"text": "finished"}])
    return f"""\
version: 1
model: replay/scripted
plugins:
  - {{use: llm-replay, config: {{script: {script}}}}}
"""


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": name, "arguments": arguments}


def test_every_file_lies_in_the_portion_of_its_wheel(wheels: Any) -> None:
    owners: dict[str, str] = {}
    for name, path in wheels.by_name.items():
        portion = f"dsh/{name.removeprefix('dsh-').replace('-', '_')}/"
        with zipfile.ZipFile(path) as archive:
            files = archive.namelist()
        for file in files:
            assert file.startswith(portion) or ".dist-info/" in file, (name, file)
            assert owners.setdefault(file, name) == name
        assert f"{portion}py.typed" in files
        assert any(file.endswith("licenses/LICENSE") for file in files)


def test_an_empty_environment_gets_a_working_dsh(dsh: Any, wheels: Any) -> None:
    version = dsh.run("dsh", "--version")
    assert re.search(r"\d+\.\d+\.\d+", version.stdout)
    demo = dsh.run("dsh", "demo")
    assert demo.returncode == 0, demo.stderr
    assert "scripted" in demo.stdout + demo.stderr
    doctor = dsh.run("dsh", "doctor")
    assert "bash-local" in doctor.stdout + doctor.stderr
    check = dsh.run(str(dsh.python), "-c", _COUNT)
    facts = json.loads(check.stdout)
    assert facts["foreign"] <= MOST_FOREIGN, facts
    assert facts["megabytes"] <= MOST_MEGABYTES, facts


_COUNT = """
import importlib.metadata as m, json, os
size = foreign = 0
for dist in m.distributions():
    name = dist.metadata["Name"]
    if name in ("pip", "setuptools"):
        continue
    foreign += not name.startswith("dsh-")
    for file in dist.files or ():
        path = dist.locate_file(file)
        if os.path.exists(path) and not str(path).endswith(".pyc"):
            size += os.path.getsize(path)
print(json.dumps({"foreign": foreign, "megabytes": round(size / 1e6, 1)}))
"""


def provider(project: Callable[..., Path], name: str) -> Path:
    module = name.replace("-", "_")
    points = f"""\
[project.entry-points."dsh.plugins"]
{name} = "{module}:Canned"

[project.entry-points."dsh.seam.bash"]
{name} = "{module}:Canned"
"""
    return project(name, module, PROVIDER.format(name=name), points)


def test_installing_a_sibling_swaps_the_backend(dsh: Any, project: Callable[..., Path]) -> None:
    dsh.write_config(scripted(call("bash", command="echo local ran it", description="Say it")))

    def output() -> str:
        done = dsh.run("dsh", "run", "go", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        events = [json.loads(line) for line in done.stdout.splitlines()]
        results = [e for e in events if e["type"] == "tool/result"]
        return str(results[0]["data"]["content"][0]["text"])

    assert output() == "local ran it\n"
    dsh.install(provider(project, "acme-bash"))
    assert "acme-bash ran it" in output()
    dsh.install(provider(project, "zeta-bash"))
    both = dsh.run("dsh", "run", "go")
    assert both.returncode == 2
    for word in ("acme-bash", "zeta-bash", "seams:"):
        assert word in both.stderr
    picked = dsh.run("dsh", "run", "go", "--json", "--set", "seams.bash=zeta-bash")
    assert "zeta-bash ran it" in picked.stdout
    dsh.uninstall("zeta-bash")
    assert "acme-bash ran it" in output()
    dsh.uninstall("acme-bash")
    assert output() == "local ran it\n"


def readme_plugin() -> str:
    """Return the plugin that the README shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if "class Words" in block)


def test_the_readmes_plugin_works_in_a_project_of_its_own(
    dsh: Any, project: Callable[..., Path]
) -> None:
    points = '[project.entry-points."dsh.plugins"]\nwords = "my_words:Words"\n'
    dsh.install(project("my-words", "my_words", readme_plugin(), points))
    steps = (
        call("word_count", text="one two three"),
        call("bash", command="git push origin", description="Push it"),
    )
    config = scripted(*steps)
    dsh.write_config(config + "  - words\n")
    done = dsh.run("dsh", "run", "count", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    results = [e["data"] for e in events if e["type"] == "tool/result"]
    assert results[0]["content"][0]["text"] == "3"
    assert results[1]["isError"] is True
    assert "pushing is not allowed" in results[1]["content"][0]["text"]
