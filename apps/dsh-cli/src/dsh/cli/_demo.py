"""`dsh demo`: the whole machinery with a scripted model, no key and no network."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Final

import anyio

from dsh.bash import BashExecutor, BashRequest
from dsh.cli import _demo_crash
from dsh.cli._demo_project import MODULE, TASK, TESTS, script, test_command, write_project
from dsh.cli._demo_settings import demo_deployment, no_proxy
from dsh.cli._demo_swap import INTRODUCTION, need_stores, run_swap_demo
from dsh.cli._exit_codes import CLOSED_PIPE, ERROR, OK
from dsh.cli._failures import say
from dsh.cli._keys import register_keys
from dsh.cli._logs import Logs
from dsh.cli._out import Out, mute_stdout, stderr, stdout
from dsh.cli._signals import Signals
from dsh.cli._task import Task, perform
from dsh.cli._view import TextView
from dsh.llm_replay.server import WireServer
from dsh.loader import Deployment, only_providers, open_app

_INTRODUCTION: Final = """\
dsh demo: the model is scripted and served on this machine, so no key and no network are needed.
Everything else is real: the adapter, the agent loop, the commands, the project.
"""


def command(args: argparse.Namespace) -> int:
    """Run the demo and return the exit code."""
    out = stdout()
    register_keys()
    if args.crash:
        need_stores(1, "--crash")
    elif args.swap:
        need_stores(2, "--swap")
    with (
        redirect_stdout(sys.stderr),  # what a plugin prints is no part of the output
        Signals() as signals,
        Logs() as logs,
        _folder(keep=args.keep, out=out) as folder,
    ):
        if args.crash:
            out.line(_demo_crash.INTRODUCTION)
            out.line(f"project: {folder}\n")
            with _home() as home:
                return anyio.run(_demo_crash.run_crash_demo, folder, home, out, signals)
        if args.swap:
            out.line(INTRODUCTION)
            out.line(f"project: {folder}\ntask: {TASK}\n")
            with _home() as home:
                return anyio.run(run_swap_demo, folder, home, out, signals, logs)
        write_project(folder)
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
            deployment = demo_deployment(server.url)
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
        async with open_app(only_providers(deployment, "bash")) as app:
            bash = app[BashExecutor]
            request = BashRequest(command=test_command(), workdir=str(self._folder))
            result = await bash.run(bash.resolve(request))
        if result.exit_code != 0:
            say(f"the tests of the repaired project still fail (exit {result.exit_code})")
            return ERROR
        self._out.line("checked by dsh itself: the project's tests pass now, and only slugs.py")
        self._out.line('was changed. Your turn: `dsh login`, then `dsh run "..."`.')
        return OK


@contextmanager
def _folder(*, keep: bool, out: Out) -> Generator[Path]:
    """Make a temporary folder to work in; remove it afterwards unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="dsh-demo-"))
    try:
        with no_proxy():
            yield folder
    finally:
        if keep:
            out.line(f"the project is kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _home() -> Generator[Path]:
    """Make a temporary folder for what a user has, sessions among it."""
    folder = Path(tempfile.mkdtemp(prefix="dsh-demo-home-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
