"""Everything runs on another loop, in an environment where the shipped one is not installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

Suite = Callable[..., subprocess.CompletedProcess[str]]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": name, "arguments": arguments}


def bash(command: str) -> dict[str, Any]:
    return call("bash", command=command, description="d")


def events(done: subprocess.CompletedProcess[str], code: int = 0) -> list[dict[str, Any]]:
    assert done.returncode == code, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def results(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line["data"] for line in lines if line["type"] == "tool/result"]


def test_the_command_works_on_another_loop(acme: Any, playing: Callable[..., str]) -> None:
    installed = acme.installed()
    assert not {"dsh-agent-loop", "dsh-agent-core"} & set(installed)
    gone = acme.run(str(acme.python), "-c", "import dsh.agent_loop")
    assert "No module named 'dsh.agent_loop'" in gone.stderr
    assert acme.run("dsh", "--version").stdout.startswith("dsh ")
    demo = acme.run("dsh", "demo")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    acme.write_config(playing(bash("echo it works")))
    lines = events(acme.run("dsh", "run", "go", "--json"))
    assert [line["content"][0]["text"] for line in results(lines)] == ["it works\n"]
    types = [line["type"] for line in lines if line["type"] != "assistant/chunk"]
    assert types == [
        "run/start",
        "turn/start",
        "user/message",
        "step/start",
        "request/header",
        "assistant/message",
        "tool/call",
        "tool/result",
        "step/end",
        "step/start",
        "assistant/message",
        "step/end",
        "turn/end",
        "run/end",
    ]
    doctor = acme.run("dsh", "doctor", "--json")
    report = json.loads(doctor.stdout)
    assert doctor.returncode == 0, doctor.stdout
    assert report["plugins"]["acme-core"] == "active"
    assert str(report["settings"]["bundle"]).startswith("acme-core from acme-core 1.0.0")


def test_exit_codes_tell_how_a_turn_ended(acme: Any, playing: Callable[..., str]) -> None:
    for step, code, reason in (
        ({"error": "broken", "code": "BROKEN"}, 1, "error"),
        ({"text": "half", "finish": "max-tokens"}, 3, "max-tokens"),
        ({"text": "no", "finish": "refusal"}, 4, "refusal"),
    ):
        acme.write_config(playing(step))
        lines = events(acme.run("dsh", "run", "go", "--json"), code)
        assert lines[-1]["type"] == "run/end"
        assert (lines[-1]["reason"]["kind"], lines[-1]["exitCode"]) == (reason, code)
    acme.write_config(playing(bash("true"), bash("true")))
    lines = events(acme.run("dsh", "run", "go", "--json", "--max-steps", "1"), 3)
    assert lines[-1]["reason"] == {"kind": "max-turn-requests", "limit": "max_steps", "value": 1}


def test_an_interrupt_ends_the_turn_in_good_order(acme: Any, playing: Callable[..., str]) -> None:
    acme.write_config(playing(bash("echo started; sleep 1000")))
    work = acme.folder / "work"
    work.mkdir(exist_ok=True)
    variables = {
        "PATH": f"{acme.python.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(acme.home),
    }
    lines: list[dict[str, Any]] = []
    with subprocess.Popen(
        ["dsh", "run", "go", "--json"],
        executable=acme.python.parent / "dsh",
        cwd=work,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(json.loads(line))
            if lines[-1]["type"] == "tool/call":
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert len(results(lines)) == 1
    assert [line["type"] for line in lines[-3:]] == ["step/end", "turn/end", "run/end"]
    assert lines[-1]["reason"]["kind"] == "aborted"


PLUGINS = '''
from dsh.bash import BashExecutor, BashResult, BashSpec, CollectedOutput
from dsh.core import Next, Plugin, on
from dsh.tools import Deny, PreToolDecision, ToolPreExecute


class Canned(BashExecutor):
    """Answers every command with its own name."""

    name = "canned-bash"

    async def run(self, spec: BashSpec) -> BashResult:
        output = CollectedOutput("canned\\n", False)
        empty = CollectedOutput("", False)
        return BashResult(
            exit_code=0, signal=None, timed_out=False, aborted=False,
            timeout_ms=spec.timeout_ms, stdout=output, stderr=empty,
        )

    def on_task_done(self, ctx, fn):
        return ctx.defer(lambda: None)

    start_task = get = list = owner_of = read_output = kill = None


class Gate(Plugin):
    """Refuses one command."""

    @on(ToolPreExecute)
    async def decide(self, event: ToolPreExecute, next: Next[PreToolDecision]) -> PreToolDecision:
        if "push" in str(event.execution.arguments):
            return Deny("pushing is not allowed")
        return await next()
'''

POINTS = """\
[project.entry-points."dsh.plugins"]
canned-bash = "acme_more:Canned"
acme-gate = "acme_more:Gate"

