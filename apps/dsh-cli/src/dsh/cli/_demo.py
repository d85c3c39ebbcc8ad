"""`dsh demo`: the whole machinery with a scripted model, no key and no network."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Final

import anyio

from dsh.bash import BashExecutor, BashRequest
from dsh.cli._defaults import APP
from dsh.cli._demo_project import MODULE, TASK, TESTS, script, test_command, write_project
from dsh.cli._exits import CLOSED_PIPE, ERROR, OK
from dsh.cli._failures import say
from dsh.cli._keys import register_keys
from dsh.cli._logs import Logs
from dsh.cli._out import Out, mute_stdout, stderr, stdout
from dsh.cli._settings import DEFAULTS_LABEL, default_settings
from dsh.cli._signals import Signals
from dsh.cli._task import Task, perform
from dsh.cli._view import TextView
from dsh.llm_replay.server import WireServer
from dsh.loader import Deployment, explain_choice, open_app, read_deployment

_INTRODUCTION: Final = """\
dsh demo: the model is scripted and served on this machine, so no key and no network are needed.
Everything else is real: the adapter, the agent loop, the commands, the project.
"""


def command(args: argparse.Namespace) -> int:
    """Run the demo and return the exit code."""
    out = stdout()
    register_keys()
    with (
        redirect_stdout(sys.stderr),  # what a plugin prints is no part of the output
        Signals() as signals,
        Logs() as logs,
        _project(keep=args.keep, out=out) as folder,
    ):
        out.line(_INTRODUCTION)
        out.line(f"project: {folder}\ntask: {TASK}\n")
        return anyio.run(_Demo(folder, out, signals, logs).run)


class _Demo:
    """One run of the demo.

    Args:
        folder: Where the project is.
        out: Standard output.
        signals: What may interrupt it.
        logs: Opened once the app has started.
    """

    def __init__(self, folder: Path, out: Out, signals: Signals, logs: Logs) -> None:
        self._folder = folder
        self._out = out
        self._signals = signals
        self._logs = logs

    async def run(self) -> int:
        """Let the scripted model repair the project, then check the repair."""
        async with WireServer(script()) as server:
            deployment = _deployment(server.url)
            view = TextView(self._out, stderr(), quiet=False, final_only=False)
            task = Task(text=TASK, deployment=deployment, folder=self._folder)
            report = await perform(task, view, self._signals, self._logs)
        if report.exit_code == CLOSED_PIPE:
            mute_stdout()
            return report.exit_code
        view.end(report)
        if report.exit_code != OK:
            return report.exit_code
        return await self._verify(deployment)

    async def _verify(self, deployment: Deployment) -> int:
        """Run the project's tests once more, outside of the agent."""
        self._out.line()
        module = (self._folder / "slugs.py").read_text(encoding="utf-8")
        tests = (self._folder / "test_slugs.py").read_text(encoding="utf-8")
        if module == MODULE or tests != TESTS:
            say("the project was not repaired as expected")
            return ERROR
        async with open_app(_bash_alone(deployment)) as app:
            bash = app[BashExecutor]
            request = BashRequest(command=test_command(), workdir=str(self._folder))
            result = await bash.run(bash.resolve(request))
        if result.exit_code != 0:
            say(f"the tests of the repaired project still fail (exit {result.exit_code})")
            return ERROR
        self._out.line("checked by dsh itself: the project's tests pass now, and only slugs.py")
        self._out.line('was changed. Your turn: `dsh login`, then `dsh run "..."`.')
        return OK


def _deployment(url: str) -> Deployment:
    """Return the shipped deployment, its adapter pointed at the scripted model."""
    return read_deployment(
        defaults=_with_adapter({"base_url": url, "api_key": "none"}),
        defaults_label=DEFAULTS_LABEL,
        app=APP,
        user=False,
    )


def _with_adapter(config: dict[str, object]) -> dict[str, object]:
    settings = default_settings()
    rows = settings["plugins"]
    assert isinstance(rows, list)  # the file is ours
    plugins: list[object] = [
        {"use": row, "config": config} if row == "llm-deepseek" else row for row in rows
    ]
    return {**settings, "plugins": plugins}


def _bash_alone(deployment: Deployment) -> dict[str, object]:
    """Return a deployment with nothing but the provider of bash that `deployment` uses."""
    return {
        "bundle": None,
        "seams": {"bash": explain_choice(deployment, "bash").provider.name},
        "bash": deployment.section("bash"),
    }


@contextmanager
def _project(*, keep: bool, out: Out) -> Generator[Path]:
    """Make the project in a temporary folder; remove it afterwards unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="dsh-demo-"))
    try:
        write_project(folder)
        with _no_proxy():
            yield folder
    finally:
        if keep:
            out.line(f"the project is kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _no_proxy() -> Generator[None]:
    """Keep a proxy of the environment away from the server on this machine."""
    names = ("no_proxy", "NO_PROXY")
    before = {name: os.environ.get(name) for name in names}
    for name in names:
        os.environ[name] = "127.0.0.1"
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
