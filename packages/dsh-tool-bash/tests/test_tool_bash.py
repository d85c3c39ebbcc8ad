"""The bash tools over real commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.agent import AgentRegistry
from dsh.agent.testing import StubAgent
from dsh.bash import (
    BashExecutor,
    BashRead,
    BashRequest,
    BashResult,
    BashSpec,
    BashTask,
    CollectedOutput,
    OwnerToken,
    SandboxFacts,
)
from dsh.bash.testing import read_until
from dsh.bash_local import LocalBash
from dsh.core import App, JsonObject, Mount, entry_points, secrets
from dsh.llm import CancelSignal, TextBlock
from dsh.session import PluginSource, Session, SessionHeader
from dsh.system_prompt import AssembleContext, SystemPrompt, render_prompt
from dsh.tool_bash import ToolBash
from dsh.tools import (
    GenericCard,
    TerminalCard,
    TerminalResult,
    ToolExecutionResult,
    ToolOutcome,
    ToolRegistry,
)
from dsh.tools.testing import call_tool, text_of, tools_app

SECRET = "sk-live-1122334455667788"


class Spying(LocalBash):
    """Local bash that remembers what it was asked."""

    requests: list[BashRequest]

    async def start(self) -> None:
        await super().start()
        self.requests = []

    def resolve(self, request: BashRequest) -> BashSpec:
        self.requests.append(request)
        return super().resolve(request)


class Bench:
    """An app with the tools, and short ways to use them."""

    def __init__(self, app: App, tools: ToolRegistry, plugin: Mount) -> None:
        self.app = app
        self.tools = tools
        self.plugin = plugin
        self.made = 0

    @property
    def bash(self) -> Spying:
        bash = self.app[BashExecutor]
        assert isinstance(bash, Spying)
        return bash

    def agent(self, session_id: str, cwd: str | None = None) -> StubAgent:
        """A live agent of a session."""
        self.made += 1
        header = SessionHeader(id=session_id, created_at=0, cwd=cwd)
        agent = StubAgent(f"agent-{self.made}", Session(session_id, header=header, enclosed=False))
        agent.bind(self.app.ctx.scope(agent).ctx)
        self.app[AgentRegistry].register(self.app.ctx, agent)
        return agent

    async def call(
        self, name: str, agent: StubAgent | None = None, /, **arguments: Any
    ) -> ToolExecutionResult:
        if name == "bash":
            arguments.setdefault("description", "Do something for a test")
        with anyio.fail_after(20):
            return await call_tool(self.tools, name, arguments, agent=agent)

    async def run(self, command: str, agent: StubAgent | None = None, /, **arguments: Any) -> str:
        """The text of a foreground command that is no error."""
        result = await self.call("bash", agent, command=command, **arguments)
        assert not result.is_error, text_of(result)
        return text_of(result)

    async def start(self, command: str, agent: StubAgent | None = None) -> BashTask:
        """A background command started through the tool."""
        result = await self.call("bash", agent, command=command, run_in_background=True)
        task = self.bash.list()[-1]
        assert text_of(result) == f"started background task {task.id}"
        return task


@asynccontextmanager
async def bench(config: Mapping[str, Any] | None = None) -> AsyncGenerator[Bench]:
    async with tools_app() as (app, tools):
        for plugin, given in ((AgentRegistry, None), (Spying, config)):
            await app.mount(plugin, given).settled()
        plugin = app.mount(ToolBash)
        await plugin.settled()
        yield Bench(app, tools, plugin)


def test_it_is_found_under_its_name() -> None:
    (point,) = [p for p in entry_points("dsh.plugins") if p.name == "tool-bash"]
    assert point.load() is ToolBash


# ── foreground ───────────────────────────────────────────────────────────────────────────────


async def test_a_failing_command_is_no_error() -> None:
    # case: BASH-01
    async with bench() as b:
        result = await b.call("bash", command="echo failing; exit 3")
    assert text_of(result) == "failing\n[exit code: 3]"
    assert not result.is_error
    assert result.meta is not None
    assert (result.meta["exitCode"], result.meta["signal"]) == (3, None)


async def test_a_timeout_is_no_error() -> None:
    # case: BASH-02
    async with bench() as b:
        result = await b.call("bash", command="sleep 60", timeout_ms=100)
    assert text_of(result) == "(no output)\n[timed out after 100ms]\n[killed by signal: SIGTERM]"
    assert not result.is_error
    assert result.meta is not None
    assert result.meta["timedOut"] is True


async def test_a_clean_exit_after_the_timeout_has_no_exit_marker() -> None:
    # case: BASH-03
    async with bench() as b:
        text = await b.run("trap 'exit 0' TERM; while :; do :; done", timeout_ms=400)
    assert text == "(no output)\n[timed out after 400ms]"


async def test_a_suicide_shows_the_signal_alone() -> None:
    # case: BASH-04
    async with bench() as b:
        assert await b.run("kill -TERM $$") == "(no output)\n[killed by signal: SIGTERM]"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("true", "(no output)"),
        ("echo out", "out\n"),
        ("printf out; echo err >&2", "out\n[stderr]\nerr\n"),
        ("echo err >&2; exit 2", "[stderr]\nerr\n[exit code: 2]"),
        ("printf out; exit 1", "out\n[exit code: 1]"),
        ("printf '\\377'", "\ufffd\n[bytes that are not UTF-8 are shown as \ufffd]"),
        (
            "sleep 60 & echo done",
            "done\n[1 process started by this command still running in the background]",
        ),
    ],
)
async def test_the_grammar_of_results(command: str, text: str) -> None:
    # case: F-01
    # case: F-32
    async with bench() as b:
        assert await b.run(command) == text


async def test_long_output_names_the_file_with_all_of_it() -> None:
    # case: BASH-07
    # case: F-35
    async with bench({"max_output_bytes": 500}) as b:
        result = await b.call("bash", command="seq 1 1000; seq 1 1000 >&2; exit 1")
        text = text_of(result)
        assert result.meta is not None
        path = result.meta["stdoutSpillPath"]
        assert isinstance(path, str)
        assert f"1000\n[output truncated; full output: {path}]\n[stderr]\n" in text
        assert text.endswith("]\n[exit code: 1]")
        assert text.count("[output truncated; full output: ") == 2
        assert await b.run(f"head -1 {path}; wc -l <{path}") == "1\n1000\n"


async def test_a_lost_file_is_said_to_be_unavailable() -> None:
    # case: BASH-08
    async with bench({"max_output_bytes": 500, "max_spill_bytes": 1000}) as b:
        text = await b.run("seq 1 1000")
    assert text.endswith("1000\n[output truncated; full output: (unavailable)]")


async def test_an_aborted_command_is_an_error() -> None:
    signal = CancelSignal()
    results: list[ToolExecutionResult] = []
    async with bench() as b, anyio.create_task_group() as tasks:

        async def call() -> None:
            arguments: Any = {"command": "sleep 60", "description": "Sleep for a minute"}
            results.append(await call_tool(b.tools, "bash", arguments, signal=signal))

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        signal.abort("cancelled")
    (result,) = results
    assert result.is_error
    assert text_of(result) == "Error: command aborted"


async def test_a_command_that_cannot_start_is_an_error() -> None:
    async with bench() as b:
        result = await b.call("bash", command="true", workdir="/no/such/directory")
    assert result.is_error
    assert "/no/such/directory" in text_of(result)
    assert "No such file or directory" in text_of(result)
    assert result.error is not None
    assert result.error.code == "WORKDIR_UNUSABLE"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": " \n"}, "invalid command: "),
        ({"command": "true", "description": "\t"}, "invalid description: "),
        ({"command": "true", "timeout_ms": 0}, "invalid timeout_ms: "),
        ({"command": "true", "timeout_ms": -5}, "invalid timeout_ms: "),
        ({"command": "true", "timeout_ms": "5"}, "invalid arguments: "),
        ({"command": "true", "run_in_background": "yes"}, "invalid arguments: "),
        ({}, "invalid arguments: "),
    ],
)
async def test_arguments_that_make_no_sense(arguments: dict[str, Any], text: str) -> None:
    async with bench() as b:
        result = await b.call("bash", **arguments)
        assert b.bash.requests == []
    assert result.is_error
    assert text_of(result).startswith(f"Error: {text}")
    assert result.error is not None
    assert result.error.code == "INVALID_ARGS"


@pytest.mark.parametrize("background", [False, True])
async def test_only_the_documented_arguments_reach_the_executor(background: bool) -> None:
    # case: BASH-14
    smuggled: dict[str, Any] = {
        "env": {"A": "b"}, "stdin": "evil", "owner": "other", "sandbox_mode": "danger-full-access",
    }  # fmt: skip
    async with bench() as b:
        await b.call("bash", command="true", run_in_background=background, **smuggled)
        (request,) = b.bash.requests
    assert (request.env, request.stdin, request.owner, request.sandbox_mode) == (None,) * 4


async def test_the_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with bench({"cwd": "/usr"}) as b:
        agent = b.agent("s", cwd=str(tmp_path))
        homeless = b.agent("t")
        assert await b.run("pwd", agent) == f"{tmp_path}\n"
        assert await b.run("pwd", agent, workdir="sub") == f"{tmp_path}/sub\n"
        assert await b.run("pwd", agent, workdir="/") == "/\n"
        assert await b.run("pwd", homeless) == "/usr\n"
        assert await b.run("pwd", homeless, workdir="lib/..") == "/usr\n"
        assert await b.run("pwd") == "/usr\n"


async def test_secrets_do_not_reach_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    # case: F-44
    secrets.add(SECRET)
    monkeypatch.setenv("DEEPSEEK_API_KEY", SECRET)
    monkeypatch.setenv("INNOCENT", SECRET)
    async with bench() as b:
        assert "DEEPSEEK" not in await b.run("env")
        text = await b.run(f"echo {SECRET[:9]}''{SECRET[9:]} | tee /dev/stderr")
        assert text == f"{secrets.MASK}\n[stderr]\n{secrets.MASK}\n"


# ── background ───────────────────────────────────────────────────────────────────────────────


async def test_a_background_command_from_start_to_end() -> None:
    # case: BASH-11
    async with bench() as b:
        task = await b.start("echo first; read line <&0; echo second >&2; exit 4")
        await task.done()
        one = await b.call("bash_output", task_id=task.id)
        two = await b.call("bash_output", task_id=task.id)
    assert text_of(one) == "first\n[stderr]\nsecond\n[status: completed, exit code: 4]"
    assert text_of(two) == "(no new output)\n[status: completed, exit code: 4]"
    assert one.meta is not None
    assert (one.meta["taskId"], one.meta["exitCode"]) == (task.id, 4)


async def test_looking_at_and_stopping_a_running_command() -> None:
    async with bench() as b:
        task = await b.start("echo on; sleep 60")
        seen = await read_until(b.bash, task, "on")
        assert seen == "on\n"
        running = await b.call("bash_output", task_id=task.id)
        killed = await b.call("bash_kill", task_id=task.id)
        await task.done()
        again = await b.call("bash_kill", task_id=task.id)
        last = await b.call("bash_output", task_id=task.id)
    assert text_of(running) == "(no new output)\n[status: running]"
    assert text_of(killed) == f"killed background task {task.id}"
    assert text_of(again) == f"task {task.id} had already finished"
    assert text_of(last) == "(no new output)\n[status: killed by SIGTERM]"


async def test_a_background_command_that_cannot_start() -> None:
    # case: BASH-12
    async with bench() as b:
        result = await b.call(
            "bash", command="true", workdir="/no/such/directory", run_in_background=True
        )
        assert not result.is_error
        (task,) = b.bash.list()
        await task.done()
        text = text_of(await b.call("bash_output", task_id=task.id))
    assert "spawn failed: " in text
    assert text.endswith("[status: killed]")


async def test_dropped_output_is_said() -> None:
    async with bench({"max_output_bytes": 100}) as b:
        task = await b.start("seq 1 1000")
        await task.done()
        result = await b.call("bash_output", task_id=task.id)
    assert "1000\n[some output was dropped from memory; full output: /" in text_of(result)
    assert result.meta is not None
    assert result.meta["lossy"] is True


async def test_tasks_are_fenced_by_session() -> None:
    # case: BASH-13
    async with bench() as b:
        alice, bob = b.agent("alice"), b.agent("bob")
        task = await b.start("echo mine; sleep 60", alice)
        for caller in (bob, None):
            for name in ("bash_output", "bash_kill"):
                result = await b.call(name, caller, task_id=task.id)
                assert result.is_error
                assert f"task {task.id} belongs to another session" in text_of(result)
                assert result.error is not None
                assert result.error.code == "FOREIGN_BASH_TASK"
        assert task.status == "running"
        await b.plugin.dispose()
        again = b.app.mount(ToolBash)
        await again.settled()
        twin = b.agent("alice")
        assert not (await b.call("bash_output", twin, task_id=task.id)).is_error
        assert not (await b.call("bash_kill", twin, task_id=task.id)).is_error
        await task.done()


async def test_the_empty_string_is_an_owner_and_nobody_is_everybody() -> None:
    # case: BASH-13
    async with bench() as b:
        bash = b.bash
        fenced = bash.start_task(bash.resolve(BashRequest(command="true", owner=OwnerToken(""))))
        free = await b.start("true")
        assert (await b.call("bash_output", task_id=fenced.id)).is_error
        assert not (await b.call("bash_output", b.agent("any"), task_id=free.id)).is_error
        await fenced.done()
        await free.done()


async def test_unknown_and_blank_tasks() -> None:
    async with bench() as b:
        for name in ("bash_output", "bash_kill"):
            unknown = await b.call(name, task_id="bash-99")
            assert 'unknown bash task "bash-99"' in text_of(unknown)
            blank = await b.call(name, task_id=" ")
            assert text_of(blank).startswith("Error: invalid task_id: ")
            assert unknown.is_error
            assert blank.is_error


async def test_the_end_of_a_task_is_told_to_its_session_only() -> None:
    secrets.add(SECRET)
    async with bench() as b:
        alice, bob = b.agent("alice"), b.agent("bob")
        await (await b.start("true")).done()
        assert alice.said == bob.said == []
        task = await b.start(f"exit 3  # {SECRET}\nsecond line {'x' * 500}", alice)
        await task.done()
        (said,) = alice.said
        assert bob.said == []
    assert said.verb == "inject"
    assert said.source == PluginSource("tool-bash")
    (block,) = said.content
    assert isinstance(block, TextBlock)
    assert block.text.startswith(
        f"Background command {task.id} has ended: [status: completed, exit code: 3] "
    )
    assert "bash_output" in block.text
    assert "\n" not in block.text
    assert SECRET not in block.text
    assert len(block.text) < 400


async def test_no_notice_after_the_owner_or_the_executor_has_gone() -> None:
    async with bench() as b:
        gone = b.agent("gone")
        scope = b.app[AgentRegistry]
        task = await b.start("sleep 60", gone)
        other = await b.start("sleep 60", b.agent("other"))
        assert gone in scope.list()
        watcher = next(agent for agent in scope.list() if agent.session.id == "other")
    assert isinstance(watcher, StubAgent)
    assert (task.status, other.status) == ("killed", "killed")
    assert gone.said == watcher.said == []


# ── presentation ─────────────────────────────────────────────────────────────────────────────


async def test_cards() -> None:
    async with bench() as b:
        bash = b.tools.get("bash")
        output, kill = b.tools.get("bash_output"), b.tools.get("bash_kill")
        assert bash is not None
        assert output is not None
        assert kill is not None
        call: Any = {"command": "ls", "description": "List files", "workdir": "src"}
        assert bash.call_view(call) == TerminalCard("ls", "List files", "src")
        assert isinstance(output.call_view({"task_id": "bash-1"}), GenericCard)
        assert isinstance(kill.call_view({"task_id": "bash-1"}), GenericCard)
        olds: list[JsonObject] = [{}, {"command": 3}, {"command": "x", "description": None}]
        for old in olds:
            assert isinstance(bash.call_view(old), GenericCard)


@pytest.mark.parametrize(
    ("command", "view"),
    [
        ("echo hi", TerminalResult(None, "hi\n", 0, None)),
        ("echo hi; exit 3", TerminalResult(None, "hi\n", 3, None)),
        ("printf 'done [exit code: 5]'", TerminalResult(None, "done [exit code: 5]", 0, None)),
        ("printf 'done\\n[exit code: 5]'", TerminalResult(None, "done\n[exit code: 5]", 0, None)),
        ("printf 'no line'; exit 3", TerminalResult(None, "no line\n", 3, None)),
        ("kill $$", TerminalResult(None, "(no output)\n", None, "SIGTERM")),
        ("sleep 60", TerminalResult(None, "(no output)\n", None, "SIGTERM", timed_out_ms=100)),
    ],
)
async def test_result_cards_are_made_of_facts(command: str, view: TerminalResult) -> None:
    # case: BASH-16
    async with bench() as b:
        result = await b.call("bash", command=command, timeout_ms=view.timed_out_ms or 20_000)
        bash = b.tools.get("bash")
        assert bash is not None
        arguments: Any = {"command": command, "description": "d"}
        outcome = ToolOutcome(result.content, result.is_error, result.meta)
        assert bash.result_view(arguments, outcome) == view
        replaced = ToolOutcome((TextBlock("something else"),), False, result.meta)
        shown = bash.result_view(arguments, replaced)
        assert isinstance(shown, TerminalResult)
        assert shown.output == "something else"


# ── registration ─────────────────────────────────────────────────────────────────────────────


async def test_what_the_model_is_told() -> None:
    async with bench({"timeout_ms": 1234, "max_timeout_ms": 56789}) as b:
        schemas = {schema.name: schema for schema in b.tools.schemas()}
        prompt = await b.app[SystemPrompt].assemble(AssembleContext())
        text = render_prompt(prompt)
    assert set(schemas) == {"bash", "bash_output", "bash_kill"}
    bash = schemas["bash"].parameters
    assert isinstance(bash["properties"], dict)
    assert set(bash["properties"]) == {
        "command", "description", "timeout_ms", "workdir", "run_in_background",
    }  # fmt: skip
    assert bash["required"] == ["command", "description"]
    assert "1234" in schemas["bash"].description
    assert "56789" in schemas["bash"].description
    assert "[exit code: N]" in text


async def test_everything_leaves_with_the_plugin_and_with_the_service() -> None:
    async with tools_app() as (app, tools):
        plugin = app.mount(ToolBash)
        assert tools.schemas() == ()
        local = app.mount(LocalBash)
        await local.settled()
        await plugin.settled()
        assert len(tools.schemas()) == 3
        await local.dispose()
        assert tools.schemas() == ()
        section = render_prompt(await app[SystemPrompt].assemble(AssembleContext()))
        assert "bash" not in section


class Sandboxed(Spying):
    """An executor with facts of a sandbox."""

    async def run(self, spec: BashSpec) -> BashResult:
        result = await super().run(spec)
        return BashResult(
            exit_code=result.exit_code,
            signal=None,
            timed_out=False,
            aborted=False,
            timeout_ms=spec.timeout_ms,
            stdout=CollectedOutput("partial"),
            stderr=CollectedOutput(""),
            sandbox=SandboxFacts("read-only", denied=True, enforcement="full"),
        )

    def read_output(self, task_id: str) -> BashRead:
        read = super().read_output(task_id)
        read.task.sandbox = SandboxFacts("read-only", denied=True)
        return read


async def test_facts_of_a_sandbox_are_shown() -> None:
    async with tools_app() as (app, tools):
        await app.mount(AgentRegistry).settled()
        await app.mount(Sandboxed).settled()
        plugin = app.mount(ToolBash)
        await plugin.settled()
        b = Bench(app, tools, plugin)
        text = await b.run("exit 1")
        assert text == (
            "partial\n[sandbox: file access denied under read-only mode]\n[exit code: 1]"
        )
        task = await b.start("true")
        await task.done()
        read = text_of(await b.call("bash_output", task_id=task.id))
        assert read.endswith("[sandbox: file access denied under read-only mode]")


def test_windows_can_import_it() -> None:
    subject = (
        "import sys, os\n"
        "import anyio, dsh.core, dsh.tools, dsh.agent\n"
        "for name in ('fcntl', 'resource', 'pwd', 'termios'): sys.modules[name] = None\n"
        "for name in ('posix_spawn', 'pidfd_open', 'killpg', 'setsid'): delattr(os, name)\n"
        "import dsh.process, dsh.bash_local, dsh.tool_bash\n"
        "print('imported')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", subject],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert done.stdout == "imported\n", done.stderr