[project.entry-points."dsh.seam.bash"]
canned-bash = "acme_more:Canned"
"""


def test_other_wheels_plug_into_it_as_ever(
    acme: Any, playing: Callable[..., str], project: Callable[..., Path]
) -> None:
    acme.install(project("acme-more", "acme_more", PLUGINS, POINTS))
    acme.write_config(playing(bash("git push"), bash("ls")) + "  - acme-gate\n")
    denied, swapped = results(events(acme.run("dsh", "run", "go", "--json")))
    assert denied["isError"] is True
    assert "pushing is not allowed" in denied["content"][0]["text"]
    assert swapped["content"][0]["text"] == "canned\n"


def test_its_own_policy_can_be_seen(acme: Any, playing: Callable[..., str]) -> None:
    config = playing(bash("echo 1"), bash("echo 2"))
    acme.write_config(config + "  - {use: acme-core, config: {wrap_up_after: 1}}\n")
    lines = events(acme.run("dsh", "run", "go", "--json"))
    first, second = results(lines)
    assert first["content"][0]["text"] == "1\n"
    assert second["error"]["code"] == "TOOL_NOT_STARTED"
    (note,) = [line["data"] for line in lines if line["type"] == "steering/message"]
    assert note["source"] == {"kind": "plugin", "plugin": "acme-loop"}


CONTRACTS = (
    "tests/wheels/projects/acme-loop/tests/test_acme_loop_contract.py",
    "packages/dsh-bash-local/tests/test_bash_local_contract.py",
    "packages/dsh-testkit/tests/test_llm_contract.py",
    "packages/dsh-testkit/tests/test_persistence_contract.py",
)
"""Every contract suite the repository has."""

OF_THE_DEFAULT_BUNDLE = (
    "packages/dsh-testkit/tests/test_spine_fixtures.py"
    "::test_a_bundle_is_named_as_an_object_or_as_it_is_installed",
    "packages/dsh-testkit/tests/test_spine_fixtures.py::test_installing_a_sibling_swaps_the_bundle",
)
"""Tests of the choice between agent-core and others: they need agent-core to be there."""

DRIVING_AGENTS = {
    "handle": (
        "packages/dsh-agent/tests",
        "packages/dsh-tools/tests",
        "packages/dsh-system-prompt/tests",
    ),
    "wheels": (
        "packages/dsh-tool-bash/tests",
        "packages/dsh-invariants/tests",
        "packages/dsh-llm-replay/tests",
        "packages/dsh-session-persistence/tests",
    ),
    "testkit": (
        "packages/dsh-testkit/tests/test_memory_approval.py",
        "packages/dsh-testkit/tests/test_pytest_plugin.py",
        "packages/dsh-testkit/tests/test_resident_fixtures.py",
        "packages/dsh-testkit/tests/test_spine_fixtures.py",
        "packages/dsh-testkit/tests/test_trace_helpers.py",
    ),
}
"""Whatever drives a whole agent, or could notice which loop does; the examples of the test kit's
README are in test_pytest_plugin.py."""


def passed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("path", CONTRACTS)
def test_every_contract_suite_passes(suite: Suite, path: str) -> None:
    passed(suite(path))


@pytest.mark.parametrize("group", DRIVING_AGENTS)
def test_the_suites_that_drive_agents_pass(suite: Suite, group: str) -> None:
    passed(suite(*DRIVING_AGENTS[group], without=OF_THE_DEFAULT_BUNDLE))


def test_the_full_stack_passes(suite: Suite) -> None:
    passed(suite("tests/full_stack"))
